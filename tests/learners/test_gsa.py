"""GSA's two losses and its rates, counted in lists."""

import math

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches

from everlearn.core.images import SeveralViews
from everlearn.learners.gsa import GSA


def small(normed=False, **settings):
    options = {"memory_size": 20, "replayed": 8, "current": 3, "patience": 2}
    return GSA(body(normed), device="cpu", learning_rate=0.05, clip=None, **options | settings)


class Rates:
    """Counts what was pushed up and down, class by class."""

    def __init__(self):
        self.up, self.down = [0.0] * 6, [0.0] * 6

    def count(self, probabilities, owners):
        for row, own in zip(probabilities.tolist(), owners, strict=True):
            for c, p in enumerate(row):
                if c == own:
                    self.up[c] += 1 - p
                else:
                    self.down[c] += p

    def weight(self, own, ready):
        return 2 / (1 + math.exp(1 - self.up[own] / self.down[own])) if ready else 1.0


def slow_step(learner, slow, rates, x, slots, drawn, rows, known, ready):
    old_rows, old_slots, current, joined, _ = drawn
    old, first = rows[old_rows], len(current)
    new, owners = torch.cat([x, old[:first]]), [*slots.tolist(), *current.tolist()]
    logits = slow(new)[:, : len(learner.classes)]
    among = logits[:, known:].log_softmax(1)
    loss = -sum(among[i, own - known] for i, own in enumerate(owners)) / len(owners)
    both = torch.cat([old[first:], new[: len(joined)]])
    both_owners = [*old_slots[first:].tolist(), *owners[: len(joined)]]
    if len(old_rows):
        probabilities = slow(both)[:, : len(learner.classes)].softmax(1)
        rates.count(probabilities, both_owners)
        parts = [rates.weight(own, ready) * probabilities[i, own].log() for i, own in enumerate(both_owners)]
        loss = loss - 2 * sum(parts) / len(parts)
    return loss


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_every_step_of_two_tasks(normed):
    learner, rates = small(normed), Rates()
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2], 0)
    batches = list(some_batches((5, 4, 6, 5)))
    for t in (0, 1):
        shifted = [(x, [label + 3 * t for label in labels]) for x, labels in batches]
        known = 3 * t
        done = 1 - t
        for x, slots, draws, rows, slow in watched_batches(learner, shifted, t=t):
            optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
            ready = done >= 2
            assert draws[0][4].tolist() == [int(ready), len(learner.classes)]
            slow_step(learner, slow, rates, x, slots, draws[0], rows, known, ready).backward()
            optimiser.step()
            same_weights(learner.network, slow)
            classes = len(learner.classes)
            torch.testing.assert_close(learner._pushed[0, :classes], torch.tensor(rates.up[:classes]))
            torch.testing.assert_close(learner._pushed[1, :classes], torch.tensor(rates.down[:classes]))
            done += 1


def test_the_balanced_part_has_as_many_of_each_class():
    learner = small(replayed=12, memory_size=40)
    for x, y in some_batches((20, 20)):
        learner.observe(x, y, 0)
    learner.observe(torch.randn(6, 3), [3, 3, 3, 3, 3, 3], 1)
    _, slots, current, joined, _ = learner.draw_replay(6)
    assert len(current) == 3 and set(current) == {3}
    assert set(slots[3:]) == {0, 1, 2} and len(slots) - 3 == 9  # three of four classes are earlier
    assert len(joined) == 3


def test_pushes_of_a_forgotten_class_are_gone():
    learner = small()
    for x, y in some_batches((6, 6, 6)):
        learner.observe(x, y, 0)
    before = learner._pushed.clone()
    learner.forget(learner.classes[1])
    assert torch.equal(learner._pushed[:, :2], before[:, [0, 2]]) and not learner._pushed[:, 2:].any()


def test_both_losses_see_a_view_of_each_image_and_one_of_its_mirror_image():
    learner = GSA("slim-resnet18", device="cpu", memory_size=8, replayed=4, augmentation="large-crop-grey")
    met, views = [], []
    original, change = learner.logits, SeveralViews.change
    learner.logits = lambda x: met.append(x) or original(x)

    def spied(self, *arguments):
        views.append(change(self, *arguments))
        return views[-1]

    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SeveralViews, "change", spied)
        for _ in range(2):
            learner.observe(images, [0, 1, 0, 1], 0)
    new, both = met[-2:]
    seen, old = (part[2:] for part in views[-1])  # the images and mirror images come first
    assert not torch.equal(seen[0], images / 255)
    assert torch.equal(new, torch.cat([seen, old], 1).flatten(0, 1))
    assert torch.equal(both, seen.flatten(0, 1))
