"""The temperature of images: fitted to new samples and exemplars as a step scores them."""

import json

import numpy as np
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE, load, stream
from everlearn.checkpoint import CheckpointError
from everlearn.core.replay_calibration import (
    EARLY,
    EVERY,
    EVERY_LATER,
    FIRM,
    RECENT,
    batch_is_used,
    combined_sharpness,
    newton_step,
)
from everlearn.evaluation.calibration import expected_calibration_error
from everlearn.learners.cope_ce import CoPECE
from everlearn.learners.cope_plus import CoPEPlus


def drawn(count, classes=4, seed=0):
    """Scores that are true log-probabilities of classes, and labels drawn from them."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(count, classes, generator=generator, dtype=torch.float64)
    slots = torch.multinomial(scores.softmax(1), 1, generator=generator)[:, 0]
    return scores.numpy(), slots.numpy()


def slow_step(fits, scores, slots, new):
    """The same sample by sample, with torch's derivatives."""
    inner, outer = set(slots[:new].tolist()), set(slots[new:].tolist())
    groups = [
        list(range(new, len(slots))),
        [i for i in range(new, len(slots)) if int(slots[i]) in inner],
        [i for i in range(new) if int(slots[i]) in outer],
    ]
    found = np.zeros((3, 3))
    for place, group in enumerate(groups):
        slope, spread = 0.0, 0.0
        for i in group:
            sharpness = torch.tensor(fits[0, place], requires_grad=True)
            p = (sharpness.exp() * torch.from_numpy(scores[i])).log_softmax(0)
            slope += float(torch.autograd.grad(p[int(slots[i])], sharpness, retain_graph=True)[0])
            for c in range(scores.shape[1]):  # Σ p_c (∂ log p_c)²
                score = torch.autograd.grad(p[c], sharpness, retain_graph=True)[0]
                spread += float(p[c].detach().exp() * score**2)
        found[2, place] = fits[2, place] + len(group)
        recent = max(RECENT[place], found[2, place] / 8)
        found[1, place] = (1 - 1 / recent) ** len(group) * fits[1, place] + spread
        step = max(min(slope / (found[1, place] + FIRM), 0.5), -0.5)
        found[0, place] = fits[0, place] + step
    return found


def test_a_step_is_newtons_on_the_likelihood_of_each_group():
    scores, slots = drawn(12)
    fits = np.array([[0.3, -0.2, 0.5], [3.0, 0.0, 8.0], [900.0, 3.0, 0.0]])
    np.testing.assert_allclose(newton_step(fits, scores, slots, 5), slow_step(fits, scores, slots, 5))


@pytest.mark.parametrize("factor", [0.4, 3.0])
def test_the_temperature_of_distorted_scores_is_found(factor):
    fits, (scores, slots) = np.zeros((3, 3)), drawn(6000)
    for start in range(0, 6000, 20):
        fits = newton_step(fits, factor * scores[start : start + 20], slots[start : start + 20], 10)
    assert np.exp(combined_sharpness(fits)) == pytest.approx(1 / factor, rel=0.3)


def test_exemplars_that_are_known_by_heart_do_not_make_it_sure():
    fits, found, (scores, slots) = np.zeros((3, 3)), [], drawn(6000)
    for start in range(0, 6000, 20):
        part, labels = scores[start : start + 20].copy(), slots[start : start + 20]
        part[np.arange(10, 20), labels[10:]] += 1.5  # the exemplars
        fits = newton_step(fits, part, labels, 10)
        found.append((fits[0, 0], combined_sharpness(fits)))
    alone, corrected = np.mean(found[100:], 0)
    assert alone > 0.5 and abs(corrected) < 0.2


