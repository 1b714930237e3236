"""Rejection of unknown samples by their nearest exemplars, against a slow computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from everlearn import UNKNOWN, CoPE
from everlearn.core.rejection import NEAREST, Known, known_region


def similarity_slowly(feature, others):
    """The mean cosine similarity to the nearest five, in plain Python."""
    cosines = []
    for other in others:
        dot = sum(a * b for a, b in zip(feature, other, strict=True))
        cosines.append(dot / math.hypot(*feature) / math.hypot(*other))
    nearest = sorted(cosines, reverse=True)[:NEAREST]
    return sum(nearest) / len(nearest)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_what_is_known_is_that_of_a_slow_computation(share):
    rng = np.random.default_rng(0)
    exemplars = rng.normal(size=(40, 6)) + np.array([3.0, 0, 0, 0, 0, 0])
    samples = rng.normal(size=(200, 6)) + np.array([1.0, 0, 0, 0, 0, 0])
    unit = exemplars / np.linalg.norm(exemplars, axis=1, keepdims=True)
    known = Known(torch.tensor(unit), share)
    own = [similarity_slowly(one, np.delete(exemplars, i, 0)) for i, one in enumerate(exemplars)]
    assert known.least == pytest.approx(np.quantile(own, share))
    expected = [similarity_slowly(one, exemplars) >= known.least for one in samples]
    found = known.accepts(torch.tensor(samples)).tolist()
    assert found == expected
    assert 10 < sum(found) < 190


@pytest.mark.parametrize("exemplars", [0, 1])
def test_with_hardly_any_exemplar_nothing_is_rejected(exemplars):
    assert Known(torch.ones(exemplars, 3), 0.5).accepts(torch.randn(4, 3)).tolist() == [True] * 4


def test_a_class_that_was_never_seen_is_rejected_one_sample_at_a_time_too():
    learner = CoPE("mlp", memory_size=60, hidden=16, unknown=0.05, seed=0, device="cpu")
    rng = np.random.default_rng(0)
    for _ in range(60):
        x = rng.normal(size=(10, 4)) * 0.3 + np.repeat([[3.0, 0, 0, 0], [0, 3.0, 0, 0]], 5, 0)
        learner.observe(x, ["a"] * 5 + ["b"] * 5)
    known = rng.normal(size=(50, 4)) * 0.3 + [3.0, 0, 0, 0]
    unknown = rng.normal(size=(50, 4)) * 0.3 + [-3.0, -3.0, 3.0, 3.0]
    assert learner.predict(known).count("a") > 40
    assert learner.predict(unknown).count(UNKNOWN) > 40
    alone = [learner.predict(row[None])[0] for row in unknown]
    assert alone.count(UNKNOWN) > 40
    before = known_region(learner)
    assert known_region(learner) is before
    learner.observe(known[:2], ["a", "a"])
    assert learner.rejection is None
