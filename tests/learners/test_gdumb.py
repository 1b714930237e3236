"""GDumb: its greedy sampler against the algorithm with lists, its rates against torch's, and when it learns."""

import copy
import random

import numpy as np
import pytest
import torch
from replayed_steps import body, some_batches
from torch import nn

from everlearn.learners.gdumb import GDumb, _with_patches
from everlearn.memory.greedy import GreedyMemory
from everlearn.memory.labels import LabelTable


def memory(size):
    found = GreedyMemory(size, LabelTable(range(10)), torch.Generator().manual_seed(0))
    found.allocate(torch.zeros(1, 1), torch.device("cpu"))
    return found


def counts_by_lists(size, arrivals):
    """The numbers of exemplars that the published algorithm keeps: which ones is random, how many is not."""
    kept = {}
    for slot in arrivals:
        quota = size // max(len(kept), 1)
        if slot in kept and kept[slot] >= quota:
            continue
        if sum(kept.values()) >= size:
            kept[max(kept, key=kept.get)] -= 1
        kept[slot] = kept.get(slot, 0) + 1
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_as_many_of_each_class_are_kept_as_the_published_sampler_keeps(seed):
    chooser = random.Random(seed)
    arrivals = [min(i // 12, chooser.randrange(5)) for i in range(120)]
    greedy = memory(17)
    for start in range(0, 120, 8):
        slots = np.array(arrivals[start : start + 8])
        samples = torch.arange(start, start + len(slots), dtype=torch.float32)[:, None]
        greedy.write(samples, torch.from_numpy(greedy.admit(slots)))
        assert len(greedy) <= 17
    rows, slots = greedy.kept()
    ours = np.bincount(slots, minlength=5)
    theirs = [counts_by_lists(17, arrivals).get(slot, 0) for slot in range(5)]
    assert sorted(ours) == sorted(theirs) or max(abs(ours - theirs)) <= 1  # equal classes may lose either way
    for row, slot in zip(rows, slots, strict=True):  # the samples are of the classes that the index says
        assert arrivals[int(greedy.rows[row])] == slot
    assert len({int(greedy.rows[row]) for row in rows}) == len(rows)


def test_early_samples_stay_while_there_is_one_class():
    greedy = memory(4)
    for start in range(0, 12, 4):
        slots = np.zeros(4, np.int64)
        greedy.write(torch.arange(start, start + 4.0)[:, None], torch.from_numpy(greedy.admit(slots)))
    assert greedy.rows[:4].flatten().tolist() == [0, 1, 2, 3]


def test_a_class_that_is_forgotten_makes_room():
    greedy = memory(4)
    greedy.admit(np.array([0, 0, 1, 1]))
    greedy.forget(0)
    assert len(greedy) == 2 and greedy.kept()[1].tolist() == [0, 0]
    assert (greedy.admit(np.array([1, 1])) < 4).all()


def test_the_rates_are_those_of_warm_restarts():
    learner = GDumb(learning_rate=0.1, lowest_rate=0.01)
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], 0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 1, 2, eta_min=0.01)
    expected = [0.01, 0.1]
    for _ in range(30):
        optimiser.step()
        schedule.step()
        expected.append(optimiser.param_groups[0]["lr"])
    assert [learner._rate(passed) for passed in range(32)] == pytest.approx(expected)


def test_it_learns_when_it_is_asked_and_only_once():
    learner = GDumb(body(), device="cpu", memory_size=12, passes=3)
    for x, y in some_batches((8, 8)):
        learner.observe(x, y)
    untrained = [part.clone() for part in learner.network.parameters()]
    assert learner._trained is None
    first = learner.predict_proba(torch.ones(2, 3))
    trained = learner._trained
    assert trained is not None and trained is not learner.network
    assert learner.predict_proba(torch.ones(2, 3)).tolist() == first.tolist() and learner._trained is trained
    assert all(map(torch.equal, untrained, learner.network.parameters()))
    learner.observe(*next(some_batches((4,))))
    assert learner._trained is None


def test_it_may_be_asked_first_in_inference_mode():
    inside, outside = (GDumb(body(), device="cpu", memory_size=12, passes=2, seed=0) for _ in range(2))
    for x, slots in some_batches():
        for each in (inside, outside):
            each.observe(x, slots)
    with torch.inference_mode():
        scores = inside.predict_proba(x)
    assert np.array_equal(scores, outside.predict_proba(x))


def test_training_is_torchs_sgd_over_the_memory():
    learner = GDumb(body(), device="cpu", memory_size=6, passes=4, batch=3, decay=0.01, learning_rate=0.1)
    for x, y in some_batches((6,)):
        learner.observe(x, y)
    slow = copy.deepcopy(learner.network)  # the initial one, which stays as it is
    optimiser = torch.optim.SGD(slow.parameters(), 0.1, 0.9, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    x, (_, slots) = learner.memory.samples()[0], learner.memory.kept()
    for passed in range(4):
        optimiser.param_groups[0]["lr"] = learner._rate(passed)
        order = torch.randperm(len(x), generator=generator)
        for part in (order[:3], order[3:]):
            optimiser.zero_grad()
            logits = slow(x[part])[:, : len(learner.classes)]
            nn.functional.cross_entropy(logits, torch.from_numpy(slots)[part]).backward()
            nn.utils.clip_grad_norm_(slow.parameters(), 10.0)
            optimiser.step()
    for ours, theirs in zip(learner.predictor.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_patch_of_another_image_takes_its_share():
    generator = torch.Generator().manual_seed(0)
    shares = []
    for _ in range(200):
        mixed, kept = _with_patches(torch.zeros(1, 1, 8, 8), torch.ones(1, 1, 8, 8), generator)
        assert mixed.mean().item() == pytest.approx(1 - kept)
        shares.append(kept)
    assert min(shares) < 0.5 and max(shares) > 0.9


def test_images_are_trained_with_views_and_patches():
    learner = GDumb(
        "slim-resnet18", device="cpu", memory_size=6, passes=2, augmentation="crop-flip", cutmix=0.5
    )
    learner.observe(torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8), [0, 1, 2, 0, 1, 2])
    assert set(learner.predict(torch.zeros(3, 3, 8, 8, dtype=torch.uint8))) <= {0, 1, 2}
