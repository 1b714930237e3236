"""Sparse rows of scipy and torch: the same as the dense rows, in bounded parts."""

import numpy as np
import pytest
import scipy.sparse
import torch
from small_learners import make, same_state

from everlearn.core import sparse
from everlearn.core.validation import as_samples


def rows(count=8, seed=0):
    random = np.random.default_rng(seed)
    return (random.random((count, 6)) * (random.random((count, 6)) > 0.6)).astype(np.float32)


KINDS = {
    "csr_matrix": scipy.sparse.csr_matrix,
    "coo_array": scipy.sparse.coo_array,
    "lil": scipy.sparse.lil_array,
    "torch coo": lambda x: torch.tensor(x).to_sparse(),
    "torch csr": lambda x: torch.tensor(x).to_sparse_csr(),
    "torch csc": lambda x: torch.tensor(x).to_sparse_csc(),
    "torch bsr": lambda x: torch.tensor(x).to_sparse_bsr((2, 3)),
}
pytestmark = pytest.mark.filterwarnings("ignore:Sparse:UserWarning")


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows_are_learnt_and_predicted_as_the_dense_ones(kind):
    dense, made = make("cope"), make("cope")
    for seed in range(3):
        dense.observe(rows(seed=seed), ["a", "b"] * 4)
        made.observe(KINDS[kind](rows(seed=seed)), ["a", "b"] * 4)
    same_state(dense.state_dict(), made.state_dict())
    many = rows(2004, 9)  # more than a chunk
    np.testing.assert_array_equal(made.predict_proba(KINDS[kind](many)), dense.predict_proba(many))


def test_only_a_chunk_is_dense_at_a_time(monkeypatch):
    learner = make("cope")
    learner.observe(rows(), ["a", "b"] * 4)
    monkeypatch.setattr(sparse, "LARGEST", 6000)
    many = scipy.sparse.csr_matrix(rows(3000))
    assert len(learner.predict(many)) == 3000
    before = learner.state_dict()
    with pytest.raises(ValueError, match=r"sparse rows of shape \[3000, 6\], too large for a dense batch"):
        learner.observe(many, [0] * 3000)
    same_state(learner.state_dict(), before)


def wrong_csr():
    """A matrix whose indices point outside of it."""
    matrix = scipy.sparse.csr_matrix(np.eye(4, 6, dtype=np.float32))
    matrix.indices[0] = 10**6
    return matrix


INVALID = {
    "scipy": wrong_csr,
    "torch csr": lambda: torch.sparse_csr_tensor(
        [0, 1, 2], [0, 10**6], [1.0, 1.0], (2, 6), check_invariants=False
    ),
    "torch coo": lambda: torch.sparse_coo_tensor([[0], [10**6]], [1.0], (2, 6), check_invariants=False),
}


@pytest.mark.parametrize("kind", INVALID)
def test_indices_outside_are_refused_and_nothing_is_read(kind):
    with pytest.raises(ValueError, match="sparse rows that are not valid"):
        as_samples(INVALID[kind](), "CoPE.observe", keep_integers=False)
