"""M_r as a reservoir (Vitter's Algorithm R), regardless of classes.

The first `size` samples fill it. After that, the n-th sample draws one of n places and is stored if that place is in
the reservoir, replacing its sample. So the exemplars are always a uniform sample of all samples that ever arrived:
a frequent class has many exemplars.

Vitter, J. S. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software, 1985.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import LARGEST, Integers, ReplayMemory, remove_slot
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["ReservoirMemory"]


class ReservoirMemory(ReplayMemory):
    """At most `size` exemplars, a uniform sample of the stream."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.seen = 0  # samples that ever arrived
        self._came: Integers = np.zeros(0, np.int64)  # samples that arrived of each class
        # Forgotten samples that no new sample has been paired with yet: those that were stored, and those that
        # were not.
        self._vacant = self._passed = 0
        self._slots: Integers = np.zeros(size, np.int64)  # the class of each row

    def __len__(self) -> int:
        """The number of exemplars."""
        return min(self.seen, self.size) - self._vacant

    def open_classes(self, classes: int) -> None:
        """Nothing to do: the memory is not shared by class."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are stored).

        They are the first distinct ones among twice as many draws with replacement, or the first ones of a
        permutation if those are too few.
        """
        kept = len(self)
        count = min(count, kept)
        numbers = self._random_integers(2 * count) % max(kept, 1)
        rows = np.array(list(dict.fromkeys(numbers.tolist()))[:count], np.int64)
        if len(rows) < count:
            rows = torch.randperm(kept, generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def admit(self, slots: Integers) -> Integers:
        """Choose the row where each new sample is stored; the last row means that it is not stored."""
        self._count(np.bincount(slots))
        if self._vacant or self._passed:
            return self._admit_paired(slots)
        return self._admit(slots)

    def _admit(self, slots: Integers) -> Integers:
        order = np.arange(len(slots))
        numbers = self.seen + order + 1  # the n-th sample of all draws one of n places
        places = np.where(numbers <= self.size, numbers - 1, self._random_integers(len(slots)) % numbers)
        rows = np.minimum(places, self.size)
        last = np.zeros(self.size + 1, np.int64)
        last[rows] = order  # if several samples get the same row, the last one stays
        rows = np.where(last[rows] == order, rows, self.size)
        kept = rows < self.size
        assign(self._slots, rows[kept], slots[kept])
        self.seen += len(slots)
        return rows

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots[: len(self)]

    def _index_state(self) -> dict[str, Integers]:
        return {
            "slots": self._slots[: len(self)],
            "seen": np.array([self.seen]),
            "came": self._came,
            "forgotten": np.array([self._vacant, self._passed]),
        }

    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        self.seen, self._came = int(index["seen"][0]), index["came"]
        self._vacant, self._passed = index["forgotten"].tolist()
        if not 0 <= self.seen <= LARGEST // 2:
            raise ValueError(f"a memory can't have seen {self.seen} samples")
        if not len(self) == samples == len(index["slots"]):
            raise ValueError(
                f"a memory of size {self.size} that saw {self.seen} samples can't hold {samples} exemplars"
            )
        if min(self._vacant, self._passed) < 0 or samples + self._vacant > self.size:
            raise ValueError(
                f"a memory of size {self.size} with {samples} exemplars can't have forgotten {self._vacant} more"
            )
        self._slots[:samples] = index["slots"]

    # Forget and merge.

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars; the rest is a uniform sample of all samples of other classes.

        Random pairing keeps it uniform: each new sample is paired with a forgotten one, and is stored if that one
        was. Gemulla, R., Lehner, W. and Haas, P. J. Maintaining bounded-size sample synopses of
        evolving datasets. The VLDB Journal, 2008.
        """
        rows, slots = self.kept()
        stays = slots != slot
        gone = int(len(slots) - stays.sum())
        slots = remove_slot(slots[stays], slot)
        if self.rows is not None:
            self._replace_samples(self._samples_in(rows[stays]))
        self._slots[: len(slots)] = slots
        self._vacant += gone
        self._passed += int(self._came[slot]) - gone
        self._came = np.delete(self._came, slot)

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the exemplars, with new classes; the others are forgotten as by `forget`."""
        rows, owners = self.kept()
        classes = len(self._labels)
        self._count(np.bincount(slots, minlength=classes) - np.bincount(owners, minlength=classes))
        self._replace_samples(self._samples_in(rows[order]))
        self._vacant += len(rows) - len(order)
        self._slots[: len(order)] = slots
        return order

    def _admit_paired(self, slots: Integers) -> Integers:
        """Pair each sample with a random forgotten one, until none is left."""
        rows = np.full(len(slots), self.size)
        draws = self._random_integers(len(slots)).tolist()
        for i, draw in enumerate(draws):
            if not self._vacant + self._passed:
                rest = self._admit(slots[i:])
                rows[:i][np.isin(rows[:i], rest)] = self.size  # overwritten within this batch
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
        """Draw a uniform sample of both streams: as many of each as a draw from all samples would have.

        Forgotten samples that are not paired yet take part, and stay forgotten.
        """
        places = min(self.size, self.seen + other.seen)
        mine = self._share_of(self.seen, other.seen, places)
        rows = self._some_of(self, mine)
        other_rows = self._some_of(other, places - mine)
        kept, other_kept = rows[rows < len(self)], other_rows[other_rows < len(other)]
        samples = self._samples_in(kept)
        owners = np.append(self._slots[kept], slots[other._slots[other_kept]])
        self._replace_samples(torch.cat([samples, other._samples_in(other_kept).to(samples.device)]))
        forgotten = self._vacant + self._passed + other._vacant + other._passed
        self.seen += other.seen
        self._vacant = places - len(owners)
        self._passed = forgotten - self._vacant
        self._count(np.bincount(slots, other._came).astype(np.int64))
        self._slots[: len(owners)] = owners

    def _count(self, came: Integers) -> None:
        """Add to the number of samples that arrived of each class."""
        more = len(came) - len(self._came)
        self._came = np.append(self._came, np.zeros(max(more, 0), np.int64))  # a new array
        self._came[: len(came)] += came

    def _share_of(self, mine: int, theirs: int, count: int) -> int:
        """How many of `count` samples, drawn without replacement from two streams, are from the first."""
        drawn = 0
        for i, number in enumerate(self._random_integers(count).tolist()):
            drawn += number % (mine + theirs - i) < mine - drawn
        return drawn

    def _some_of(self, memory: ReservoirMemory, count: int) -> Integers:
        """Random places of a reservoir, including the vacant ones, which are the last."""
        places = len(memory) + memory._vacant
        chosen: Integers = torch.randperm(places, generator=self._generator)[:count].numpy()
        return chosen
