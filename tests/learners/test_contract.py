"""The contract of every learner. Learners are found automatically: a new file in `learners/` is tested here."""

import numpy as np
import pytest
import torch
from emulated_graph import captured_functions, eager
from small_learners import (
    NAMES,
    OWN,
    batches,
    every_learner,
    first_digits,
    make,
    on_digits,
    same_state,
    taught,
    teach,
)
from torch import nn

from everlearn import Evaluator, load, run, stream
from everlearn.checkpoint import CheckpointError
from everlearn.core.fixed_features import FixedFeatureLearner
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run
from everlearn.engine.options import RunOptions
from everlearn.learners import registry
from everlearn.streams.horizon import Horizon
from everlearn.testing import CHECKS, SMALL, Subject

SHORTER = {"curl": Horizon("task", epochs=2), "iid-offline": Horizon("stream", epochs=2)}


@every_learner
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_promises_of_every_learner(name, check):
    check(Subject(registry()[name], settings={**SMALL, **OWN.get(name, {})}))


@every_learner
def test_it_learns_two_blobs(name):
    learner = make(name)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        y = torch.randint(0, 2, (10,), generator=generator)
        teach(learner, torch.randn(10, 6, generator=generator) + 4.0 * y[:, None], y)
    learner.end_horizon()
    y = torch.randint(0, 2, (200,), generator=generator)
    x = torch.randn(200, 6, generator=generator) + 4.0 * y[:, None]
    assert np.mean(np.array(learner.predict(x)) == y.numpy()) > 0.95


@every_learner
def test_evaluation_every_batch_changes_nothing(name):
    ends = []
    for evaluator in (Evaluator(every=1), Evaluator()):
        source = stream("split-digits", seed=0, imbalance=2)
        learner = on_digits(name, source, seed=0)
        run(learner, source, evaluator, horizon=SHORTER.get(name))
        ends.append(learner.state_dict())
    assert same_state(*ends)


@pytest.mark.parametrize("name", [name for name in NAMES if "t" in registry()[name].needs])
@pytest.mark.parametrize("t", [None, "first", 1.5])
def test_a_learner_that_needs_t_says_so_and_does_not_change(name, t):
    learner = taught(name)
    before = learner.state_dict()
    for teaching in (learner.observe, learner.revisit):
        with pytest.raises(ValueError, match="needs t, the task of the batch, as an integer, not"):
            teaching(torch.randn(2, 6), ["a", "b"], t)
    assert same_state(before, learner.state_dict())


@every_learner
def test_a_bad_first_batch_leaves_the_learner_as_it_was(name):
    learner = make(name, network=nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))
    before = learner.state_dict()
    for x, y in (
        (torch.zeros(1, 6), ["a"]),
        (torch.zeros(3, 7), ["a", "b", "c"]),
        (torch.zeros(2, 6), ["a"]),
    ):
        with pytest.raises(ValueError):
            teach(learner, x, y)
        assert same_state(before, learner.state_dict())
        assert learner.classes == []
    teach(learner, torch.randn(3, 6), ["a", "b", "c"])
    assert learner.classes == ["a", "b", "c"]


@every_learner
def test_a_batch_can_be_revisited_and_is_then_neither_stored_nor_counted(name):
    learner = taught(name)
    counts = learner.memory.counts() if learner.memory else {}
    before = learner.state_dict()
    x, y = next(batches(seed=5))
    t = 0 if "t" in learner.needs else None
    learner.revisit(x, y, t)
    assert (learner.batches, learner.samples) == (6, 30)
    assert (learner.memory.counts() if learner.memory else {}) == counts
    changed = [
        k for k, part in learner.state_dict().items() if k != "meta" and not torch.equal(part, before[k])
    ]
    # gdumb learns when it is asked for a prediction, and only from its memory; learners of fixed features have
    # counted every sample of the batch, and train no network
    counted = isinstance(learner, FixedFeatureLearner)
    assert any(key.startswith("network.") for key in changed) == (name != "gdumb" and not counted)
    assert not (counted and changed)
    assert not any(key.startswith("memory.") for key in changed)
    with pytest.raises(ValueError, match="revisit got the label 'never', which was never observed"):
        learner.revisit(x, ["never"] * 5, t)


