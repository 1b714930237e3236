"""M_r: the replay memory of CoPE, a class-balanced reservoir.

Every sample gets a random 63-bit key when it arrives. A class keeps the samples with its ⌊|M_r| / |Y|⌋ largest
keys and remembers the largest key it ever dropped; only samples with larger keys enter. So the exemplars of a class
are always a uniform sample of all its samples: while it fills, after a new class has reduced the quota, and after
the quota has grown again.

This is the index. The samples are rows of one tensor on the device, that `recall` reads and `write` writes (base.py).
What rarely happens to the index is in class_balanced_changes.py: another quota, forgetting, merging, saving.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory import class_balanced_changes as changes
from everlearn.memory.ageing import new_keys, quota_of
from everlearn.memory.base import Integers, ReplayMemory
from everlearn.memory.labels import LabelTable
from everlearn.memory.sampling import choose_distinct, draw_with_retries, groups
from everlearn.transaction import assign

__all__ = ["BalancedMemory"]

NO_KEY = 0  # keys start at 1, so that an array of zeros has none and takes no memory before it is used


class BalancedMemory(ReplayMemory):
    """At most `size` exemplars, shared equally by the classes seen."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self._quota = size
        # The index: class c has the entries [c · quota, c · quota + counts[c]) of keys and places.
        self._keys: Integers = np.zeros(size, np.int64)
        self._places: Integers = np.zeros(size, np.int64)  # the row of each entry's sample
        self._used = 0  # rows from here on were never used
        self._free: list[int] = []  # rows before it that are free again
        self._counts: Integers = np.zeros(0, np.int64)
        self._dropped: Integers = np.zeros(0, np.int64)  # the largest key each class ever dropped
        self._floor: Integers = np.zeros(0, np.int64)  # only larger keys enter
        self.half_life = 0  # 0: exemplars do not age, and are a uniform sample (ageing.py)
        self._arrived: Integers = np.zeros(0, np.int64)  # how many samples of each class have, if they age

    def __len__(self) -> int:
        """The number of exemplars."""
        return int(self._counts.sum())

    def open_classes(self, classes: int) -> None:
        """Share the memory among this many classes: the quota shrinks, and each class keeps its largest keys."""
        new = classes - len(self._counts)
        changes.set_quota(self, quota_of(self.size, classes, self.half_life))
        self._counts = np.append(self._counts, np.zeros(new, np.int64))
        self._dropped = np.append(self._dropped, np.full(new, NO_KEY, np.int64))
        self._floor = np.append(self._floor, np.full(new, NO_KEY, np.int64))
        self._arrived = np.append(self._arrived, np.zeros(new, np.int64))

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, class-uniform, without replacement (fewer if fewer are stored).

        Each comes from a class drawn uniformly among those with exemplars left. This is simulated by one Poisson
        process per class: each class with exemplars left is equally likely to have the next event.
        """
        count = min(count, len(self))
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        smallest = self._counts.min()
        if smallest >= count and smallest * len(self._counts) >= count * count:
            entries, slots = draw_with_retries(self._counts, self._quota, count, self._random_integers)
            return self._places[entries], slots
        most = min(count, self._quota)  # of one class
        times = torch.empty(len(self._counts), most).exponential_(generator=self._generator).numpy().cumsum(1)
        times[np.arange(most) >= self._counts[:, None]] = np.inf
        first = np.argsort(times, axis=None)[:count]
        slots, turns = np.divmod(first, most)  # the turns of a class are 0, 1, 2, …
        chosen = choose_distinct(self._counts, slots, turns, self._random_integers(count))
        return self._places[slots * self._quota + chosen], slots

    def admit(self, slots: Integers) -> Integers:
        """Give each new sample a key; returns the row where it is stored, the last row for samples that are not."""
        keys = new_keys(self, slots)
        rows = np.full(len(slots), self.size)
        enters = keys > self._floor[slots]
        self._dropped = self._dropped.copy()
        np.maximum.at(self._dropped, slots, np.where(enters, NO_KEY, keys))
        entering = enters.nonzero()[0]
        if len(entering):  # fewer and fewer, the more samples of a class have arrived
            self._insert(entering, slots[entering], keys[entering], rows)
        return rows

    def _insert(self, samples: Integers, slots: Integers, keys: Integers, rows: Integers) -> None:
        """Add samples whose keys are above the floor of their classes to the index, and set their `rows`."""
        order = np.lexsort((-keys, slots))  # class by class, the largest keys first
        samples, slots, keys = samples[order], slots[order], keys[order]
        classes, group, rank = groups(slots)
        able = rank < self._quota
        np.maximum.at(self._dropped, slots[~able], keys[~able])
        samples, slots, keys, group, rank = (part[able] for part in (samples, slots, keys, group, rank))

        # The largest new key is compared with the smallest key of its class and replaces it if larger, the second
        # largest with the second smallest, and so on. Empty entries, which follow the ones in use, are filled first.
        index = self._keys[: len(self._counts) * self._quota].reshape(-1, self._quota)
        entries = self._counts[slots] + rank
        fills = entries < self._quota
        if not fills.all():
            held, most = index[classes], int(rank.max()) + 1
            smallest = np.argpartition(held, most - 1, axis=1)[:, :most]
            lines = np.arange(len(classes))[:, None]
            smallest = smallest[lines, held[lines, smallest].argsort(1)]
            entries = np.where(fills, entries, smallest[group, rank])
        others = index[slots, entries]
        wins = keys > others
        assign(index, (slots, entries), np.maximum(keys, others))
        np.maximum.at(self._dropped, slots, np.minimum(keys, others))
        entries = entries + slots * self._quota
        assign(self._places, entries[fills], self._take_free_rows(int(fills.sum())))
        rows[samples[wins]] = self._places[entries[wins]]
        self._counts = self._counts + np.bincount(slots[fills], minlength=len(self._counts))
        self._floor = self._floor.copy()
        self._floor[classes] = self._dropped[classes]
        full = classes[self._counts[classes] == self._quota]
        self._floor[full] = index[full].min(1)

    def _take_free_rows(self, count: int) -> list[int]:
        """Mark `count` free rows as used, and return them."""
        reused = min(count, len(self._free))
        left = len(self._free) - reused
        rows = [*self._free[left:], *range(self._used, self._used + count - reused)]
        self._free, self._used = self._free[:left], self._used + count - reused
        return rows

    def _entries(self) -> tuple[Integers, Integers]:
        """The used entries of the index, class by class, and the class of each."""
        slots = np.repeat(np.arange(len(self._counts)), self._counts)
        starts = np.repeat(self._counts.cumsum() - self._counts, self._counts)
        return slots * self._quota + np.arange(len(slots)) - starts, slots

    def kept(self) -> tuple[Integers, Integers]:
        entries, slots = self._entries()
        return self._places[entries], slots

    forget = changes.forget
    edit = changes.edit
    merge = changes.merge
    _index_state = changes.index_state
    _restore_index = changes.restore_index
