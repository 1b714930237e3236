"""Removing exemplars and giving them other classes, against slow oracles and by the distribution."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered_samples import send
from scipy.stats import chisquare

from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import LabelTable
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.memory.ring import RingMemory

KINDS = {BalancedMemory: {}, ReservoirMemory: {}, RingMemory: {"tasks": 1}}


def memory_of(kind, size, seed=0):
    labels, generator = LabelTable(), torch.Generator().manual_seed(seed)
    memory = kind(size, labels=labels, generator=generator, **KINDS[kind])
    memory.allocate(torch.zeros(1, 1, dtype=torch.int64), torch.device("cpu"))
    return memory


def stored(memory):
    """The class of each stored number."""
    samples, slots = memory.stored()
    return dict(zip(samples.flatten().tolist(), slots.tolist(), strict=True))


def remove(memory, gone):
    """Remove the numbers for which the function `gone` is true."""
    samples, slots = memory.stored()
    stays = np.array([i for i, number in enumerate(samples.flatten().tolist()) if not gone(number)], np.int64)
    memory.edit(stays, slots[stays])


BATCHES = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), min_size=1, max_size=9)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(batches=BATCHES, choice=st.randoms(use_true_random=False))
def test_what_remains_has_the_classes_it_was_given(kind, batches, choice):
    memory = memory_of(kind, 12)
    for i, batch in enumerate(batches):
        send(memory, batch, 1 + 100 * i)
    samples, slots = memory.stored()
    order = np.array([i for i in range(len(samples)) if choice.random() < 0.7], np.int64)
    changed = np.array(
        [choice.randrange(len(memory._labels)) if choice.random() < 0.3 else slots[i] for i in order],
        np.int64,
    )
    expected = dict(zip(samples.flatten()[order].tolist(), changed.tolist(), strict=True))
    kept = memory.edit(order, changed)
    found = stored(memory)
    assert list(found.items()) == [(int(samples[i]), expected[int(samples[i])]) for i in kept]
    if kind is BalancedMemory:  # a class has at most its quota, and those that moved come first
        quota = 12 // len(memory._labels)
        moved = {int(samples[i]) for i, slot in zip(order, changed, strict=True) if slots[i] != slot}
        for slot in range(len(memory._labels)):
            of_class = {number for number, other in expected.items() if other == slot}
            assert sum(other == slot for other in found.values()) == min(len(of_class), quota)
            if len(of_class & moved) <= quota:
                assert of_class & moved <= set(found)
    else:
        assert found == expected
    # All goes on: the memory can be drawn from, filled, saved and loaded.
    send(memory, ["a", "b"] * 10, 5000)
    rows, _ = memory.draw(5)
    assert len(rows) == min(5, len(memory))
    again = memory_of(kind, 12)
    for label in memory._labels.labels:
        again._labels.add(label)
    again.restore(memory.state(), torch.device("cpu"))
    assert stored(again) == stored(memory)


def test_after_a_deletion_all_remaining_samples_are_equally_likely():
    included = np.zeros(40)
    for seed in range(1000):
        memory = memory_of(BalancedMemory, 8, seed)
        send(memory, ["a"] * 20, 0)
        remove(memory, lambda number: number % 4 == 0)  # a choice that does not depend on the keys
        send(memory, ["a"] * 20, 20)
        for number in stored(memory):
            included[number] += 1
    others = np.array([number for number in range(40) if number >= 20 or number % 4])
    assert included.sum() == included[others].sum()
    assert chisquare(included[others]).pvalue > 0.001
