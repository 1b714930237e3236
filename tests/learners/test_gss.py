"""GSS against slow oracles: gradients by backward passes, cosines and probabilities by hand."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity, cross_entropy

from everlearn import run, stream
from everlearn.experiments.settings import learner as by_name
from everlearn.learners.gss import FIRST_SCORE, GSS, _cosines


def small(normed=False, **settings):
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if normed else nn.Identity()
    body = nn.Sequential(nn.Linear(4, 8), middle, nn.Tanh())
    chosen = {"memory_size": 40, "learning_rate": 0.1, "outputs": 3, "comparison_size": 4} | settings
    return GSS(body, device="cpu", **chosen)


def batch(size, seed=2):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % 3
    return torch.randn(size, 4, generator=generator) + y[:, None], y


def taught(batches=4, **settings):
    learner = small(**settings)
    for seed in range(batches):
        learner.observe(*batch(6, seed))
    return learner


def slow_gradient(learner, x, slots):
    """The gradient of the mean cross-entropy by one backward pass in evaluation mode, as one vector."""
    network = copy.deepcopy(learner.network).eval()
    cross_entropy(network(x)[:, :3], slots).backward()
    return torch.cat([part.grad.flatten() for part in network.parameters()])


def fast_gradients(learner, x, slots):
    learner.network.eval()
    parts = learner._gradients(x, slots)
    learner.network.train()
    return torch.cat([part.flatten(1) for part in parts], 1)


normed_or_not = pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])


@normed_or_not
def test_the_gradient_of_each_sample_is_that_of_a_backward_pass_on_it_alone(normed):
    learner = taught(normed=normed)
    x, slots = batch(7)
    slow = torch.stack([slow_gradient(learner, x[i : i + 1], slots[i : i + 1]) for i in range(7)])
    torch.testing.assert_close(fast_gradients(learner, x[:, None], slots[:, None]), slow)


@normed_or_not
def test_the_gradient_of_each_part_is_that_of_a_backward_pass_on_its_mean_loss(normed):
    learner = taught(normed=normed)
    x, slots = batch(12)
    slow = torch.stack([slow_gradient(learner, x[i : i + 4], slots[i : i + 4]) for i in (0, 4, 8)])
    torch.testing.assert_close(fast_gradients(learner, x.view(3, 4, 4), slots.view(3, 4)), slow)


def test_images_have_gradients_through_convolutions():
    learner = GSS("slim-resnet18", device="cpu", memory_size=6, outputs=3)
    x, slots = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8), torch.tensor([0, 1, 2, 0])
    learner.observe(x, slots)
    slow = torch.stack([slow_gradient(learner, x[i : i + 1] / 255, slots[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(
        fast_gradients(learner, x[:, None], slots[:, None]), slow, rtol=1e-3, atol=1e-5
    )


def test_cosines_are_those_of_the_whole_vectors():
    a = [torch.randn(5, 3, 4), torch.randn(5, 3, 1), torch.randn(5, 1, 1)]
    b = [torch.randn(2, 3, 4), torch.randn(2, 3, 1), torch.randn(2, 1, 1)]
    a_rows, b_rows = (torch.cat([part.flatten(1) for part in side], 1) for side in (a, b))
    torch.testing.assert_close(_cosines(a, b), cosine_similarity(a_rows[:, None], b_rows[None], dim=2))
    assert _cosines([torch.zeros(1, 3, 4)], [torch.randn(1, 3, 4)]).item() == 0


def test_a_gradient_and_score_by_hand():
    """A linear softmax on two samples: ∇ = (p − onehot) ⊗ x, and the cosine of two of these."""
    learner = GSS(nn.Flatten(), device="cpu", memory_size=4, outputs=2, learning_rate=1e-9)
    learner.observe(torch.tensor([[1.0, 0.0]]), [0])
    learner.observe(torch.tensor([[1.0, 1.0]]), [1])
    weight, bias = learner.network.head.weight.detach(), learner.network.head.bias.detach()

    def gradient(x, y):
        p = (weight @ torch.tensor(x) + bias).softmax(0)
        error = p - torch.eye(2)[y]
        return torch.cat([torch.outer(error, torch.tensor(x)).flatten(), error])

    first, second = gradient([1.0, 0.0], 0), gradient([1.0, 1.0], 1)
    cosine = (first @ second / first.norm() / second.norm()).item()
    assert learner.memory.scores.tolist() == pytest.approx([FIRST_SCORE, cosine])
    assert cosine == pytest.approx(-2 / math.sqrt(6))  # opposite errors; (1, 0, 1) · (1, 1, 1) = 2


def test_a_score_is_the_largest_cosine_with_disjoint_parts_of_the_memory():
    learner = taught()
    drawn = []
    original = learner.memory.draw
    learner.memory.draw = lambda count: drawn.append(original(count)) or drawn[-1]
    kept, _ = learner.memory.samples()
    x, y = batch(6, seed=9)
    learner.observe(x, y)
    rows, slots = drawn[1]  # after the shuffle for replay: 24 exemplars are 6 parts of 4
    assert sorted(rows.tolist()) == list(range(24))
    parts = [
        slow_gradient(learner, kept[rows[i * 4 : i * 4 + 4]], torch.from_numpy(slots[i * 4 : i * 4 + 4]))
        for i in range(6)
    ]
    for i in range(6):
        own = slow_gradient(learner, x[i : i + 1], y[i : i + 1])
        expected = max(cosine_similarity(own, part, dim=0).item() for part in parts)
        assert learner.memory.scores[24 + i].item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(("kept", "shape"), [(3, (1, 3)), (4, (1, 4)), (11, (2, 4)), (40, (3, 4))])
def test_the_parts_are_of_one_size_and_no_more_than_asked_for(kept, shape):
    learner = small(comparisons=3)
    learner.observe(*batch(kept))
    rows, slots = learner._comparison_parts()
    assert rows.shape == slots.shape == shape
    assert len(set(rows.flatten().tolist())) == rows.numel()


def test_each_round_steps_on_the_batch_and_then_on_the_next_of_one_shuffle():
    learner = taught(batches=2, iterations=3)  # 12 exemplars: a third round of 5 starts over
    slow = copy.deepcopy(learner.network)
    kept, labels = learner.memory.samples()
    shuffle = torch.randperm(12, generator=copy_of(learner.generator))
    x, y = batch(5, seed=7)
    learner.observe(x, y)
    optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
    for start in (0, 5, 10):
        replayed = [int(shuffle[i % 12]) for i in range(start, start + 5)]
        for samples, slots in ((x, y), (kept[replayed], torch.tensor(labels)[replayed])):
            optimiser.zero_grad()
            cross_entropy(slow(samples), slots).backward()
            optimiser.step()
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def copy_of(generator):
    return torch.Generator().set_state(generator.get_state())


def test_the_memory_fills_in_order_and_never_exceeds_its_size():
    learner = small(memory_size=15)
    arrived = []
    for seed in range(12):
        x, y = batch(4, seed)
        arrived += x.tolist()
        learner.observe(x, y)
        samples, labels = learner.memory.samples()
        assert len(samples) == len(labels) == len(learner.memory.scores) == min(4 * (seed + 1), 15)
        assert all(row in arrived for row in samples.tolist())
        if seed < 3:
            assert samples.tolist() == arrived
    assert learner.memory.scores.abs().max() <= 1


def test_a_first_batch_larger_than_the_memory_keeps_what_there_is_room_for():
    learner = small(memory_size=5)
    x, y = batch(9)
    learner.observe(x, y)
    assert torch.equal(learner.memory.samples()[0], x[:5])
    assert learner.memory.scores.tolist() == pytest.approx([FIRST_SCORE] * 5)


def test_a_batch_that_agrees_with_any_part_of_the_full_memory_changes_nothing():
    learner = taught(memory_size=24)
    before = learner.memory.state()
    x, y = learner.memory.samples()  # the whole memory, whose mean gradient agrees with some part of it
    slots = torch.tensor(y)
    learner._select(x, slots, torch.full((24,), 24))
    assert all(torch.equal(part, before[name]) for name, part in learner.memory.state().items())


def opposed_gradients(learner, x, y, monkeypatch):
    """What `_opposed_gradients` returns, and of how many parts of the memory it computed gradients."""
    parts = []
    original = learner._gradients
    monkeypatch.setattr(learner, "_gradients", lambda x, slots: parts.append(len(x)) or original(x, slots))
    learner.network.eval()
    found = learner._opposed_gradients(x, y)
    learner.network.train()
    monkeypatch.undo()
    return found, sum(parts[1:])  # the first is the mean gradient of the new samples


def test_the_parts_of_the_memory_are_looked_at_until_one_decides(monkeypatch):
    learner = taught(memory_size=24)
    x, y = learner.memory.samples()
    counts = set()
    for seed in range(20):
        some, labels = batch(6, seed)
        labels = (labels + seed) % 3  # only each third batch has labels like those before
        generator = learner.generator.get_state()
        found, looked_at = opposed_gradients(learner, some, labels, monkeypatch)
        learner.generator.set_state(generator)
        rows, _ = learner._comparison_parts()
        mean = slow_gradient(learner, some, labels)
        cosines = [
            cosine_similarity(mean, slow_gradient(learner, x[part], torch.tensor(y)[part]), dim=0).item()
            for part in rows
        ]
        agreeing = [place for place, cosine in enumerate(cosines) if cosine >= 0]
        assert bool(found) == (not agreeing)
        assert looked_at == (agreeing[0] + 1 if agreeing else 6)
        counts.add(looked_at)
    assert len(counts) > 2


def test_convolutions_compete_alike_one_by_one_and_all_at_once(monkeypatch):
    def learnt():
        learner = GSS("slim-resnet18", device="cpu", memory_size=12, outputs=3, comparison_size=4, seed=1)
        generator = torch.Generator().manual_seed(0)
        for place in range(12):
            if place == 3:
                first = learner.memory.samples()[0]
            x = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8, generator=generator)
            learner.observe(x, [place // 4] * 4)  # the gradient of a new class is against the others
        assert not torch.equal(learner.memory.samples()[0], first)
        return learner

    one_by_one = learnt()
    monkeypatch.setattr(GSS, "_all_at_once", lambda learner, slots: True)
    at_once = learnt()
    assert torch.equal(one_by_one.memory.samples()[0], at_once.memory.samples()[0])
    torch.testing.assert_close(one_by_one.memory.scores, at_once.memory.scores, rtol=1e-2, atol=1e-2)


def against_all(learner, scores, new):
    """Let the next batch go against the whole memory, with these scores of old and new."""
    learner.memory.scores = torch.tensor(scores)
    learner._similarity = lambda x, slots, comparison: torch.tensor(new[: len(x)])
    learner._opposed_gradients = lambda x, slots: [torch.ones(1, 1, 1)]


def test_victims_are_drawn_by_score_and_replaced_with_the_stated_probability():
    """One new sample, three exemplars: the weights are 0, 0.5 and 1 (by max − min + 0.01), then the duel."""
    learner = small(memory_size=3)
    learner.observe(*batch(3))
    scores, new, rounds = [-0.2, 0.2, 0.6], [0.0], 4000
    outcomes = [0, 0, 0, 0]  # which exemplar went, or none
    x, slots = torch.full((1, 4), 7.0), torch.tensor([1])
    for _ in range(rounds):
        against_all(learner, scores, new)
        learner._compete(x, slots)
        gone = [i for i in range(3) if learner.memory.scores[i] != torch.tensor(scores)[i]]
        assert len(gone) <= 1
        outcomes[gone[0] if gone else 3] += 1
    second, third = 1 / 3 * 1.2 / 2.2, 2 / 3 * 1.6 / 2.6
    expected = [rounds * part for part in (second, third, 1 - second - third)]
    chi_square = sum((seen - e) ** 2 / e for seen, e in zip(outcomes[1:], expected, strict=True))
    assert outcomes[0] == 0
    assert chi_square < 13.8  # two degrees of freedom, 1 in 1000


def test_who_takes_a_place_brings_its_class_and_its_score():
    learner = small(memory_size=3)
    learner.observe(*batch(3))
    against_all(learner, [-0.5, 1.0, -0.5], [-1.0])  # one victim, which loses for certain
    x = torch.full((1, 4), 7.0)
    learner._compete(x, torch.tensor([2]))
    samples, labels = learner.memory.samples()
    assert torch.equal(samples[1:2], x)
    assert labels == [0, 2, 2] and learner.memory.counts() == {0: 1, 1: 0, 2: 2}
    assert learner.memory.scores.tolist() == [-0.5, -1.0, -0.5]


def test_as_many_victims_are_drawn_as_have_any_weight():
    learner = small(memory_size=4)
    learner.observe(*batch(4))
    learner.memory.scores = torch.tensor([0.1, 0.1, 0.1, 0.1])
    assert learner._victims(3).tolist() == []
    learner.memory.scores = torch.tensor([0.1, 0.5, 0.1, 0.9])
    assert sorted(learner._victims(3).tolist()) == [1, 3]
    against_all(learner, [0.1, 0.5, 0.1, 0.9], [-1.0, -1.0, -1.0])
    learner._compete(*batch(3))
    assert learner.memory.scores.tolist() == pytest.approx([0.1, -1, 0.1, -1])


@pytest.mark.parametrize("memory_size", [40, 10])
def test_selection_changes_neither_batch_norm_nor_weights(memory_size):
    learner = taught(batches=2, normed=True, memory_size=memory_size)
    before = copy.deepcopy(learner.network.state_dict())
    x, y = batch(6, seed=5)
    learner._select(x, y, torch.from_numpy(learner.memory.admit(y.numpy())))
    assert learner.network.training
    assert len(before) == 9
    for name, part in learner.network.state_dict().items():
        assert torch.equal(part, before[name]), name


def test_gradients_of_a_large_batch_are_taken_a_few_at_a_time():
    learner = taught()
    rows, slots = learner._comparison_parts()
    comparison = learner._gradients(learner.memory.recall(rows), slots)
    whole = learner._similarity(*batch(25), comparison)
    met = []
    original = learner._gradients
    learner._gradients = lambda x, slots: met.append(len(x)) or original(x, slots)
    torch.testing.assert_close(learner._similarity(*batch(25), comparison), whole)
    assert met == [10, 10, 5]


def test_a_network_that_somebody_broke_refuses_batches_and_keeps_nothing_of_them():
    learner = taught(batches=1, memory_size=12)
    before = len(learner.memory), learner.memory.scores.clone()
    learner.network.head.weight.data.fill_(float("nan"))
    for seed in range(6):
        with pytest.raises(ValueError, match="weights infinite or NaN"):
            learner.observe(*batch(5, seed))
    assert len(learner.memory) == before[0] and torch.equal(learner.memory.scores, before[1])


def test_weights_that_are_frozen_stay_and_have_no_gradient():
    body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))
    body[0].requires_grad_(False)
    before = body[0].weight.clone(), body[2].weight.clone()
    learner = GSS(body, device="cpu", memory_size=12)
    for seed in range(4):
        learner.observe(*batch(5, seed))
    assert torch.equal(body[0].weight, before[0])
    assert not torch.equal(body[2].weight, before[1])
    assert len(learner._gradients(*(part[None] for part in batch(3)))) == 4


def test_the_footprint_is_the_samples_their_scores_and_twice_the_comparison_gradients():
    learner = taught(comparisons=5)
    weights = sum(part.nbytes for part in learner.network.parameters())
    expected = {"replay": learner.memory.nbytes(), "scores": 24 * 4, "gradients": 10 * weights}
    assert learner.footprint() == expected


@pytest.mark.parametrize("name", ["comparisons", "comparison_size"])
def test_nothing_to_compare_with_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        GSS(**{name: 0})


def test_it_remembers_on_real_mnist(mnist_dir):
    """On the short imbalanced stream it is far above finetuning's 20 %."""
    source = stream("split-mnist", seed=0, imbalance=3, data_dir=mnist_dir)
    assert run(by_name("gss", source, seed=0, device="cpu"), source).accuracy > 0.7
