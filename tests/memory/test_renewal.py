"""Exemplars that lose their place, against a slow memory that keeps lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import LabelTable
from everlearn.memory.renewal import older_half, remove

CLASSES = 3


def filled(half_life=0, size=30, samples=200, seed=0):
    """A memory of samples that are numbered in the order of their arrival."""
    labels = LabelTable(range(CLASSES))
    memory = BalancedMemory(size, labels, torch.Generator().manual_seed(seed))
    memory.half_life = half_life
    memory.open_classes(CLASSES)
    memory.allocate(torch.zeros(1, 1), torch.device("cpu"))
    send(memory, 0, samples)
    return memory


def send(memory, first, last, classes=CLASSES):
    for number in range(first, last):
        rows = memory.admit(np.array([number % classes]))
        memory.write(torch.tensor([[float(number)]]), torch.from_numpy(rows))


def contents(memory):
    """The numbers of the samples of each class."""
    samples, labels = memory.samples()
    found = {label: [] for label in range(CLASSES)}
    for number, label in zip(samples.flatten().tolist(), labels, strict=True):
        found[label].append(int(number))
    return {label: sorted(numbers) for label, numbers in found.items()}


@pytest.mark.parametrize("half_life", [0, 10])
def test_only_the_removed_exemplars_are_gone_and_their_places_go_to_the_next_samples(half_life):
    memory = filled(half_life)
    before = contents(memory)
    gone = np.random.default_rng(0).random(len(memory)) < 0.4
    gone[memory.kept()[1] == 2] = False
    numbers = memory.samples()[0].flatten().numpy().astype(int)
    remove(memory, gone)
    left = {label: sorted(set(kept) - set(numbers[gone].tolist())) for label, kept in before.items()}
    assert contents(memory) == left
    free = 10 - len(left[0])
    send(memory, 300, 300 + 3 * free)
    assert contents(memory)[0] == left[0] + [300 + 3 * i for i in range(free)]
    assert len(memory) <= memory.size


def test_a_class_that_begins_anew_keeps_a_uniform_sample_of_what_was_left_and_what_came_since():
    kept = np.zeros(40)
    for seed in range(300):
        memory = filled(samples=30, seed=seed)  # each class has its 10 samples
        gone = np.isin(memory.samples()[0].flatten().numpy(), [0, 3, 6])  # of class 0
        remove(memory, gone)
        send(memory, 30, 120)  # 30 more of each class
        for number in contents(memory)[0]:
            kept[number // 3] += 1
    # 7 that were left and 30 that came, of which 10 are kept.
    assert kept[:3].sum() == 0
    shares = kept[3:] / 300
    assert shares.mean() == pytest.approx(10 / 37)
    assert np.abs(shares - 10 / 37).max() < 4.5 * np.sqrt(10 / 37 * 27 / 37 / 300)


@pytest.mark.parametrize("half_life", [0, 10])
def test_the_older_half_is_that_with_the_smaller_keys_of_the_given_classes(half_life):
    memory = filled(half_life, samples=100)
    chosen = np.array([True, False, True])
    entries, owners = memory._entries()
    keys = memory._keys[entries]
    expected = []
    for key, owner in zip(keys, owners, strict=True):
        mine = sorted(keys[owners == owner])
        expected.append(bool(chosen[owner]) and mine.index(key) < len(mine) // 2)
    found = older_half(memory, chosen)
    assert found.tolist() == expected
    assert found[owners == 0].sum() == 5 and not found[owners == 1].any()


def test_where_exemplars_age_the_half_that_goes_is_older_on_average():
    memory = filled(half_life=10, size=60, samples=600)
    older = older_half(memory, np.ones(CLASSES, bool))
    numbers = memory.samples()[0].flatten().numpy()
    assert numbers[older].mean() < numbers[~older].mean() - 10
