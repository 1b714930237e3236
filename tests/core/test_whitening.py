"""Prototypes of fixed features, compared by the covariance within classes."""

import numpy as np
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE, load

STRETCHED = torch.tensor([8.0, 0.5, 0.5, 0.5])


def samples(count=240, seed=0):
    """Three classes that differ in the small features, beside one that is large and tells nothing."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    mixing = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(9)))[0]
    centres = 1.5 * torch.eye(4)[1 + y]
    return (torch.randn(count, 4, generator=generator) * STRETCHED + centres) @ mixing, y.tolist()


def taught(**settings):
    learner = CoPE("identity", memory_size=60, device="cpu", **settings)
    x, y = samples()
    for start in range(0, len(x), 8):
        learner.observe(x[start : start + 8], y[start : start + 8])
    return learner


def written_out(learner, seen, x):
    """The same with numpy's inverse: the cosine by the inner product of the inverse covariance."""
    features, slots = learner.embed(seen[0]).double().numpy(), np.array(seen[1])
    prototypes = np.stack([features[slots == c].mean(0) for c in range(3)])
    apart = features - prototypes[slots]
    degrees = len(features) - 3
    covariance = apart.T @ apart / degrees
    share = 4 / (4 + degrees)
    covariance = (1 - share) * covariance + share * np.diag(np.diag(covariance))
    inverse = np.linalg.inv(covariance)
    f, p = learner.embed(x).double().numpy() - prototypes.mean(0), prototypes - prototypes.mean(0)
    lengths = [np.sqrt(np.einsum("nd,de,ne->n", each, inverse, each)) for each in (f, p)]
    return f @ inverse @ p.T / np.outer(*lengths) / learner.settings.temperature


def test_scores_are_cosines_by_the_covariance_of_all_samples_around_their_class_means():
    learner, (x, _) = taught(calibration="none"), samples(seed=1)
    expected = torch.from_numpy(written_out(learner, samples(), x)).softmax(1)
    np.testing.assert_allclose(learner.predict_proba(x), expected, rtol=1e-3, atol=1e-4)


def test_a_large_feature_that_tells_nothing_does_not_hide_the_classes():
    x, y = samples(seed=1)
    right = [np.mean(np.array(taught(whiten=whiten).predict(x)) == y) for whiten in (None, False)]
    assert 1 - right[0] < 0.6 * (1 - right[1])


def test_it_is_a_part_of_state_snapshot_and_single_predictions(tmp_path):
    learner, (x, y) = taught(), samples(seed=1)
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    before = learner.predict_proba(x)
    np.testing.assert_array_equal(again.predict_proba(x), before)
    snapshot = learner.snapshot()
    learner.observe(x, y)
    np.testing.assert_array_equal(snapshot.predict_proba(x), before)
    assert not np.array_equal(learner.predict_proba(x), before)
    np.testing.assert_allclose(
        np.concatenate([again.predict_proba(row[None]) for row in x[:9]]), before[:9], rtol=1e-4
    )
    again.observe(x, y)
    assert same_state(learner.state_dict(), again.state_dict())


@pytest.mark.parametrize("labels", [["a"], ["a", "b"], ["a", "a", "a"]])
def test_a_few_samples_are_enough(labels):
    learner = CoPE("identity", memory_size=10, device="cpu")
    learner.observe(torch.eye(3)[: len(labels)], labels)
    assert set(learner.predict(torch.eye(3))) <= set(labels)
    same = CoPE("identity", memory_size=10, device="cpu")
    same.observe(torch.ones(3, 3), ["a", "b", "a"])
    assert np.isfinite(same.predict_proba(torch.eye(3))).all()
