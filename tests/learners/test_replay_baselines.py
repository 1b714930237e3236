"""Reservoir and CoPE-CE: batches by hand against autograd and torch's own SGD."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everlearn import run, stream
from everlearn.core.setup import add_classes
from everlearn.experiments.settings import learner as by_name
from everlearn.learners import registry
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.reservoir import ReservoirMemory

both = pytest.mark.parametrize("name", ["reservoir", "cope-ce"])


def small(name, **settings):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(3, 5), nn.Tanh())
    return registry()[name](body, device="cpu", learning_rate=0.1, memory_size=6, **settings)


@both
def test_batches_against_a_step_by_step_computation(name):
    """The same replay, then the mean over B_n and B_M together, autograd and torch.optim.SGD."""
    learner = small(name, iterations=2)
    draws = []
    original = learner.memory.draw
    learner.memory.draw = lambda count: draws.append(original(count)) or draws[-1]
    generator = torch.Generator().manual_seed(1)
    labels = [0, 1, 1]
    learner.observe(torch.randn(3, 3, generator=generator), labels)
    slow = copy.deepcopy(learner.network)
    optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
    for labels in ([1, 0, 1], [2, 2, 0, 1], [2]):
        x = torch.randn(len(labels), 3, generator=generator)
        before = learner.memory.rows.clone()
        draws.clear()
        learner.observe(x, labels)
        for rows, slots in draws:
            joint = torch.cat([x, before[rows]])
            expected = torch.tensor([learner.classes.index(y) for y in labels] + slots.tolist())
            seen = slow(joint)[:, : len(learner.classes)]
            optimiser.zero_grad()
            (sum(-seen.log_softmax(1)[i, y] for i, y in enumerate(expected)) / len(joint)).backward()
            optimiser.step()
        assert [len(rows) for rows, _ in draws] == [min(len(labels), 6)] * 2
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@both
def test_the_first_batch_is_learnt_alone(name):
    learner = small(name)
    x, y = torch.randn(4, 3), [0, 1, 0, 1]
    add_classes(learner, x, y)
    slow = copy.deepcopy(learner.network)
    optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
    learner.observe(x, y)
    cross_entropy(slow(x)[:, :2], torch.tensor(y)).backward()
    optimiser.step()
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@both
def test_the_footprint_is_the_memory(name):
    learner = small(name)
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    assert learner.footprint() == {"replay": learner.memory.nbytes()}


def test_reservoir_keeps_what_comes_and_cope_ce_shares_it_equally():
    learners = [small(name) for name in ("reservoir", "cope-ce")]
    assert [type(learner.memory) for learner in learners] == [ReservoirMemory, BalancedMemory]
    for learner in learners:
        for i in range(100):
            learner.observe(torch.randn(3, 3), ["often"] * 3 if i % 10 else ["often", "often", "rare"])
    assert learners[0].memory.counts()["often"] >= 4
    assert learners[1].memory.counts() == {"often": 3, "rare": 3}


@both
def test_it_remembers_on_real_mnist(name, mnist_dir):
    """On the short imbalanced stream both are far above finetuning's 20 %."""
    source = stream("split-mnist", seed=0, imbalance=3, data_dir=mnist_dir)
    assert run(by_name(name, source, seed=0, device="cpu"), source).accuracy > 0.6


def test_what_can_be_added_leaves_the_default_learning_rate_of_a_softmax():
    rates = {
        name: registry()[name]().settings.learning_rate
        for name in ("reservoir", "cope-ce", "mir", "finetune")
    }
    assert set(rates.values()) == {0.05}
