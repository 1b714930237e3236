"""MIR's choice and step against explicit virtual updates, one candidate at a time."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everlearn.learners.mir import MIR


def small(normed=False, **settings):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if normed else nn.Identity()
    body = nn.Sequential(nn.Linear(4, 8), middle, nn.Tanh())
    learner = MIR(body, device="cpu", learning_rate=0.3, outputs=3, **({"memory_size": 40} | settings))
    generator = torch.Generator().manual_seed(1)
    for _ in range(8):
        y = torch.randint(0, 3, (6,), generator=generator)
        learner.observe(torch.randn(6, 4, generator=generator) + y[:, None], y)
    return learner


def batch(size, seed=2):
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (size,), generator=generator)
    return torch.randn(size, 4, generator=generator) + y[:, None], y


def loss(network, x, slots, **options):
    return cross_entropy(network(x)[:, :3], slots, **options)


def sgd_step(network, *losses):
    """One step of torch's own SGD down the sum of these losses."""
    optimiser = torch.optim.SGD(network.parameters(), lr=0.3)
    optimiser.zero_grad()
    sum(losses).backward()
    optimiser.step()


def chosen_slowly(network, x, slots, candidates, their_slots):
    """The choice from copies of the network, one of which takes the virtual step."""
    virtual, still = copy.deepcopy(network), copy.deepcopy(network)
    sgd_step(virtual, loss(virtual, x, slots))
    with torch.no_grad():
        after = loss(virtual, candidates, their_slots, reduction="none").tolist()
        before = loss(still, candidates, their_slots, reduction="none").tolist()
    harm = [a - b for a, b in zip(after, before, strict=True)]
    return sorted(range(len(harm)), key=lambda i: -harm[i])[: len(x)]


def in_slots(learner, y):
    return torch.tensor([learner.classes.index(label) for label in y.tolist()])


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_a_step_is_g_and_the_gradient_of_the_most_interfered_candidates(normed):
    learner = small(normed)
    for seed in range(5):
        x, y = batch(5, seed)
        slots = in_slots(learner, y)
        rows, old_slots = (torch.from_numpy(part) for part in learner.memory.draw(20))
        candidates = learner.memory.recall(rows)
        slow = copy.deepcopy(learner.network)
        chosen = chosen_slowly(slow, x, slots, candidates, old_slots)
        sgd_step(slow, loss(slow, x, slots), loss(slow, candidates[chosen], old_slots[chosen]))
        learner.step(x, slots, candidates, old_slots)
        for name, part in learner.network.state_dict().items():
            torch.testing.assert_close(part, slow.state_dict()[name], msg=f"{name}, batch {seed}")


def test_the_gradient_is_the_sum_of_two_means_and_not_the_joint_mean():
    learner = small(candidates=4)
    x, y = batch(4)
    slots = in_slots(learner, y)
    rows, old_slots = (torch.from_numpy(part) for part in learner.memory.draw(4))  # no choice is left
    candidates = learner.memory.recall(rows)
    start = copy.deepcopy(learner.network)
    loss(start, torch.cat([x, candidates]), torch.cat([slots, old_slots])).backward()
    learner.step(x, slots, candidates, old_slots)
    for ours, before in zip(learner.network.parameters(), start.parameters(), strict=True):
        torch.testing.assert_close(ours, before - 0.3 * 2 * before.grad)


def test_the_statistics_of_batch_norm_may_follow_the_candidates_as_in_the_released_code():
    learner = small(normed=True, track_candidates=True)
    for seed in range(3):
        x, y = batch(5, seed)
        slots = in_slots(learner, y)
        rows, old_slots = (torch.from_numpy(part) for part in learner.memory.draw(20))
        candidates = learner.memory.recall(rows)
        slow = copy.deepcopy(learner.network)
        chosen = chosen_slowly(slow, x, slots, candidates, old_slots)
        of_batch = loss(slow, x, slots)
        with torch.no_grad():
            slow(candidates)  # in training mode: its only effect is on the running statistics
        sgd_step(slow, of_batch, loss(slow, candidates[chosen], old_slots[chosen]))
        learner.step(x, slots, candidates, old_slots)
        for name, part in learner.network.state_dict().items():
            torch.testing.assert_close(part, slow.state_dict()[name], msg=f"{name}, batch {seed}")