def images(count=120, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % 3
    x = torch.randint(0, 120, (count, 49), generator=generator)
    x[torch.arange(count), y] += 130
    return x.to(torch.uint8), y.tolist()


def taught(x, y, learner=None, **settings):
    learner = learner or CoPE("mlp", hidden=16, memory_size=30, device="cpu", **settings)
    for start in range(0, len(x), 4):
        learner.observe(x[start : start + 4], y[start : start + 4])
    return learner


def test_probabilities_of_test_images_are_true_without_any_setting():
    s = stream("split-digits", seed=0)
    learner = CoPE(device="cpu")
    for batch in s:
        learner.observe(batch.x, batch.y)
    sure, right = [], []
    for x, y in (s.tests[i] for i in range(len(s.tests))):
        p = learner.predict_proba(x)
        sure += p.max(1).tolist()
        right += [learner.classes[slot] == label for slot, label in zip(p.argmax(1), y.tolist(), strict=True)]
    assert expected_calibration_error(sure, right) < 0.06  # 0.21 without


def test_it_changes_probabilities_and_nothing_else():
    x, y = images()
    on, off = taught(x, y), taught(x, y, calibration="none")
    assert on.options.calibration == "replay" and off.calibration is None
    assert on.calibration.sharpness != 0
    assert on.predict(x) == off.predict(x)
    expected = (np.exp(on.calibration.sharpness) * off.scores(x.float() / 255)).softmax(1)
    np.testing.assert_allclose(on.predict_proba(x), expected.detach(), atol=1e-5)
    mine, others = on.state_dict(), off.state_dict()
    names = [name for name in mine if not name.startswith(("calibration.", "meta"))]
    assert same_state({name: mine[name] for name in names}, {name: others[name] for name in names})


def test_it_travels_with_state_snapshot_merge_and_forget(tmp_path):
    x, y = images()
    learner = taught(x[:60], y[:60])
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    snapshot, before = learner.snapshot(), learner.predict_proba(x)
    for each in (learner, again):
        taught(x[60:], y[60:], each)
    assert same_state(learner.state_dict(), again.state_dict())
    assert again.input_kind == "images" and again.calibration.fits.any()
    np.testing.assert_array_equal(snapshot.predict_proba(x), before)
    learner.merge(taught(x[:12], [label + 1 for label in y[:12]]))
    learner.forget(0)
    assert learner.predict_proba(x).shape == (120, 3)


def test_a_state_without_it_is_loaded_as_it_was():
    x, y = images(40)
    learner = taught(x, y)
    old = {name: part for name, part in learner.state_dict().items() if not name.startswith("calibration.")}
    meta = json.loads(old["meta"])
    del meta["input"]
    old["meta"] = json.dumps(meta)
    again = CoPE("mlp", hidden=16, memory_size=30, device="cpu")
    again.load_state_dict(old)
    assert again.calibration is None and again.predict(x) == learner.predict(x)
    learner.merge(again)


def test_a_state_with_impossible_fits_is_refused():
    x, y = images(40)
    learner = taught(x, y)
    state = learner.state_dict()
    for fits in (
        torch.zeros(3),
        torch.tensor([[0.0] * 3, [-1.0] * 3, [0.0] * 3]),
        torch.full((3, 3), torch.nan),
    ):
        with pytest.raises(CheckpointError):
            learner.load_state_dict({**state, "calibration.fits": fits.double()})
    assert same_state(learner.state_dict(), state)


def test_one_batch_of_several_is_used_and_none_that_is_learnt_again():
    x, y = images(4 * EVERY)
    learner, used = CoPE("mlp", hidden=8, memory_size=20, device="cpu"), []
    for number in range(EVERY):
        part = slice(4 * number, 4 * number + 4)
        learner.observe(x[part], y[part])
        used.append(bool(learner.calibration.fits.any()))
        learner.revisit(x[part], y[part])
    assert used == [False] * (EVERY - 1) + [True]
    fits = learner.calibration.fits
    learner.revisit(x, y)
    assert learner.calibration.fits is fits and not learner.calibration.due


def test_fewer_batches_are_used_later():
    learner = CoPE("mlp", device="cpu")
    for samples, every in ((0, EVERY), (EARLY, EVERY_LATER)):
        learner.samples = samples
        used = []
        for learner.batches in range(3 * every):
            used.append(batch_is_used(learner))
        assert used == ([False] * (every - 1) + [True]) * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: CoPE("mlp", hidden=8, device="cpu", averaging=0.9, **more),
        lambda **more: CoPE("mlp", hidden=8, device="cpu", recalibrate=True, **more),
        lambda **more: CoPE("mlp", hidden=8, device="cpu", augmentation="shift", width=7, **more),
        lambda **more: CoPE(torch.nn.Linear(49, 4), device="cpu", **more),
        lambda **more: CoPEPlus("mlp", hidden=8, device="cpu", augmentation="none", **more),
        lambda **more: CoPECE("mlp", hidden=8, device="cpu", **more),
    ],
)
def test_learners_that_predict_in_another_way_do_without_and_refuse_it(make):
    x, y = images(8)
    learner = make()
    learner.observe(x, y)
    assert learner.calibration is None
    asked = make(calibration="replay")
    with pytest.raises(ValueError, match="set calibration to 'temperature'"):
        asked.observe(x, y)
    assert asked.sample_shape is None and not asked.classes


def test_mirror_images_count_in_calibrated_scores():
    x, y = images(40)
    plain, both = (taught(x, y, calibration="temperature", mirrored=m, width=7) for m in (False, True))
    assert not np.allclose(plain.predict_proba(x), both.predict_proba(x))
