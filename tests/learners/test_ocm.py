"""OCM's step in the first task and later, pair by pair."""

import pytest
import torch
from losses_written_out import info_nce_by_pairs, unit
from replayed_steps import body, same_weights, some_batches, watched_batches
from torch.nn.functional import cross_entropy

from everlearn.learners.ocm import OCM
from everlearn.losses.info_nce import version_owners
from everlearn.networks.frozen_copy import frozen_copy
from everlearn.training.strong_views import inner_rotations

SETTINGS = {"device": "cpu", "learning_rate": 0.05, "memory_size": 8, "projection": 4, "clip": None}


def small(normed=False, **settings):
    return OCM(body(normed), **SETTINGS | {"temperature": 0.5} | settings)


def compared(network, x, start, weight):
    features = network.body(x)
    z, f = unit(network.projection(features)), unit(features)
    part = f[:, start : start + 4]
    return z, weight * (z @ z.T + z @ part.T)


def new_loss(similarities, owners):
    alike, partners = info_nce_by_pairs(similarities, owners, 0.5, itself=False)
    return partners + 2 * alike


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_in_the_first_task_the_batch_is_learnt_alone(normed):
    learner = small(normed)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2], 0)
    for x, slots, draws, _, slow in watched_batches(learner, some_batches(), t=0):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
        starts = draws[0][2].tolist()
        twice = torch.cat([x, x])  # a row has one version, and its view is itself
        _, similarities = compared(slow, twice, starts[0], 1.0)
        loss = new_loss(similarities, slots.tolist() * 2)
        (loss + cross_entropy(slow(x)[:, : len(learner.classes)], slots)).backward()
        optimiser.step()
        same_weights(learner.network, slow)


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_later_the_exemplars_stay_close_to_what_the_old_network_said(normed):
    learner = small(normed, similarity=0.5)
    learner.observe(torch.randn(5, 3), [0, 1, 2, 2, 1], 0)
    before = frozen_copy(learner.network)
    learner.observe(torch.randn(5, 3), [3, 4, 3, 4, 3], 1)
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches(labels=5), t=1):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
        ((old_rows, old_slots, starts),) = draws
        old = rows[old_rows]
        everything = slow.body(torch.cat([x, x, old, old]))
        z, f = unit(slow.projection(everything)), unit(everything)
        new = 2 * len(x)
        losses = []
        for part, start in ((slice(new), starts[0]), (slice(new, None), starts[1])):
            losses.append(0.5 * (z[part] @ z[part].T + z[part] @ f[part, start : start + 4].T))
        loss = new_loss(losses[0], slots.tolist() * 2)
        loss += info_nce_by_pairs(losses[1], old_slots.tolist() * 2, 0.5, itself=True)[0]
        kept = z[new : new + len(old)] @ unit(before.projection(before.body(old))).T
        loss += info_nce_by_pairs(kept, old_slots.tolist(), 0.5, itself=True)[0]
        logits = slow(old)[:, :5]
        loss += cross_entropy(logits, old_slots) + (logits[:, :3] - before(old)[:, :3]).square().mean()
        loss.backward()
        optimiser.step()
        same_weights(learner.network, slow)


def test_the_old_network_is_that_of_the_end_of_the_last_task():
    learner = small()
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1], 0)
    assert learner._previous is None and learner.footprint()["old network"] == 0
    weights = learner.network.head.weight.clone()
    learner.observe(torch.randn(4, 3), [2, 3, 2, 3], 1)
    assert torch.equal(learner._previous.head.weight, weights)
    learner.observe(torch.randn(4, 3), [2, 3, 2, 3], 1)
    assert torch.equal(learner._previous.head.weight, weights)
    assert not torch.equal(learner.network.head.weight, weights)


def test_sixteen_versions_of_an_image_are_classes_of_their_own():
    learner = OCM("slim-resnet18", **SETTINGS, augmentation="crop-flip-grey", replayed=4)
    met = []
    original = learner.step
    learner.step = lambda *parts: met.append(parts) or original(*parts)
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    for t in range(2):
        learner.observe(images, [2 * t, 2 * t + 1, 2 * t, 2 * t + 1], t)
    x, _, old, *_ = met[-1]
    assert x.shape == old.shape == (16 + 16 + 2, 4, 3, 8, 8)
    assert torch.equal(x[:16].flatten(0, 1), inner_rotations(images / 255))
    assert len(set(version_owners(torch.tensor([0, 1, 5]), 16).tolist())) == 3 * 16


def test_few_classes_are_replayed_by_few_exemplars():
    learner = small(replayed=64, per_class=2, memory_size=40)
    for x, y in some_batches(sizes=(20, 20)):
        learner.observe(x, y, 0)
    assert learner.replay_size(10) == 6
