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
    learner = CoPE("identity", **{"memory_size": 60, "device": "cpu"} | settings)
    x, y = samples()
    for start in range(0, len(x), 8):
        learner.observe(x[start : start + 8], y[start : start + 8])
    return learner


def written_out(learner, seen, x, exemplars=True):
    """The same with numpy's inverse and loops: cosines by the inner product of the inverse covariance."""
    features, slots = learner.embed(seen[0]).double().numpy(), np.array(seen[1])
    prototypes = np.stack([features[slots == c].mean(0) for c in range(3)])
    apart = features - prototypes[slots]
    degrees = len(features) - 3
    covariance = apart.T @ apart / degrees
    share = 4 / (4 + degrees)
    covariance = (1 - share) * covariance + share * np.diag(np.diag(covariance))
    inverse = np.linalg.inv(covariance)
    centre = prototypes.mean(0)
    f, p = learner.embed(x).double().numpy() - centre, prototypes - centre
    lengths = [np.sqrt(np.einsum("nd,de,ne->n", each, inverse, each)) for each in (f, p)]
    cosines = f @ inverse @ p.T / np.outer(*lengths)
    if not exemplars:
        return cosines / learner.settings.temperature
    kept, labels = learner.memory.samples()
    e, labels = learner.embed(kept).double().numpy() - centre, np.array(labels)
    expected_length = np.sqrt(4 + np.mean(lengths[1] ** 2))
    nearest = np.zeros_like(cosines)
    for n, length in enumerate(lengths[0]):
        for c in range(3):
            similar = [f[n] @ inverse @ one / (length * expected_length) for one in e[labels == c]]
            nearest[n, c] = 1 + 0.03 * np.log(
                np.mean([np.exp((min(max(s, -1), 1) - 1) / 0.03) for s in similar])
            )
    weight = 0.5 * np.sqrt(len(e) / len(features))
    return (cosines + weight * nearest) / (1 + weight) / learner.settings.temperature


def test_scores_are_cosines_by_the_covariance_of_all_samples_and_similarities_to_exemplars():
    learner, (x, _) = taught(calibration="none"), samples(seed=1)
    expected = torch.from_numpy(written_out(learner, samples(), x)).softmax(1)
    np.testing.assert_allclose(learner.predict_proba(x), expected, rtol=1e-3, atol=1e-4)


def test_a_class_without_exemplars_leaves_the_prototypes_alone():
    learner, (x, _) = taught(calibration="none"), samples(seed=1)
    slots = learner.memory.kept()[1]
    others = np.flatnonzero(slots != 2)
    learner.memory.edit(others, slots[others])
    learner.invalidate()
    assert learner.memory.counts()[2] == 0
    expected = torch.from_numpy(written_out(learner, samples(), x, exemplars=False)).softmax(1)
    np.testing.assert_allclose(learner.predict_proba(x), expected, rtol=1e-3, atol=1e-4)


def test_the_nearest_exemplars_follow_merge_and_forget():
    left, right, (x, y) = taught(), taught(seed=1), samples(seed=2)
    right.observe(x, y)
    before = left.predict_proba(x)
    left.merge(right)
    assert not np.array_equal(left.predict_proba(x), before)
    left.forget(0)
    fresh = CoPE("identity", memory_size=60, device="cpu")
    fresh.load_state_dict(left.state_dict())
    np.testing.assert_array_equal(left.predict_proba(x), fresh.predict_proba(x))
    assert left.predict_proba(x).shape == (len(x), 2)


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


def test_a_batch_that_fails_after_the_covariance_was_updated_changes_nothing(monkeypatch):
    torch.manual_seed(0)
    learner = CoPE("identity", memory_size=8, class_means=True, whiten=True, device="cpu")
    for _ in range(3):
        learner.observe(torch.randn(4, 6), list("abcd"))
    before = learner.state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(learner.memory, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.observe(torch.randn(4, 6), list("abcd"))
    same_state(learner.state_dict(), before)


def interrupted(*_):
    raise KeyboardInterrupt
