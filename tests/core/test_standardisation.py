"""Online standardisation: exact, robust, part of everything a learner has, and off for images."""

import numpy as np
import pytest
import torch
from small_learners import every_learner, make, same_state, teach

from everlearn import CoPE, load
from everlearn.core.standardisation import MEMORY, Standardisation

CPU = torch.device("cpu")


def rows(count=200, seed=0):
    """Two classes that differ in a feature of small numbers, beside one of large numbers."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (count,), generator=generator)
    noise = torch.randn(count, 3, generator=generator)
    return noise * torch.tensor([0.001, 1.0, 5000.0]) + y[:, None] * torch.tensor(
        [0.004, 0.0, 0.0]
    ), y.tolist()


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_mean_and_variance_are_those_of_all_samples(batch):
    x, _ = rows()
    scale = Standardisation((3,), CPU)
    for part in torch.split(x, batch):
        scale.update(part)
    assert scale.count == 200
    np.testing.assert_allclose(scale.mean, x.double().mean(0), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scale.variance, x.double().var(0, correction=0), rtol=1e-9)
    z = scale(x)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(z.std(0, correction=0), 1, atol=1e-5)


def test_a_wild_value_is_bounded_and_soon_forgotten():
    x, _ = rows()
    calm, wild = Standardisation((3,), CPU), Standardisation((3,), CPU)
    for scale in (calm, wild):
        scale.update(x)
    wild.update(torch.tensor([[1e20, -1e20, 0.0]]))
    assert (wild.variance.sqrt() < 2 * calm.variance.sqrt()).all()
    assert wild(torch.tensor([[1e20, -1e20, 0.0]]))[0, :2].tolist() == [6, -6]


def test_a_constant_feature_is_centred_and_followed_when_it_moves():
    scale = Standardisation((1,), CPU)
    scale.update(torch.full((50, 1), 3.0))
    assert scale(torch.full((1, 1), 3.0)).item() == 0
    scale.update(torch.tensor([[4.0]]))
    assert scale.variance.item() > 0


def test_a_scale_that_changes_is_followed():
    scale = Standardisation((1,), CPU)
    draws = torch.randn(5 * MEMORY, 1, generator=torch.Generator().manual_seed(0))
    for part in torch.split(draws, 100):
        scale.update(part)
    for part in torch.split(10 + 3 * draws, 100):
        scale.update(part)
    assert scale.mean.item() == pytest.approx(10, abs=0.3)
    assert scale.variance.sqrt().item() == pytest.approx(3, abs=0.3)


def test_rows_of_any_scale_are_learnt_without_scaling():
    x, y = rows(400)
    learner = CoPE("mlp", hidden=16, memory_size=50, seed=0, device="cpu")
    for start in range(0, 400, 5):
        learner.observe(x[start : start + 5], y[start : start + 5])
    test_x, test_y = rows(200, seed=1)
    assert np.mean(np.array(learner.predict(test_x)) == test_y) > 0.9
    assert set(map(tuple, learner.memory.samples()[0].tolist())) <= set(map(tuple, x.tolist()))


@every_learner
@pytest.mark.parametrize(
    "images",
    [
        torch.randint(0, 256, (4, 49), dtype=torch.uint8),
        torch.rand(4, 1, 5, 5),
        torch.randint(0, 256, (4, 64)).float() * torch.tensor([0.0, 1.0]).repeat(32),
        torch.rand(4, 64) * torch.tensor([0.0, 1.0]).repeat(32),
    ],
    ids=["bytes", "pictures", "flat, to 255", "flat, to 1"],
)
def test_images_are_never_standardised(name, images):
    learner = make(name)
    teach(learner, images, [0, 1, 0, 1])
    assert learner.standardisation is None


@every_learner
def test_rows_are_standardised_by_every_learner_that_can(name):
    learner, off = make(name), make(name, standardise=False)
    for each in (learner, off):
        teach(each, torch.randn(6, 4) + 100, ["a", "b"] * 3)
    assert (learner.standardisation is not None) == learner.standardises
    assert off.standardisation is None
    if learner.standardises:
        assert learner.standardisation.count == 6
        learner.revisit(torch.randn(6, 4), ["a", "b"] * 3, 0)
        assert learner.standardisation.count == 6


def test_the_scale_travels_with_state_snapshot_and_merge(tmp_path):
    x, y = rows()
    learner, other = (CoPE("mlp", hidden=8, memory_size=20, seed=seed, device="cpu") for seed in (0, 1))
    for each, part in ((learner, slice(0, 80)), (other, slice(80, 200))):
        for start in range(part.start, part.stop, 5):
            each.observe(x[start : start + 5], y[start : start + 5])
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    assert same_state(learner.state_dict(), again.state_dict())
    np.testing.assert_array_equal(learner.predict_proba(x), again.predict_proba(x))
    snapshot, before = learner.snapshot(), learner.predict_proba(x)
    merged_mean = x.double().mean(0)
    learner.merge(other)
    assert learner.standardisation.count == 200
    np.testing.assert_allclose(learner.standardisation.mean, merged_mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(snapshot.predict_proba(x), before)


def test_an_interrupted_batch_leaves_the_scale_as_it_was(monkeypatch):
    x, y = rows(20)
    learner = CoPE("mlp", hidden=8, memory_size=20, device="cpu")
    learner.observe(x, y)
    before = learner.state_dict()
    monkeypatch.setattr(learner, "step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        learner.observe(100 * x, y)
    assert same_state(before, learner.state_dict())


def test_a_state_from_before_there_was_a_scale_is_loaded_without():
    """An older state names neither the kind of input nor the newer settings."""
    import json

    x, y = rows(20)
    old = CoPE("mlp", hidden=8, memory_size=20, device="cpu", standardise=False, half_life=0, averaging=0.0)
    old.input_kind = "plain"  # as all inputs were
    old.observe(x, y)
    state = old.state_dict()
    meta = json.loads(state["meta"])
    newer = (
        "standardise",
        "half_life",
        "blend",
        "new_share",
        "calibration",
        "averaging",
        "pseudo_prototypes",
    )
    for name in newer:
        del meta["settings"][name]
    meta["settings"] |= {"averaging": 0.0, "pseudo_prototypes": True}  # their defaults then
    state["meta"] = json.dumps(meta)
    learner = CoPE("mlp", hidden=8, memory_size=20, device="cpu")
    learner.load_state_dict(state)
    assert learner.standardisation is None and learner.average is None
    np.testing.assert_array_equal(learner.predict_proba(x), old.predict_proba(x))
    learner.observe(x, y)
    old.observe(x, y)
    assert torch.equal(learner.state_dict()["prototypes"], old.state_dict()["prototypes"])


def test_the_log_says_what_was_chosen_in_one_line(caplog):
    with caplog.at_level("INFO", logger="everlearn"):
        CoPE("mlp", hidden=8, device="cpu", half_life=0).observe(torch.randn(4, 3), [0, 1, 0, 1])
    (line,) = caplog.messages
    assert line.startswith("CoPE: the samples look like rows, so it uses standardise=True, replayed=9")
    assert "half_life" not in line
    caplog.clear()
    with caplog.at_level("INFO", logger="everlearn"):
        CoPE("mlp", hidden=8, device="cpu").observe(torch.zeros(2, 49, dtype=torch.uint8), [0, 1])
        CoPE(torch.nn.Linear(49, 4), device="cpu").observe(torch.zeros(2, 49, dtype=torch.uint8), [0, 1])
    (line,) = caplog.messages
    assert (
        line == "CoPE: the samples look like images, so it uses calibration=replay; set these to change them"
    )
