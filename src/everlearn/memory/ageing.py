"""Exemplars that age: a class-balanced reservoir in which a newer sample is more likely to be kept.

The weight of a sample halves with every `half_life` later samples of its own class. A class keeps the samples with
the largest keys log(weight) − log(−log u), u uniform: a weighted sample without replacement (Efraimidis and Spirakis
2006). With every sample that arrives, the weights of all others of its class fall by the same factor. So keys need
not change: a new sample gets one that is larger by log(2) / half_life than it would have been for the sample before.

The clock of a class stands still while the class is away. So its exemplars stay, however long it takes to return.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from everlearn.memory.base import LARGEST, Integers
from everlearn.memory.sampling import groups

if TYPE_CHECKING:
    from everlearn.memory.class_balanced import BalancedMemory

__all__ = ["ageing_keys", "arrivals", "keys_of_another", "new_keys", "quota_of"]

UNIT = 2.0**32  # keys are whole numbers of 1 / UNIT
LOWEST = 8  # added to every key, so that it is positive: −log(−log u) is above −4 for 63 random bits
KEPT = 2  # half-lives that the exemplars of a class span at most, where samples are plenty


def arrivals(slots: Integers, arrived: Integers) -> Integers:
    """For each sample of a batch, how many of its class have arrived, itself included.

    >>> arrivals(np.array([0, 1, 0]), np.array([5, 0])).tolist()
    [6, 1, 7]
    """
    order = np.argsort(slots, kind="stable")
    numbers = np.empty(len(slots), np.int64)
    numbers[order] = groups(slots[order])[2] + 1
    return numbers + arrived[slots]


def new_keys(memory: BalancedMemory, slots: Integers) -> Integers:
    """The keys of new samples: random, and larger for later ones if exemplars age."""
    random = memory._random_integers(len(slots))
    if not memory.half_life:
        return random + 1
    numbers = arrivals(slots, memory._arrived)
    memory._arrived = memory._arrived + np.bincount(slots, minlength=len(memory._arrived))
    return ageing_keys(random, numbers, memory.half_life)


def ageing_keys(random: Integers, numbers: Integers, half_life: int) -> Integers:
    """Keys of samples. random: 63 random bits for each. numbers: how many of its class have arrived with it."""
    uniform = (random.astype(np.float64) + 0.5) / LARGEST
    gumbel = -np.log(-np.log(np.minimum(uniform, 1 - 2.0**-53)))
    keys: Integers = ((gumbel + LOWEST) * UNIT).astype(np.int64)
    later: Integers = np.rint(numbers * _step(half_life)).astype(np.int64)
    return keys + later + 1


def quota_of(size: int, classes: int, half_life: int) -> int:
    """How many exemplars a class may have: its share of the memory; if they age, at most two half-lives."""
    share = size // max(classes, 1)
    return min(share, max(KEPT * half_life, 1)) if half_life else share


def keys_of_another(
    memory: BalancedMemory, other: BalancedMemory, slots: Integers
) -> tuple[Integers, Integers]:
    """The keys and thresholds of another memory, as if its newest samples had arrived with the newest ones here.

    slots: the slot in `memory` of each class of `other`.
    """
    ahead = memory._arrived[slots] - other._arrived
    shift = np.rint(ahead * _step(memory.half_life)).astype(np.int64)
    entries, owners = other._entries()
    dropped = np.where(other._dropped > 0, np.maximum(other._dropped + shift, 1), 0)
    return np.maximum(other._keys[entries] + shift[owners], 1), dropped


def _step(half_life: int) -> float:
    return math.log(2) / half_life * UNIT
