"""Calibration: the better of two networks gets the weight, and probabilities become true."""

import numpy as np
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE, load
from everlearn.checkpoint import CheckpointError
from everlearn.core.calibration import Calibration, is_due
from everlearn.core.input_kind import Options
from everlearn.learners.cope_ce import CoPECE


def drawn(count, seed=0):
    """Scores that are the true log-probabilities of three classes, and labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(count, 3, generator=generator) + torch.tensor([1.0, 0.0, -1.0])
    slots = torch.multinomial(scores.softmax(1), 1, generator=generator)[:, 0]
    return scores, slots


def fitted(kind, distort, count=4000):
    calibration = Calibration(Options(calibration=kind))
    calibration.open_classes(3)
    scores, slots = drawn(count)
    for part in range(0, count, 4):
        calibration.record([distort(scores[part : part + 4])], slots[part : part + 4].tolist())
    return calibration


@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_the_temperature_of_distorted_scores_is_found(factor):
    calibration = fitted("temperature", lambda scores: factor * scores)
    assert np.exp(calibration.sharpness) == pytest.approx(1 / factor, rel=0.25)
    assert calibration.biases.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["none", "temperature", "full"])
def test_scores_that_are_not_finite_change_nothing(kind):
    calibration = fitted(kind, lambda scores: scores, 40)
    before = calibration.state()
    good = torch.randn(2, 3)
    calibration.record([good, torch.tensor([[1.0, float("inf"), 0.0], [0.0, 0.0, 0.0]])], [0, 1])
    assert all(torch.equal(part, before[name]) for name, part in calibration.state().items())


def test_biases_undo_a_prior_that_is_wrong():
    shift = torch.tensor([0.0, 2.0, 0.0])
    calibration = fitted("full", lambda scores: scores + shift)
    found = calibration.biases - calibration.biases.mean()
    np.testing.assert_allclose(found, [0.67, -1.33, 0.67], atol=0.35)
    scores, slots = drawn(2000, seed=1)
    wrong = calibration.blended([scores + shift])
    true = (scores.argmax(1) == slots).float().mean()
    assert (calibration.adjusted(wrong).argmax(1) == slots).float().mean() > true - 0.02
    assert (wrong.argmax(1) == slots).float().mean() < true - 0.1


def test_the_network_that_predicted_better_lately_gets_the_weight():
    calibration = Calibration(Options(blend=True))
    scores, slots = drawn(300)
    for first, second in ((scores, -scores), (-scores, scores)):
        for place in range(300):
            calibration.record(
                [first[place : place + 1], second[place : place + 1]], slots[place : place + 1]
            )
        torch.testing.assert_close(calibration.blended([first, second]), scores, atol=0.05, rtol=0)


def rows(count=600, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=generator)
    y = (x[:, 0] + 0.7 * torch.randn(count, generator=generator) > 0.8).long()
    return x, y.tolist()


@pytest.mark.parametrize("kind", [CoPE, CoPECE])
def test_confidence_on_noisy_rows_is_about_the_accuracy(kind):
    x, y = rows(1500)
    learner = kind("mlp", hidden=16, memory_size=200, seed=0, device="cpu")
    right, sure = [], []
    for start in range(0, 1500, 5):
        part = slice(start, start + 5)
        if start > 300:
            p = learner.predict_proba(x[part])
            right += [learner.classes[c] == label for c, label in zip(p.argmax(1), y[part], strict=True)]
            sure += p.max(1).tolist()
        learner.observe(x[part], y[part])
    assert abs(np.mean(right) - np.mean(sure)) < 0.05


@pytest.mark.parametrize("kind", [CoPE, CoPECE])
def test_it_travels_with_state_and_snapshot(kind, tmp_path):
    x, y = rows(100)
    learner = kind("mlp", hidden=8, memory_size=20, seed=0, device="cpu")
    for start in range(0, 60, 3):
        learner.observe(x[start : start + 3], y[start : start + 3])
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    snapshot, before = learner.snapshot(), learner.predict_proba(x)
    assert learner.calibration.sharpness != 0 and learner.calibration.biases.any()
    for each in (learner, again):
        each.observe(x[60:], y[60:])
    assert same_state(learner.state_dict(), again.state_dict())
    np.testing.assert_array_equal(snapshot.predict_proba(x), before)
    learner.forget(y[0])
    assert learner.calibration.biases.shape == (1,)


def test_a_temperature_changes_no_prediction_of_images():
    images, y = torch.randint(0, 256, (40, 49), dtype=torch.uint8), [0, 1] * 20
    off = CoPE("mlp", hidden=8, memory_size=20, device="cpu", calibration="none")
    on = CoPE("mlp", hidden=8, memory_size=20, device="cpu", calibration="temperature")
    for learner in (off, on):
        learner.observe(images[:20], y[:20])
        learner.observe(images[20:], y[20:])
    assert off.calibration is None and on.calibration.sharpness != 0
    assert off.predict(images) == on.predict(images)


def embeddings(count=400, seed=0):
    """Three overlapping classes of very different size, as vectors."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), count, replacement=True, generator=generator)
    centres = torch.eye(3, 16, dtype=torch.float32)
    return centres[y] + 0.5 * torch.randn(count, 16, generator=generator), y.tolist()


