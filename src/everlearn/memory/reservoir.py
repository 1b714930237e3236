"""M_r without classes: a reservoir, Vitter's Algorithm R.

The first `size` samples fill it. The n-th sample after that draws one of n places and is kept if
that place is one of the reservoir's, in place of what lay there. So what is kept is at all times a
uniform sample of all that ever came, whatever its classes: a class that sends much keeps much.

Vitter, J. S. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software, 1985.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory, without
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["ReservoirMemory"]


class ReservoirMemory(ReplayMemory):
    """At most `size` exemplars, a uniform sample of the stream."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.seen = 0  # samples that ever came
        self._came: Integers = np.zeros(0, np.int64)  # of each class
        # Of samples that were forgotten, and that no sample has come in place of since: those that had been kept,
        # and those that had not.
        self._vacant = self._passed = 0
        self._slots: Integers = np.zeros(size, np.int64)  # the class of each row

    def __len__(self) -> int:
        """How many exemplars are kept."""
        return min(self.seen, self.size) - self._vacant

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
        self._count(np.bincount(slots))
        if self._vacant or self._passed:
            return self._admit_in_place_of_forgotten(slots)
        return self._admit(slots)

    def _admit(self, slots: Integers) -> Integers:
        order = np.arange(len(slots))
        numbers = self.seen + order + 1  # the n-th sample of all draws one of n places
        places = np.where(numbers <= self.size, numbers - 1, self._random_integers(len(slots)) % numbers)
        rows = np.minimum(places, self.size)
        last = np.zeros(self.size + 1, np.int64)
        last[rows] = order  # of several samples for one row the last one stays
        rows = np.where(last[rows] == order, rows, self.size)
        kept = rows < self.size
        assign(self._slots, rows[kept], slots[kept])
        self.seen += len(slots)
        return rows

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots[: len(self)]

    def _book(self) -> dict[str, Integers]:
        return {
            "slots": self._slots[: len(self)],
            "seen": np.array([self.seen]),
            "came": self._came,
            "forgotten": np.array([self._vacant, self._passed]),
        }

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        self.seen, self._came = int(book["seen"][0]), book["came"]
        self._vacant, self._passed = book["forgotten"].tolist()
        if not len(self) == samples == len(book["slots"]):
            raise ValueError(f"a memory of {self.size} that saw {self.seen} samples can't keep {samples}")
        self._slots[:samples] = book["slots"]

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars; what is left is a uniform sample of all else that came.

        It stays one by random pairing: each sample that comes next stands in for a forgotten one, and is kept if
        that one had been. Gemulla, R., Lehner, W. and Haas, P. J. Maintaining bounded-size sample synopses of
        evolving datasets. The VLDB Journal, 2008.
        """
        rows, slots = self.kept()
        stays = slots != slot
        gone = int(len(slots) - stays.sum())
        slots = without(slots[stays], slot)
        if self.rows is not None:
            self._lay_out(self._in_rows(rows[stays]))
        self._slots[: len(slots)] = slots
        self._vacant += gone
        self._passed += int(self._came[slot]) - gone
        self._came = np.delete(self._came, slot)

    def _admit_in_place_of_forgotten(self, slots: Integers) -> Integers:
        """Each sample stands in for a forgotten one that is drawn; as soon as none is left, all is as it was."""
        rows = np.full(len(slots), self.size)
        draws = self._random_integers(len(slots)).tolist()
        for i, draw in enumerate(draws):
            if not self._vacant + self._passed:
                rest = self._admit(slots[i:])
                rows[:i][np.isin(rows[:i], rest)] = self.size  # kept, and overwritten within this batch
                rows[i:] = rest
                break
            if draw % (self._vacant + self._passed) < self._vacant:
                rows[i] = len(self)
                assign(self._slots, rows[i], slots[i])
                self._vacant -= 1
            else:
                self._passed -= 1
        return rows

    def merge(self, other: ReservoirMemory, slots: Integers) -> None:
        """Draw a uniform sample of both streams: so many of each as a draw from all samples would have.

        Forgotten samples that none has come in place of take part, and stay forgotten.
        """
        places = min(self.size, self.seen + other.seen)
        mine = self._share_of(self.seen, other.seen, places)
        rows = self._some_of(self, mine)
        other_rows = self._some_of(other, places - mine)
        kept, other_kept = rows[rows < len(self)], other_rows[other_rows < len(other)]
        samples = self._in_rows(kept)
        owners = np.append(self._slots[kept], slots[other._slots[other_kept]])
        self._lay_out(torch.cat([samples, other._in_rows(other_kept).to(samples.device)]))
        forgotten = self._vacant + self._passed + other._vacant + other._passed
        self.seen += other.seen
        self._vacant = places - len(owners)
        self._passed = forgotten - self._vacant
        self._count(np.bincount(slots, other._came).astype(np.int64))
        self._slots[: len(owners)] = owners

    def _count(self, came: Integers) -> None:
        """So many more of each class came."""
        more = len(came) - len(self._came)
        self._came = np.append(self._came, np.zeros(max(more, 0), np.int64))  # a new array
        self._came[: len(came)] += came

    def _share_of(self, mine: int, theirs: int, count: int) -> int:
        """How many of `count` samples drawn without replacement from two streams come from the first."""
        drawn = 0
        for i, number in enumerate(self._random_integers(count).tolist()):
            drawn += number % (mine + theirs - i) < mine - drawn
        return drawn

    def _some_of(self, memory: ReservoirMemory, count: int) -> Integers:
        """Places of a reservoir, the vacant ones included; the vacant are the last."""
        places = len(memory) + memory._vacant
        chosen: Integers = torch.randperm(places, generator=self._generator)[:count].numpy()
        return chosen
