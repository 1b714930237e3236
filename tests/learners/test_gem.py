"""GEM: its quadratic program against every set of active constraints, its gradients against separate passes."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everlearn import run, stream
from everlearn.experiments.settings import learner as by_name
from everlearn.learners.gem import GEM, RIDGE, multipliers
from everlearn.memory.labels import LabelTable
from everlearn.memory.ring import RingMemory


def by_enumeration(past, gradient, margin):
    """The best feasible v: for each set of tasks held at the margin, the others solve their linear equations."""
    matrix = past @ past.T + RIDGE * np.eye(len(past))
    vector = past @ gradient
    best, lowest = None, np.inf
    for held in itertools.product([False, True], repeat=len(past)):
        v = np.full(len(past), margin)
        held = np.array(held)
        free = ~held
        if free.any():
            v[free] = np.linalg.solve(
                matrix[np.ix_(free, free)], -vector[free] - matrix[np.ix_(free, held)] @ v[held]
            )
        value = v @ matrix @ v / 2 + vector @ v
        if (v >= margin - 1e-12).all() and value < lowest:
            best, lowest = v, value
    return best


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("tasks", [1, 2, 4, 6])
@pytest.mark.parametrize("parameters", [3, 40])
def test_the_program_is_solved_as_by_trying_every_set_of_active_constraints(tasks, parameters, margin):
    rng = np.random.default_rng(tasks)
    for scale in (0.1, 1.0, 30.0):
        for _ in range(10):
            past, gradient = rng.normal(size=(tasks, parameters)) * scale, rng.normal(size=parameters)
            v = multipliers(torch.from_numpy(past), torch.from_numpy(gradient), margin)
            np.testing.assert_allclose(v, by_enumeration(past, gradient, margin), rtol=1e-6, atol=1e-8)


def test_no_past_task_is_harmed_by_a_projected_gradient():
    """At the solution G (g + Gᵀ v) ≥ −ridge · v."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        past, gradient = torch.from_numpy(rng.normal(size=(5, 30))), torch.from_numpy(rng.normal(size=30))
        v = multipliers(past, gradient, 0.5)
        assert (past @ (gradient + v @ past) >= -RIDGE * v - 1e-9).all()


def small(network="mlp", **settings):
    chosen = {
        "memory_size": 30,
        "tasks": 3,
        "hidden": 12,
        "learning_rate": 0.1,
        "standardise": False,
    } | settings
    return GEM(network, device="cpu", seed=0, **chosen)


def three_tasks(learner, until=3):
    generator = torch.Generator().manual_seed(0)
    for t in range(until):
        for _ in range(3 - t):  # the memories differ in size
            learner.observe(torch.randn(4, 6, generator=generator), [2 * t, 2 * t + 1] * 2, t)
    return learner


def separately(learner):
    for rows, slots in learner.memory.past():
        x = learner.memory.recall(torch.from_numpy(rows))
        loss = cross_entropy(learner.network(x)[:, : len(learner.classes)], torch.from_numpy(slots))
        yield torch.cat([part.flatten() for part in torch.autograd.grad(loss, learner.parameters)])


def test_the_gradients_in_one_pass_are_those_of_separate_passes():
    learner = three_tasks(small())
    assert [len(rows) for rows, _ in learner.memory.past()] == [10, 8]
    pairs = [
        [torch.from_numpy(slots), learner.memory.recall(torch.from_numpy(rows))]
        for rows, slots in learner.memory.past()
    ]
    together = learner._past_gradients([x for _, x in pairs], [slots for slots, _ in pairs])
    torch.testing.assert_close(together, torch.stack(list(separately(learner))))


def test_parameters_keep_their_types_where_a_network_has_several():
    class Narrow(nn.Linear):
        def forward(self, x):
            return super().forward(x.bfloat16()).float()

    network = Narrow(6, 8).bfloat16()
    learner = three_tasks(small(network))
    assert network.weight.dtype == torch.bfloat16
    assert len(learner.predict(torch.randn(4, 6))) == 4