def test_the_prior_of_embeddings_is_the_share_of_their_class():
    x, y = embeddings()
    learner = CoPE("identity", memory_size=60, device="cpu")
    assert learner.settings.calibration is None
    for start in range(0, 400, 10):
        learner.observe(x[start : start + 10], y[start : start + 10])
    counts = [y.count(label) for label in learner.classes]
    assert learner.options.calibration == "prior"
    np.testing.assert_allclose(np.exp(learner.calibration.biases) - 1, counts)
    scores = (learner.scores(x) * np.exp(learner.calibration.sharpness)).exp() * torch.tensor(counts).add(1)
    torch.testing.assert_close(
        torch.from_numpy(learner.predict_proba(x)), scores / scores.sum(1, keepdim=True), atol=1e-5, rtol=0
    )


def test_the_prior_of_embeddings_makes_confidence_true_and_predictions_better():
    x, y = embeddings(1500)
    right, sure = {}, {}
    for kind in ("none", "prior"):
        learner = CoPE("identity", memory_size=200, device="cpu", calibration=kind)
        right[kind], sure[kind] = [], []
        for start in range(0, 1500, 10):
            part = slice(start, start + 10)
            if start > 300:
                p = learner.predict_proba(x[part])
                best = (learner.classes[slot] for slot in p.argmax(1))
                right[kind] += [label == truth for label, truth in zip(best, y[part], strict=True)]
                sure[kind] += p.max(1).tolist()
            learner.observe(x[part], y[part])
    assert np.mean(right["prior"]) > np.mean(right["none"]) + 0.02
    assert abs(np.mean(right["prior"]) - np.mean(sure["prior"])) < 0.05


def test_the_prior_travels_with_state_merge_and_forget(tmp_path):
    x, y = embeddings(120)
    first, second = (CoPE("identity", memory_size=30, device="cpu") for _ in range(2))
    first.observe(x[:60], y[:60])
    second.observe(x[60:], [label + 1 for label in y[60:]])
    first.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    for each in (first, again):
        each.observe(x[60:], y[60:])
    assert same_state(first.state_dict(), again.state_dict())
    first.merge(second)
    told = y + [label + 1 for label in y[60:]]
    assert first.calibration.counts.tolist() == [told.count(label) for label in first.classes]
    first.forget(first.classes[0])
    assert first.calibration.counts.tolist() == [told.count(label) for label in first.classes]


def test_a_state_with_impossible_counts_is_refused():
    x, y = embeddings(60)
    learner = CoPE("identity", memory_size=30, device="cpu")
    learner.observe(x, y)
    state = learner.state_dict()
    for counts in ([-1.0, 2.0, 3.0], [1.0, 2.0]):
        forged = {**state, "calibration.counts": torch.tensor(counts, dtype=torch.float64)}
        with pytest.raises(CheckpointError, match="count of at least 0 for each class"):
            learner.load_state_dict(forged)
    assert same_state(learner.state_dict(), state)


@pytest.mark.parametrize(("name", "value"), [("sharpness", 1e9), ("biases", 1e300)])
def test_a_state_with_an_impossible_temperature_or_bias_is_refused(name, value):
    learner = CoPE("mlp", hidden=8, memory_size=20, device="cpu")
    learner.observe(torch.randn(8, 4), [0, 1] * 4)
    state = learner.state_dict()
    forged = {**state, f"calibration.{name}": torch.full_like(state[f"calibration.{name}"], value)}
    with pytest.raises(CheckpointError, match="a temperature or biases that no samples lead to"):
        learner.load_state_dict(forged)
    assert same_state(learner.state_dict(), state)


def test_large_embeddings_are_scored_now_and_then():
    learner = CoPE("identity", memory_size=4, device="cpu")
    learner.observe(torch.randn(2, 512, generator=torch.Generator().manual_seed(0)), ["a", "b"])
    due = []
    for samples in range(2, 900):
        learner.samples = samples
        if is_due(learner, 1):
            due.append(samples)
    assert due == [*range(2, 512), *range(575, 900, 64)]  # the first 2¹⁸ numbers, then one of every 64
