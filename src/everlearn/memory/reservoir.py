"""M_r without classes: a reservoir, Vitter's Algorithm R.

The first `size` samples fill it. The n-th sample after that draws one of n places and is kept if
that place is one of the reservoir's, in place of what lay there. So what is kept is at all times a
uniform sample of all that ever came, whatever its classes: a class that sends much keeps much.

Vitter, J. S. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software, 1985.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory
from everlearn.memory.labels import LabelTable

__all__ = ["ReservoirMemory"]


class ReservoirMemory(ReplayMemory):
    """At most `size` exemplars, a uniform sample of the stream."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.seen = 0  # samples that ever came
        self._slots: Integers = np.zeros(size, np.int64)  # the class of each row

    def __len__(self) -> int:
        """How many exemplars are kept."""
        return min(self.seen, self.size)

    def open_classes(self, classes: int) -> None:
        """Nothing changes: a reservoir shares nothing out."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are kept).

        The first that differ among twice as many drawn with replacement; a whole shuffle where that is too few.
        """
        kept = len(self)
        count = min(count, kept)
        numbers = self._random_integers(2 * count) % max(kept, 1)
        rows = np.array(list(dict.fromkeys(numbers.tolist()))[:count], np.int64)
        if len(rows) < count:
            rows = torch.randperm(kept, generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def admit(self, slots: Integers) -> Integers:
        """Decide where each new sample is kept: its row, the last row for nowhere."""
        order = np.arange(len(slots))
        numbers = self.seen + order + 1  # the n-th sample of all draws one of n places
        places = np.where(numbers <= self.size, numbers - 1, self._random_integers(len(slots)) % numbers)
        rows = np.minimum(places, self.size)
        last = np.zeros(self.size + 1, np.int64)
        last[rows] = order  # of several samples for one row the last one stays
        rows = np.where(last[rows] == order, rows, self.size)
        kept = rows < self.size
        self._slots[rows[kept]] = slots[kept]
        self.seen += len(slots)
        return rows

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots[: len(self)]

    def _book(self) -> dict[str, Integers]:
        return {"slots": self._slots[: len(self)], "seen": np.array([self.seen])}

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        self.seen = int(book["seen"][0])
        if not len(self) == samples == len(book["slots"]):
            raise ValueError(f"a memory of {self.size} that saw {self.seen} samples can't keep {samples}")
        self._slots[:samples] = book["slots"]
