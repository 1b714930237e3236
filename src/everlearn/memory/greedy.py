"""M_r by the greedy sampler of GDumb: as many exemplars of each class as there is room for.

A class takes samples while it has fewer than ⌊size / classes⌋. If the memory is full, a random exemplar of the
largest class makes room. So early samples stay, other than in a reservoir.

Prabhu, A., Torr, P. and Dokania, P. GDumb: A Simple Approach that Questions Our Progress in Continual Learning.
ECCV 2020.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory, remove_slot
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["GreedyMemory"]


class GreedyMemory(ReplayMemory):
    """At most `size` exemplars, greedily balanced over the classes seen."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self._filled = 0  # rows in use, which are the first ones
        self._slots: Integers = np.zeros(size, np.int64)  # the class of each row

    def __len__(self) -> int:
        """The number of exemplars."""
        return self._filled

    def open_classes(self, classes: int) -> None:
        """Nothing to do: shares shrink when samples of the new classes are stored."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are stored)."""
        rows = torch.randperm(len(self), generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def admit(self, slots: Integers) -> Integers:
        """Choose the row where each new sample is stored; the last row means that it is not stored."""
        rows = np.full(len(slots), self.size)
        owners, filled = self._slots.copy(), self._filled
        counts = np.bincount(owners[:filled], minlength=int(slots.max()) + 1)
        numbers = self._random_integers(len(slots)).tolist()
        for i, slot in enumerate(slots.tolist()):
            # A class that has no exemplar yet always gets one.
            if counts[slot] and counts[slot] >= self.size // max(int(np.count_nonzero(counts)), 1):
                continue
            row = filled
            if filled == self.size:
                largest = np.flatnonzero(owners == counts.argmax())
                row = int(largest[numbers[i] % len(largest)])
                counts[owners[row]] -= 1
                rows[:i][rows[:i] == row] = self.size  # stored and replaced within this batch
            else:
                filled += 1
            owners[row], rows[i] = slot, row
            counts[slot] += 1
        assign(self._slots, slice(None), owners)
        self._filled = filled
        return rows

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots[: len(self)]

    def _index_state(self) -> dict[str, Integers]:
        return {"slots": self._slots[: len(self)]}

    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        if not samples == len(index["slots"]) <= self.size:
            raise ValueError(
                f"a memory of size {self.size} can't hold {samples} exemplars with these classes"
            )
        self._filled = samples
        self._slots[:samples] = index["slots"]

    # Forget, edit and merge.

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars; others take their place later."""
        _, slots = self.kept()
        stays = np.flatnonzero(slots != slot)
        self.edit(stays, remove_slot(slots[stays], slot))

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the exemplars, with new classes; others take their place later."""
        if self.rows is not None:
            self._replace_samples(self._samples_in(order))
        self._filled = len(order)
        self._slots[: self._filled] = slots
        return order

    def merge(self, other: GreedyMemory, slots: Integers) -> None:
        """Let the other's exemplars come in random order, as if they were new samples."""
        order = torch.randperm(len(other), generator=self._generator).numpy()
        if len(order):
            rows = self.admit(slots[other._slots[order]])
            samples = other._samples_in(order)
            self.write(samples, torch.from_numpy(rows).to(samples.device))
