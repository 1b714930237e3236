"""Calibration: the better of two networks gets the weight, and probabilities become true."""

import numpy as np
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE, load
from everlearn.core.calibration import Calibration
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


def test_it_is_off_for_images_and_can_be_switched_on():
    images, y = torch.randint(0, 256, (40, 49), dtype=torch.uint8), [0, 1] * 20
    off = CoPE("mlp", hidden=8, memory_size=20, device="cpu")
    on = CoPE("mlp", hidden=8, memory_size=20, device="cpu", calibration="temperature")
    for learner in (off, on):
        learner.observe(images[:20], y[:20])
        learner.observe(images[20:], y[20:])
    assert off.calibration is None and on.calibration.sharpness != 0
    assert off.predict(images) == on.predict(images)