def test_candidates_of_other_classes_are_a_uniform_choice_of_all_that_the_batch_lacks():
    learner = small(other_classes=True, candidates=3)
    rows, slots = learner.memory.kept()
    for labels in ([0], [1, 2, 1], [0, 2], [0, 1, 2]):
        absent = [row for row, slot in zip(rows, slots, strict=True) if learner.classes[slot] not in labels]
        counts = dict.fromkeys(absent, 0)
        for _ in range(300):
            (drawn,), (their_slots,) = (part for part in learner.plan(labels, keep=False).arrays()[1:3])
            assert len(set(drawn)) == len(drawn) == min(3, len(absent))
            assert all(learner.classes[slot] not in labels for slot in their_slots)
            for row in drawn:
                counts[row] += 1  # a KeyError if the batch has its class
        expected = 300 * 3 / max(len(absent), 1)
        assert all(abs(count - expected) < 6 * expected**0.5 for count in counts.values())


def test_where_the_batch_has_every_class_nothing_is_replayed():
    learner = small(other_classes=True)
    x, y = batch(9)
    assert set(y.tolist()) == {0, 1, 2}
    slow = copy.deepcopy(learner.network)
    sgd_step(slow, loss(slow, x, in_slots(learner, y)))
    learner.observe(x, y)
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert learner.draws_vary and not small().draws_vary  # so it is in no cohort


def test_scoring_candidates_changes_neither_batch_norm_nor_weights():
    learner = small(normed=True)
    x, y = batch(20)
    before = copy.deepcopy(learner.network.state_dict())
    gradients = tuple(torch.ones_like(part) for part in learner.parameters)
    harm = learner._interference(x, in_slots(learner, y), gradients)
    assert harm.shape == (20,) and harm.abs().min() > 0
    assert len(before) == 9
    for name, part in learner.network.state_dict().items():
        assert torch.equal(part, before[name]), name


def test_batch_norm_meets_the_batch_and_the_replay_and_no_candidate_else():
    learner = small(normed=True)
    tracked = learner.network.state_dict()["body.1.num_batches_tracked"]
    before = int(tracked)
    learner.observe(*batch(6))
    assert int(tracked) == before + 2


def test_it_draws_its_candidates_and_replays_as_many_as_arrive():
    learner = small(candidates=30)
    met = []
    original = learner._gradients
    learner._gradients = lambda x, *rest: met.append(len(x)) or original(x, *rest)
    drawn = [part.shape for part in learner.plan([0] * 6).arrays()]
    assert drawn == [(6,), (1, 30), (1, 30), (6,)]
    learner.observe(*batch(6))
    learner.observe(*batch(35))  # more than the candidates: then as many are drawn as arrive
    assert met == [6, 6, 35, 35]


def test_weights_that_are_frozen_stay():
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
    body[0].requires_grad_(False)
    before = body[0].weight.clone(), body[2].weight.clone()
    learner = MIR(body, device="cpu", memory_size=20)
    for seed in range(4):
        learner.observe(*batch(5, seed))
    assert torch.equal(body[0].weight, before[0])
    assert not torch.equal(body[2].weight, before[1])


def test_the_footprint_counts_the_copy_of_the_model():
    learner = small(normed=True)
    held = sum(part.nbytes for part in learner.network.state_dict().values())
    assert learner.footprint() == {"replay": learner.memory.nbytes(), "model copies": held}


def test_no_candidates_are_refused():
    with pytest.raises(ValueError, match="candidates must be at least 1, not 0"):
        MIR(candidates=0)
