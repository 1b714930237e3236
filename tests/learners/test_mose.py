"""MOSE's experts and losses, expert by expert."""

import pytest
import torch
from losses_written_out import unit
from replayed_steps import same_weights, some_batches, watched_batches
from torch.nn.functional import cross_entropy

from everlearn.learners.mose import MOSE
from everlearn.networks import MLP, SlimResNet18
from everlearn.networks.multi_level import MultiLevelNetwork


def small(**settings):
    options = {
        "memory_size": 20,
        "replayed": 16,
        "projection": 4,
        "temperature": 0.5,
        "hidden": 5,
        "clip": None,
        "standardise": False,
    }
    return MOSE("mlp", device="cpu", learning_rate=0.02, **options | settings)


def contrastive(z, owners):
    losses = []
    for i, own in enumerate(owners):
        others = [j for j in range(len(owners)) if j != i]
        normaliser = torch.stack([z[i] @ z[j] / 0.5 for j in others]).logsumexp(0)
        positives = [j for j in others if owners[j] == own]
        losses.append(sum(normaliser - z[i] @ z[j] / 0.5 for j in positives) / len(positives))
    return sum(losses) / len(losses)


def slow_loss(network, new, owners, both, both_owners, known, classes, outputs):
    """A row and its view are the same, so that every sample comes twice."""
    everything = torch.cat([new, new, both, both])
    hidden = torch.relu(network.body[1](everything))
    last = torch.relu(network.body[3](hidden))
    first = torch.relu(network.experts[0][0](hidden))
    labels = owners * 2 + both_owners * 2
    count = 2 * len(new)
    loss = (unit(network.adaption(last)) - unit(first.detach())).square().sum().sqrt()
    heads = zip((first, last), (*network.expert_heads, network.head), network.projections, strict=True)
    for features, head, projection in heads:
        loss = loss + contrastive(unit(projection(features)), labels)
        logits = head(features)[:, :outputs]
        running = slice(known, classes) if known else slice(outputs)
        loss = loss + cross_entropy(logits[:count, running], torch.tensor(owners * 2) - known)
        if both_owners:
            loss = loss + 2 * cross_entropy(logits[count:], torch.tensor(both_owners * 2))
    return loss


@pytest.mark.parametrize("outputs", [0, 9], ids=["outputs that come", "all outputs"])
def test_every_step_of_two_tasks(outputs):
    learner = small(outputs=outputs)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2], 0)
    for t in (0, 1):
        batches = [(x, [label + 3 * t for label in labels]) for x, labels in some_batches((5, 4, 5))]
        for x, slots, draws, rows, slow in watched_batches(learner, batches, t=t):
            optimiser = torch.optim.SGD(slow.parameters(), lr=0.02)
            old_rows, old_slots, current, joined, _ = draws[0]
            old, first, taken = rows[old_rows], len(current), len(joined)
            new, owners = torch.cat([x, old[:first]]), [*slots.tolist(), *current.tolist()]
            both = torch.cat([x[:taken], old[first:]])
            both_owners = [*slots[:taken].tolist(), *old_slots[first:].tolist()]
            assert bool(both_owners) == bool(t)
            classes = len(learner.classes)
            loss = slow_loss(slow, new, owners, both, both_owners, 3 * t, classes, outputs or classes)
            loss.backward()
            optimiser.step()
            same_weights(learner.network, slow)


def test_samples_are_drawn_from_the_running_task_and_from_earlier_ones():
    learner = small(memory_size=60, replayed=16, per_class=3)
    for x, y in some_batches((20, 20)):
        learner.observe(x, y, 0)
    rows, slots, current, joined, _ = learner.draw_replay(5)
    assert len(rows) == len(current) == 16 and len(joined) == 0  # the first task: all of it
    learner.observe(torch.randn(5, 3), [3, 3, 3, 3, 3], 1)
    rows, slots, current, joined, _ = learner.draw_replay(5)
    assert len(current) == 16 // 2 - 5 and set(current) == {3}
    assert len(joined) == 4  # a quarter of the classes is new
    assert len(slots) - len(current) == 12 and set(slots[3:]) == {0, 1, 2}


@pytest.mark.parametrize("all_experts", [True, False])
def test_predictions_are_by_the_mean_distance_to_class_means_over_the_experts(all_experts):
    learner = small(all_experts=all_experts)
    for x, y in some_batches((8, 8, 8)):
        learner.observe(x, y, 0)
    exemplars, labels = learner.memory.samples()
    learner.network.eval()
    x = torch.randn(9, 3)
    distances = torch.zeros(9, 3)
    pairs = list(zip(learner.network.levels(exemplars), learner.network.levels(x), strict=True))
    for theirs, mine in pairs if all_experts else pairs[-1:]:
        for slot, label in enumerate(learner.classes):
            own = torch.stack([f for f, y in zip(unit(theirs), labels, strict=True) if y == label])
            mean = own.mean(0) / own.mean(0).norm()
            distances[:, slot] += (unit(mine) - mean).square().sum(1).detach()
    assert learner.predict(x) == [learner.classes[slot] for slot in distances.argmin(1).tolist()]


def test_a_residual_network_has_an_expert_after_each_stage():
    torch.manual_seed(0)
    network = MultiLevelNetwork(SlimResNet18(), 160, 16, 8)
    levels = network.levels(torch.randn(2, 3, 16, 16))
    assert [part.shape for part in levels] == [(2, 160)] * 4
    network.eval()
    x = torch.randn(3, 3, 16, 16)
    torch.testing.assert_close(network.levels(x)[-1], network.body(x))
    assert [part.shape for part in network.logits(levels)] == [(2, 16)] * 4
    assert [part.shape for part in network.projected(levels)] == [(2, 8)] * 4


def test_the_heads_of_all_experts_grow_and_forget():
    torch.manual_seed(0)
    network = MultiLevelNetwork(MLP(3, 5), 5, 16, 4)
    first = network.expert_heads[0].weight.clone()
    assert network.make_room(20) and network.expert_heads[0].out_features == 32
    assert torch.equal(network.expert_heads[0].weight[:16], first)
    network.forget(2, 16)
    assert torch.equal(network.expert_heads[0].weight[2:15], first[3:])


def test_an_own_network_has_one_expert():
    learner = MOSE(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()), device="cpu", memory_size=6)
    for x, y in some_batches((6, 6)):
        learner.observe(x, y, 0)
    assert len(learner.network.levels(torch.randn(2, 3))) == 1
