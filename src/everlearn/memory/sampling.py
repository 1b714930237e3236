"""Sampling without replacement within classes, and samples by class."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from everlearn.memory.base import Integers

__all__ = ["choose_distinct", "draw_with_retries", "groups"]


def groups(slots: Integers) -> tuple[Integers, Integers, Integers]:
    """The classes in sorted slots; for each sample, the place of its class among these, and its own within the class.

    >>> [part.tolist() for part in groups(np.array([3, 3, 5, 7, 7, 7]))]
    [[3, 5, 7], [0, 0, 1, 2, 2, 2], [0, 1, 0, 0, 1, 2]]
    """
    starts = np.ones(len(slots), bool)
    np.not_equal(slots[1:], slots[:-1], out=starts[1:])
    first, group = starts.nonzero()[0], starts.cumsum() - 1
    return slots[first], group, np.arange(len(slots)) - first[group]


def choose_distinct(counts: Integers, slots: Integers, turns: Integers, random: Integers) -> Integers:
    """A uniform choice of distinct exemplars within each class, by Floyd's algorithm.

    To choose k of n: turn j = 0 … k − 1 draws one of the first n − k + j + 1, and takes the last of these instead if
    the drawn one is already chosen.

    counts: the number of exemplars of each class, `[classes]`. slots, turns: the class of each draw, and its turn
    within that class, in order. random: a random integer for each draw.
    """
    last = (counts - np.bincount(slots, minlength=len(counts)))[slots] + turns
    draws = random % (last + 1)
    chosen: set[tuple[int, int]] = set()
    picks = []
    for slot, draw, top in zip(slots.tolist(), draws.tolist(), last.tolist(), strict=True):
        pick = top if (slot, draw) in chosen else draw
        chosen.add((slot, pick))
        picks.append(pick)
    return np.array(picks)


def draw_with_retries(
    counts: Integers, quota: int, count: int, random: Callable[[int], Integers]
) -> tuple[Integers, Integers]:
    """Distinct exemplars of classes drawn uniformly, where no class can run out and duplicates are rare.

    If an exemplar is drawn twice, all are drawn again from the same classes.

    counts: the number of exemplars of each class, of which class c has the entries from c · quota on.
    random: a function that gives this many random integers. Returns entries and slots.
    """
    numbers = random(2 * count)
    slots = numbers[:count] % len(counts)
    starts, sizes = slots * quota, counts[slots]
    entries = starts + numbers[count:] % sizes
    while len(set(entries.tolist())) < count:
        entries = starts + random(count) % sizes
    return entries, slots
