"""Exemplars that age: newer samples of a class are likelier kept, and classes that are away keep theirs."""

import numpy as np
import pytest
import torch

from everlearn.memory.ageing import ageing_keys, arrivals
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import LabelTable


def filled(order, size=8, half_life=4, seed=0, batch=1):
    """A memory of sample numbers, after these classes arrived in this order."""
    labels = LabelTable()
    memory = BalancedMemory(size, labels, torch.Generator().manual_seed(seed))
    memory.half_life = half_life
    memory.allocate(torch.zeros(1, 1), torch.device("cpu"))
    for start in range(0, len(order), batch):
        slots = np.array(order[start : start + batch])
        new = sorted(set(range(max(slots) + 1)) - set(range(len(labels))))
        if new:
            labels.extend(new)
            memory.open_classes(len(labels))
        rows = memory.admit(slots)
        numbers = torch.arange(start, start + len(slots), dtype=torch.float32)[:, None]
        memory.write(numbers, torch.from_numpy(rows))
    return memory


def kept(memory):
    x, labels = memory.samples()
    pairs = list(zip(x[:, 0].int().tolist(), labels, strict=True))
    return {label: sorted(number for number, y in pairs if y == label) for label in set(labels)}


def test_a_class_keeps_its_largest_keys():
    """Another memory with the same seed that has room for everything shows all keys."""
    everything = filled([0] * 60, size=1000, half_life=500)
    few = filled([0] * 60, size=5, half_life=500)
    keys = everything._keys[everything._entries()[0]]
    numbers = everything.samples()[0][:, 0]
    assert kept(few)[0] == sorted(int(numbers[place]) for place in np.argsort(-keys)[:5])


def test_the_largest_keys_are_a_weighted_sample_without_replacement():
    """The slow reference draws one sample after the other, each with a probability proportional to its weight."""
    half_life, count, quota, runs = 3, 8, 3, 2000
    random = torch.randint(2**63 - 1, (runs, count), generator=torch.Generator().manual_seed(0)).numpy()
    keys = ageing_keys(random, np.arange(1, count + 1), half_life)
    ours = np.bincount(np.argsort(-keys, axis=1)[:, :quota].ravel(), minlength=count) / runs
    draws, slow = np.random.default_rng(0), np.zeros(count)
    for _ in range(runs):
        left = list(range(count))
        for _ in range(quota):
            weights = np.array([2.0 ** (number / half_life) for number in left])
            slow[left.pop(draws.choice(len(left), p=weights / weights.sum()))] += 1 / runs
    assert np.abs(ours - slow).max() < 0.06
    assert ours[-1] > 2 * ours[0]


def test_a_class_that_is_away_keeps_its_exemplars():
    before = kept(filled([0, 1] * 20))
    after = kept(filled([0, 1] * 20 + [1] * 500))
    assert after[0] == before[0]
    assert min(after[1]) > 400


def test_a_class_keeps_at_most_two_half_lives():
    assert filled([0] * 100, size=50, half_life=4).counts() == {0: 8}
    assert filled([0] * 100, size=50, half_life=0).counts() == {0: 50}


def test_a_batch_is_as_good_as_its_samples_one_by_one():
    assert arrivals(np.array([2, 0, 2, 2]), np.array([7, 0, 1])).tolist() == [2, 8, 3, 4]
    keys = ageing_keys(np.array([5, 5, 5]), np.array([1, 2, 101]), half_life=1)
    assert keys[1] - keys[0] == pytest.approx(np.log(2) * 2**32, rel=1e-6)
    assert keys[2] - keys[0] == pytest.approx(100 * np.log(2) * 2**32, rel=1e-6)
    assert ageing_keys(np.array([0, 2**63 - 2]), np.array([0, 0]), half_life=1).min() > 0


def test_its_state_is_exact():
    memory = filled([0, 1, 2, 1] * 10)
    other = BalancedMemory(8, memory._labels, torch.Generator().manual_seed(0))
    other.half_life = memory.half_life
    other.open_classes(3)
    other.restore(memory.state(), torch.device("cpu"))
    other._generator.set_state(memory._generator.get_state())
    for each in (memory, other):
        rows = each.admit(np.array([0, 2, 2, 1]))
        each.write(torch.arange(100.0, 104.0)[:, None], torch.from_numpy(rows))
    assert kept(memory) == kept(other)
    assert all(torch.equal(part, other.state()[name]) for name, part in memory.state().items())


def test_a_merged_memory_keeps_the_newest_of_both():
    mine, other = filled([0] * 1000, seed=1), filled([0] * 30, seed=2)
    other.rows += 5000
    mine.merge(other, np.array([0]))
    numbers = kept(mine)[0]
    assert len(numbers) == 8
    assert 2 <= sum(number >= 5000 for number in numbers) <= 6
    assert all(number > 900 for number in numbers if number < 5000)


def test_forgetting_a_class_keeps_the_ages_of_the_others():
    memory = filled([0, 1, 1, 2] * 10)
    before = kept(memory)
    memory.forget(0)
    memory._labels.remove(0)
    assert memory._arrived.tolist() == [20, 10]
    assert kept(memory)[1] == before[1]
