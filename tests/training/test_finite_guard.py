"""A batch that would make anything infinite or NaN is undone by a mask on the device."""

import pytest
import torch
from torch import nn

from everlearn import learners
from everlearn.core.learner import Learner
from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite

NAMES = ["cope", "cope+", "cope-ce", "reservoir", "finetune"]


def network():
    """A network whose steps the host does not check by itself outside of a transaction."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.LeakyReLU(), nn.Linear(16, 8))


def taught(name, device="cpu", batches=6, **settings):
    # Standardised rows would never be too large.
    chosen = {"hidden": 64, "standardise": False} | settings
    learner = learners.find(name)(network(), seed=0, device=device, **chosen)
    for n in range(batches):
        learner.observe(*batch(n))
    return learner


def batch(n):
    generator = torch.Generator().manual_seed(n)
    return torch.randn(6, 8, generator=generator), [0, 1, 2, 0, 1, 2]


def too_large():
    """A finite batch whose sums are not."""
    return torch.full((6, 8), 3e38), [0, 1, 2, 0, 1, 2]


def on_device(learner: Learner):
    held = [part.clone() for part in learner.learnt_tensors()]
    return held if learner.memory is None else [*held, learner.memory.rows[:-1].clone()]


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_is_not_finite_leaves_everything_on_the_device_as_it_was(name):
    learner = taught(name, memory_size=9) if name != "finetune" else taught(name)
    guard, before = FiniteGuard(learner), on_device(learner)
    x, y = too_large()
    guard(x, learner.plan(y).on(learner.device))
    assert bool(guard.refused)
    for part, kept in zip(on_device(learner), before, strict=True):
        assert torch.equal(part, kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_guarded_batch_is_learnt_as_any_other(name):
    plain, guarded = taught(name), taught(name)
    x, y = batch(7)
    for learner, learn in ((plain, plain.learn), (guarded, FiniteGuard(guarded))):
        learn(x, learner.plan(y).on(learner.device))
    for part, other in zip(on_device(plain), on_device(guarded), strict=True):
        assert torch.equal(part, other)


def test_samples_of_a_refused_batch_can_stay_in_the_memory():
    learner = taught("cope", memory_size=9)
    x, y = too_large()
    plan = learner.plan(y).on(learner.device)
    FiniteGuard(learner, rows=False)(x, plan)
    stored = plan.keep < 9
    assert torch.equal(learner.memory.rows[plan.keep[stored]], x[stored])


@pytest.mark.parametrize("call", ["observe", "predict", "state_dict", "snapshot", "forget"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("standardise", [False, True])
def test_a_refused_batch_is_reported_at_the_next_call_and_has_changed_nothing(name, call, standardise, gpu):
    learner = taught(name, gpu, standardise=standardise)
    assert learner.graphs._graphs
    with torch.no_grad():
        learner.parameters[0].mul_(1e35)  # finite, but not for long
    before = learner.state_dict()
    learner.observe(1e12 * batch(7)[0].sign(), batch(7)[1])
    arguments = {"observe": batch(8), "predict": batch(8)[:1], "forget": (1,)}
    with pytest.raises(NotFinite, match="the batch before this call"):
        getattr(learner, call)(*arguments.get(call, ()))
    after = learner.state_dict()
    assert after.keys() == before.keys()
    for key, part in before.items():
        assert part == after[key] if key == "meta" else torch.equal(part, after[key]), key
    with torch.no_grad():
        learner.parameters[0].div_(1e35)
    learner.observe(*batch(8))
    assert learner.batches == 7


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_around_the_launch_leaves_the_state_of_before_or_after(moment, gpu, monkeypatch):
    learner, other = taught("cope", gpu), taught("cope", gpu)
    replay = torch.cuda.CUDAGraph.replay

    def interrupted(graph):
        if moment == "after":
            replay(graph)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda.CUDAGraph, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learner.observe(*batch(7))
    if moment == "after":
        other.observe(*batch(7))
    for n in (8, 9):
        learner.observe(*batch(n))
        other.observe(*batch(n))
    assert learner.batches == other.batches
    for key, part in learner.state_dict().items():
        assert key == "meta" or torch.equal(part, other.state_dict()[key]), key


def test_one_outlier_moves_a_softmax_learner_no_further_than_the_clip(gpu):
    learner = taught("finetune", gpu, clip=0.5, learning_rate=0.1)
    before = [part.clone() for part in learner.parameters]
    x, y = batch(7)
    x[0, 0] = 1e5
    learner.observe(x, y)
    moved = sum((part - old).square().sum() for part, old in zip(learner.parameters, before, strict=True))
    assert 0 < float(moved.detach().sqrt()) <= 0.5 * (1 + 1e-4)