@every_learner
def test_a_network_of_ones_own_is_trained_saved_and_loaded(name, tmp_path):
    def network():
        return nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 4))

    learner = make(name, network=network())
    for i, (x, y) in enumerate(batches()):
        teach(learner, x, y, i // 2)
    learner.save(tmp_path / "own")
    with pytest.raises(CheckpointError, match="saved with your own network: use load"):
        load(tmp_path / "own")
    other = load(tmp_path / "own", network=network(), device="cpu")
    assert same_state(learner.state_dict(), other.state_dict())
    foreign = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 4))
    weights = [part.clone() for part in foreign.parameters()]
    with pytest.raises(CheckpointError, match="in the state, .* in the network"):
        load(tmp_path / "own", network=foreign, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(weights, foreign.parameters(), strict=True))


@every_learner
def test_the_state_of_another_learner_is_refused_and_nothing_is_loaded(name):
    learner = taught(name)
    before = learner.state_dict()
    others = [other.name for other in registry().values() if other.name != name]
    bad = [
        taught(others[0]).state_dict(),
        {**before, "meta": before["meta"].replace('"format": 2', '"format": 99')},
        {"meta": "no json"},
        {},
        {key: part for key, part in before.items() if not key.startswith("network.")},
        {key: part for key, part in before.items() if key != "generator"},
        {**before, "a part of nobody's": torch.zeros(1)},
    ]
    for state in bad:
        with pytest.raises(CheckpointError):
            learner.load_state_dict(state)
        assert same_state(before, learner.state_dict())


@every_learner
def test_its_docstring_says_what_it_is_shows_an_example_and_cites(name):
    text = registry()[name].__doc__
    assert ">>>" in text
    assert any(f"{year}." in text for year in range(1980, 2030))


@every_learner
def test_a_wrong_setting_is_refused_in_a_sentence(name):
    with pytest.raises(TypeError, match="has no setting 'learning_rat'; did you mean 'learning_rate'"):
        registry()[name](learning_rat=0.1)
    with pytest.raises(ValueError, match="learning_rate must be above 0, not -1"):
        registry()[name](learning_rate=-1)
    with pytest.raises(ValueError, match="learning_rate must be a number, not 'fast'"):
        registry()[name](learning_rate="fast")
    with pytest.raises(ValueError, match=r"iterations must be a whole number, not 2\.5"):
        registry()[name](iterations=2.5)
    assert type(registry()[name](iterations=np.int64(2)).settings.iterations) is int


@every_learner
def test_what_it_can_never_work_with_is_refused_when_it_is_made(name):
    kind = registry()[name]
    for network, sentence in {
        "mpl": "there is no network 'mpl'; did you mean 'mlp'?",
        3: "a network is a name or an nn.Module, not 3",
        nn.Linear: "not the class Linear, give an object",
    }.items():
        with pytest.raises(ValueError) as caught:
            kind(network)
        assert sentence in str(caught.value)
    with pytest.raises(ValueError, match="a seed is a whole number of at most 64 bits, not 'x'"):
        kind(seed="x")
    with pytest.raises(ValueError, match=r"device is auto, cpu, cuda, mps or another of torch's, not 'tpu'"):
        kind(device="tpu")
    with pytest.raises(ValueError, match="device is 'cuda:99', but torch finds"):
        kind(device="cuda:99")


@every_learner
def test_a_network_that_has_diverged_is_not_asked_in_silence(name):
    learner = taught(name)
    learner.end_horizon()
    with torch.no_grad():
        for part in learner.predictor.parameters():
            part.fill_(float("nan"))
    for method in (learner.predict, learner.predict_proba):
        with pytest.raises(RuntimeError, match="its network has diverged"):
            method(torch.randn(2, 6))


