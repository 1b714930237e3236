"""CCL-DC's step, network by network and link by link."""

import copy

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches
from torch.nn.functional import cross_entropy

from everlearn.learners.ccl_dc import CCLDC
from everlearn.training.rand_augment import OPERATIONS


def divergence(logits, taught):
    p, q = (logits / 3).softmax(1), (taught.detach() / 3).softmax(1)
    return 9 * (q * (q.log() - p.log())).sum(1).mean()


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_each_network_steps_by_itself_on_labels_and_on_what_its_peer_says(normed):
    options = {"memory_size": 8, "distillation": 0.7, "temperature": 3.0, "clip": None}
    learner = CCLDC(body(normed), device="cpu", learning_rate=0.05, **options)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches((4, 5, 3))):
        ((old_rows, old_slots),) = draws
        both, owners = torch.cat([x, rows[old_rows]]), torch.cat([slots, old_slots])
        logits = {}  # a row has no views: every link is the row itself
        for name in ("first", "second"):
            for link in ("view", 0, 1, 2, 3):
                logits[name, link] = getattr(slow, name)(both)[:, :3]
        for name, peer in (("first", "second"), ("second", "first")):
            mine = [*slow.body.parameters(), *slow.head.parameters()]
            if name == "second":
                mine = list(slow.peer.parameters())
            loss = sum(cross_entropy(logits[name, link], owners) for link in ("view", 0, 1, 2, 3)) / 2
            for link, harder in ((0, 1), (1, 2), (2, 3), (3, 3)):
                loss = loss + 0.7 * divergence(logits[name, link], logits[peer, harder])
            with torch.no_grad():
                for part, slope in zip(mine, torch.autograd.grad(loss, mine, retain_graph=True), strict=True):
                    part.grad = slope
        with torch.no_grad():
            for part in slow.parameters():
                part -= 0.05 * part.grad
        same_weights(learner.network, slow)


def test_the_networks_begin_with_other_weights():
    learner = CCLDC(body(), device="cpu", memory_size=8)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    assert not torch.equal(learner.network.body[0].weight, learner.network.peer.body[0].weight)
    assert not torch.equal(learner.network.head.weight, learner.network.peer.head.weight)


def test_predictions_are_by_the_mean_logits():
    learner = CCLDC(body(), device="cpu", memory_size=8)
    for x, y in some_batches():
        learner.observe(x, y)
    network, x = copy.deepcopy(learner.network).eval(), torch.randn(6, 3)
    expected = (network.first(x) + network.second(x))[:, :3] / 2
    torch.testing.assert_close(torch.from_numpy(learner.predict_proba(x)), expected.softmax(1))


def test_a_chain_of_images_grows_harder_link_by_link():
    learner = CCLDC("slim-resnet18", device="cpu", memory_size=8, augmentation="strong")
    met = []
    original = learner._chain
    learner._chain = lambda *parts: met.append(original(*parts)) or met[-1]
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    for _ in range(2):
        learner.observe(images, [0, 1, 2, 3])
    links = met[-1]
    assert [link.shape for link in links] == [(8, 3, 8, 8)] * 4
    assert torch.equal(links[0][:4], images / 255)
    assert all(link.min() >= 0 and link.max() <= 1 for link in links)
    drawn = learner.draw_replay(4)
    assert drawn[3].shape == (2, 3) and drawn[3].max() < len(OPERATIONS)