@pytest.mark.parametrize("own", [False, True])
def test_a_batch_by_hand(own):
    """The gradients of the past memories one by one, the program by enumeration, one step."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh()) if own else "mlp"
    learner = three_tasks(small(network))
    generator = torch.Generator().manual_seed(1)
    projected = 0
    for t in (2, 1, 2, 0):
        x, y = torch.randn(4, 6, generator=generator), torch.tensor([2 * t, 2 * t + 1] * 2)
        learner.memory.running = t
        past = torch.stack(list(separately(learner)))
        loss = cross_entropy(learner.network(x)[:, :6], y)
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, learner.parameters)])
        if (past @ gradient).min() < 0:
            v = by_enumeration(past.double().numpy(), gradient.double().numpy(), 0.5)
            gradient = gradient + torch.from_numpy(v).float() @ past
            projected += 1
        before = nn.utils.parameters_to_vector(learner.parameters).detach()
        learner.observe(x, y, t)
        after = nn.utils.parameters_to_vector(learner.parameters).detach()
        torch.testing.assert_close(after, before - 0.1 * gradient, rtol=1e-4, atol=1e-5)
    assert projected


def test_a_ring_keeps_the_most_recent_and_a_long_batch_wraps():
    labels, generator = LabelTable("ab"), torch.Generator()
    memory = RingMemory(9, 3, labels, generator)
    memory.allocate(torch.zeros(1, 1), torch.device("cpu"))
    came = {7: [], 5: []}
    number = 0
    for task, size in ((7, 2), (7, 2), (5, 1), (7, 8), (5, 3), (7, 1), (5, 2)):
        x = torch.arange(number, number + size, dtype=torch.float32)[:, None]
        number += size
        memory.running = task
        memory.write(x, torch.from_numpy(memory.admit((x[:, 0].long() % 2).numpy())))
        came[task] += x[:, 0].tolist()
        for other in memory.tasks:
            memory.running = next(t for t in (7, 5, -1) if t != other)
            kept = {
                (float(memory.rows[row, 0]), int(slot))
                for rows, slots in memory.past()
                for row, slot in zip(rows, slots, strict=True)
            }
            expected = {
                (value, int(value % 2)) for t in memory.tasks if t != memory.running for value in came[t][-3:]
            }
            assert kept == expected
    assert len(memory) == 6 and memory.tasks == [7, 5]


def test_the_batch_is_stored_before_it_is_learnt_and_each_task_has_its_share():
    learner = three_tasks(small(memory_size=32, tasks=4))
    assert learner.memory.quota == 8
    assert learner.memory.counts() == {0: 4, 1: 4, 2: 4, 3: 4, 4: 2, 5: 2}


def test_more_tasks_than_announced_are_refused_before_anything_changes():
    learner = three_tasks(small())
    before = learner.state_dict()
    with pytest.raises(
        ValueError, match=r"got t=3, but it was created with tasks=3 and has seen \[0, 1, 2\]"
    ):
        learner.observe(torch.randn(2, 6), [8, 9], 3)
    after = learner.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before if key != "meta")
    assert learner.classes == [0, 1, 2, 3, 4, 5]


def test_a_memory_smaller_than_the_tasks_is_refused():
    with pytest.raises(ValueError, match="memory_size must be at least 1 for each of 5 tasks, not 3"):
        GEM(memory_size=3)


def test_the_footprint_holds_a_gradient_for_each_task():
    learner = three_tasks(small())
    model = sum(part.nbytes for part in learner.parameters)
    assert learner.footprint() == {"replay": learner.memory.nbytes(), "gradients": 3 * model}


def test_it_remembers_on_digits():
    source = stream("split-digits", seed=0)
    assert run(by_name("gem", source, seed=0, device="cpu"), source).accuracy > 0.6