@every_learner
def test_a_refusal_names_the_method_that_was_called(name):
    learner = taught(name)
    with pytest.raises(ValueError, match=rf"{type(learner).__name__}\.revisit got 2 samples but 1 label$"):
        learner.revisit(torch.zeros(2, 6), ["a"], 0)
    with pytest.raises(ValueError, match=rf"{type(learner).__name__}\.predict_proba got x of shape"):
        learner.predict_proba(torch.zeros(2, 9))


def on_gpu(name, gpu, network="mlp", seed=0, **settings):
    # At a low rate the differences of rounding stay small; with the largest ones they grow a million times.
    small = {"learning_rate": 0.01, "hidden": 64} | settings
    return registry()[name](network, seed=seed, device=gpu, **small)


def assert_alike(learner, other):
    for key, part in learner.state_dict().items():
        if key != "meta":
            torch.testing.assert_close(part, other.state_dict()[key], rtol=1e-3, atol=1e-3)


def can_be_captured(learner):
    if not learner.tensors_alone and not learner.tensor_parts:
        pytest.skip("no part of its step is tensors alone, so that it runs eagerly")
    return learner


@every_learner
def test_a_step_is_captured_as_a_cuda_graph_and_agrees_with_the_eager_one(name, gpu):
    captured, other = can_be_captured(on_gpu(name, gpu)), eager(on_gpu(name, gpu))
    met = set()
    for x, y, t in first_digits():
        captured.observe(x, y, t)
        other.observe(x, y, t)
        met |= captured_functions(captured)
    assert met == set(captured.tensor_parts or ["learn"])
    assert_alike(captured, other)


@pytest.mark.parametrize("name", ["cope", "cope+", "icarl", "gem", "gss"])
def test_a_captured_step_of_a_convolutional_network_agrees_with_the_eager_one(name, gpu):
    captured, other = on_gpu(name, gpu, "cnn"), eager(on_gpu(name, gpu, "cnn"))
    met = set()
    for x, y, t in first_digits():
        for learner in (captured, other):
            learner.observe(x.view(-1, 1, 8, 8), y, t)
        met |= captured_functions(captured)
    assert met
    assert_alike(captured, other)


@every_learner
def test_in_a_cohort_each_member_ends_as_it_does_alone(name, gpu):
    def runs():
        for seed, rate in ((0, 0.01), (1, 0.01), (0, 0.005)):
            options = RunOptions(horizon=SHORTER.get(name))
            yield Run(on_gpu(name, gpu, seed=seed, learning_rate=rate), first_digits(seed, 100), options)

    together = list(runs())
    if shape_of(together[0]) is None:
        pytest.skip("it does not run in cohorts")
    results = Cohort(together).finish()
    for member, result, alone in zip(together, results, runs(), strict=True):
        assert alone.finish().accuracy == pytest.approx(result.accuracy, abs=0.02)
        assert_alike(alone.learner, member.learner)


@every_learner
def test_a_captured_run_resumes(name, gpu, tmp_path):
    everything = list(first_digits())
    whole, first = (can_be_captured(on_gpu(name, gpu)) for _ in range(2))
    for x, y, t in everything:
        whole.observe(x, y, t)
    for x, y, t in everything[:20]:
        first.observe(x, y, t)
    first.save(tmp_path / "half")
    second = load(tmp_path / "half", device=gpu)
    for x, y, t in everything[20:]:
        second.observe(x, y, t)
    assert_alike(whole, second)


@every_learner
def test_a_captured_learner_that_loads_an_earlier_state_learns_the_same_again(name, gpu):
    learner, everything = can_be_captured(on_gpu(name, gpu)), list(first_digits())
    for x, y, t in everything[:20]:
        learner.observe(x, y, t)
    earlier = learner.state_dict()
    after = []
    for _ in range(2):
        learner.load_state_dict(earlier)
        for x, y, t in everything[20:]:
            learner.observe(x, y, t)
        after.append(learner.state_dict())
    for key, part in after[0].items():
        assert key == "meta" or torch.allclose(part, after[1][key], rtol=1e-3, atol=1e-3), key
