"""Scores of a few samples with numpy: equal to torch's, for every learner and after every change of the network."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from everlearn import CoPE, learners
from everlearn.core.few_samples import scores_of_new, scores_of_one
from everlearn.core.prediction import Diverged

CLASSES = ["a", "b", "c"]


def rows(count, seed=0, features=6):
    return np.random.default_rng(seed).normal(size=(count, features)).astype(np.float32)


def trained(kind=CoPE, network="mlp", batches=20, **settings):
    learner = kind(network, seed=0, device="cpu", **settings)
    for number in range(batches):
        x = rows(6, number)
        learner.observe(x, [CLASSES[int(value > 0) + int(value > 1)] for value in x[:, 0]])
    return learner


def slowly(learner, x):
    """The probabilities by torch alone, which predicts two samples at once."""
    return learner.predict_proba(np.concatenate([x, x]))[:1]


def check(learner, count=10):
    for x in rows(count, 99)[:, None]:
        np.testing.assert_allclose(learner.predict_proba(x), slowly(learner, x), rtol=2e-5, atol=1e-6)
        best = slowly(learner, x).argmax()
        assert learner.predict(x) == [learner.classes[best]]


SETTINGS = {
    "rows": {"hidden": 16},
    "wide": {"hidden": 200},  # whose products are computed by torch
    "plain": {"hidden": 16, "averaging": 0.0, "blend": False, "calibration": "none", "standardise": False},
    "averaged": {"hidden": 16, "blend": False, "calibration": "temperature"},
    "recalibrated": {"hidden": 16, "recalibrate": True, "recalibrate_every": 3},
    "class means": {"hidden": 16, "class_means": True},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_single_sample_has_the_same_scores_as_with_torch(settings):
    learner = trained(memory_size=60, **settings)
    assert scores_of_one(learner, rows(1)) is not None
    check(learner)


@pytest.mark.parametrize("name", sorted(learners.registry()))
def test_every_learner_predicts_a_single_row_as_in_a_batch(name):
    kind = learners.find(name)
    if {"t", "tasks"} & kind.needs or kind.horizon.extent != "batch":
        pytest.skip("needs tasks")
    sizes = {"hidden": 8, "memory_size": 30, "passes": 1}
    known = {field for field in sizes if field in kind.Settings.__dataclass_fields__}
    learner = trained(kind, batches=4, **{field: sizes[field] for field in known})
    check(learner, 4)


def test_predictions_follow_every_batch_new_classes_and_an_edit_of_the_weights():
    for kind in (CoPE, learners.find("reservoir")):
        learner = kind("mlp", hidden=8, memory_size=60, seed=0, device="cpu")
        for number in range(40):  # the softmax layer grows after 16 classes
            learner.observe(rows(2, number), [number, number // 2])
            check(learner, 1)
        with torch.no_grad():
            for part in learner.network.parameters():
                part.data = part * 1.5
        check(learner, 3)


def test_after_a_step_that_failed_a_new_layer_is_forgotten_again():
    learner = trained(learners.find("reservoir"), batches=3, hidden=8, memory_size=60)
    before = [learner.predict_proba(x) for x in rows(5, 99)[:, None]]
    learner.learn, learn = lambda *_: learner.predict(rows(1)) and 1 / 0, learner.learn
    with pytest.raises(ZeroDivisionError):
        learner.observe(rows(20, 5), list(range(20)))
    learner.learn = learn
    for x, probabilities in zip(rows(5, 99)[:, None], before, strict=True):
        np.testing.assert_array_equal(learner.predict_proba(x), probabilities)


def test_copies_and_snapshots_have_their_own_weights():
    learner = trained(hidden=8, memory_size=30)
    x = rows(1, 99)
    learner.predict(x)
    frozen, twin, probabilities = learner.snapshot(), copy.deepcopy(learner), learner.predict_proba(x)
    for number in range(5):
        learner.observe(rows(6, number), ["a"] * 6)
    assert not np.array_equal(learner.predict_proba(x), probabilities)
    np.testing.assert_array_equal(frozen.predict_proba(x), probabilities)
    np.testing.assert_array_equal(twin.predict_proba(x), probabilities)


def test_a_method_with_scores_of_its_own_is_not_bypassed():
    class Backwards(CoPE):
        def scores_of(self, output):
            return -super().scores_of(output)

    class Constant(CoPE):
        def scores(self, x):
            return torch.tensor([[0.0, 1.0, 0.0]]).expand(len(x), -1)

    check(trained(Backwards, hidden=8, memory_size=30))
    learner = trained(Constant, hidden=8, memory_size=30, blend=False, calibration="none")
    assert learner.predict(rows(1)) == [learner.classes[1]]


@pytest.mark.parametrize(
    "network",
    [nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)), "identity"],
    ids=["own", "identity"],
)
def test_a_network_that_is_no_chain_of_linear_layers_is_left_to_torch(network):
    learner = trained(network=network, memory_size=30)
    assert scores_of_one(learner, rows(1)) is None
    check(learner)


@pytest.mark.parametrize("count", [1, 3, 16])
def test_the_scores_of_new_samples_are_those_of_torch(count):
    learner = trained(hidden=16, memory_size=60)
    x = torch.from_numpy(rows(count, 7))
    with torch.no_grad():
        expected = [
            learner.scores_with(network, learner.prepared(x))
            for network in (learner.network, learner.average.network)
        ]
    for mine, theirs in zip(scores_of_new(learner, x), expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-5, atol=1e-5)
    assert scores_of_new(learner, torch.zeros(17, 6)) is None


@pytest.mark.parametrize("kind", [np.float64, list, torch.tensor])
def test_a_row_may_come_as_float64_a_list_or_a_tensor(kind):
    learner = trained(hidden=8, memory_size=30)
    x = rows(1, 3)
    given = x.astype(np.float64) if kind is np.float64 else x.tolist() if kind is list else torch.tensor(x)
    assert learner.predict(given) == learner.predict(x)


@pytest.mark.parametrize("x", [[[math.nan] * 6], [[1e13] * 6], [[0.0] * 5], [0.0] * 6])
def test_an_invalid_row_is_refused_as_in_a_batch(x):
    learner = trained(hidden=8, memory_size=30)
    with pytest.raises(ValueError, match=r"CoPE\.predict got"):
        learner.predict(np.array(x, np.float32))


def test_a_network_that_has_diverged_says_so():
    learner = trained(hidden=8, memory_size=30)
    with torch.no_grad():
        learner.network[-1].weight.fill_(math.nan)
    with pytest.raises(Diverged):
        learner.predict(rows(1))


def test_a_single_sample_that_is_a_negative_view_is_predicted():
    learner = CoPE("mlp", hidden=8, memory_size=8, device="cpu")
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    negative = torch.complex(torch.zeros(6, 4), -x).conj().imag
    assert negative.is_neg() and torch.equal(negative, x)
    for _ in range(2):
        learner.observe(negative, ["a", "b"] * 3)
    assert learner.predict(negative[:1]) == learner.predict(x[:1])
