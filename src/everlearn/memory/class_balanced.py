"""M_r: the replay memory, a class-balanced reservoir.

Every sample gets a random 64-bit key when it arrives. A class keeps its ⌊|M_r| / |Y|⌋ largest keys
and remembers the largest key it ever dropped; only larger keys enter. So what a class keeps is at
all times a uniform sample of all it ever sent: while it fills, after a new class has shrunk the
quota, and after a quota has grown again.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from everlearn.memory.base import LARGEST, Integers, ReplayMemory, without
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["BalancedMemory"]

# Inside, keys are 1, 2, …: so an array of zeros has none, and takes no memory before it is used. A state has them
# from 0 on, and −1 for none.
NO_KEY = 0


class BalancedMemory(ReplayMemory):
    """At most `size` exemplars, divided equally over the classes seen."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self._quota = size
        # Class c has the entries [c · quota, c · quota + counts[c]) of keys and places.
        self._keys: Integers = np.zeros(size, np.int64)
        self._places: Integers = np.zeros(size, np.int64)
        self._used = 0  # the rows from here on were never used
        self._free: list[int] = []  # those before it that are free again
        self._counts: Integers = np.zeros(0, np.int64)
        self._dropped: Integers = np.zeros(0, np.int64)  # the largest key that a class ever dropped
        self._floor: Integers = np.zeros(0, np.int64)  # only larger keys enter

    def __len__(self) -> int:
        """How many exemplars are kept."""
        return int(self._counts.sum())

    def open_classes(self, classes: int) -> None:
        """Share the memory among this many classes: the quota shrinks, and each keeps its largest keys."""
        new = classes - len(self._counts)
        self._share(self.size // classes)
        self._counts = np.append(self._counts, np.zeros(new, np.int64))
        self._dropped = np.append(self._dropped, np.full(new, NO_KEY, np.int64))
        self._floor = np.append(self._floor, np.full(new, NO_KEY, np.int64))

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, class-uniform, without replacement (fewer if fewer are kept).

        Each in turn comes from a class drawn uniformly among those that have unused exemplars left.
        That is a race of one Poisson process per class: whatever the others do, each running class is
        equally likely to be next, and a class that is used up has left the race.
        """
        count = min(count, len(self))
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        fewest = self._counts.min()
        if fewest >= count and fewest * len(self._counts) >= count * count:
            return self._draw_from_plenty(count)
        laps = torch.empty(len(self._counts), count).exponential_(generator=self._generator).numpy()
        times = laps.cumsum(1)
        times[np.arange(count) >= self._counts[:, None]] = np.inf
        first = np.argsort(times, axis=None)[:count]
        slots, turns = np.divmod(first, count)  # the turns of a class are 0 … its share − 1
        return self._places[slots * self._quota + self._distinct(slots, turns)], slots

    def _draw_from_plenty(self, count: int) -> tuple[Integers, Integers]:
        """The same where no class can run out, and a draw of the same exemplar twice is rare: draw again then."""
        numbers = self._random_integers(2 * count)
        slots = numbers[:count] % len(self._counts)
        starts, sizes = slots * self._quota, self._counts[slots]
        entries = starts + numbers[count:] % sizes
        while len(set(entries.tolist())) < count:
            entries = starts + self._random_integers(count) % sizes
        return self._places[entries], slots

    def admit(self, slots: Integers) -> Integers:
        """Give each new sample a key and decide where it is kept: its row, the last row for nowhere."""
        keys = self._random_integers(len(slots)) + 1
        rows = np.full(len(slots), self.size)
        enters = keys > self._floor[slots]
        self._dropped = self._dropped.copy()
        np.maximum.at(self._dropped, slots, np.where(enters, NO_KEY, keys))
        entering = enters.nonzero()[0]
        if len(entering):  # the longer a class is known, the fewer do
            self._enter(entering, slots[entering], keys[entering], rows)
        return rows

    # The book.

    def _enter(self, samples: Integers, slots: Integers, keys: Integers, rows: Integers) -> None:
        """Keep what can be kept of some samples whose keys are larger than all that their classes ever dropped."""
        order = np.lexsort((-keys, slots))  # class by class, the largest keys first
        samples, slots, keys = samples[order], slots[order], keys[order]
        classes, first, sizes = np.unique(slots, return_index=True, return_counts=True)
        group = np.repeat(np.arange(len(classes)), sizes)
        rank = np.arange(len(slots)) - first[group]
        able = rank < self._quota
        np.maximum.at(self._dropped, slots[~able], keys[~able])
        samples, slots, keys, group, rank = (part[able] for part in (samples, slots, keys, group, rank))

        # The largest meets the smallest that its class holds, the next the next, and takes its place if larger. An
        # empty entry is smaller than any; those of a class follow the ones in use.
        book = self._keys[: len(self._counts) * self._quota].reshape(-1, self._quota)
        entries = self._counts[slots] + rank
        fills = entries < self._quota
        if not fills.all():
            held, most = book[classes], int(rank.max()) + 1
            smallest = np.argpartition(held, most - 1, axis=1)[:, :most]
            smallest = np.take_along_axis(smallest, np.take_along_axis(held, smallest, 1).argsort(1), 1)
            entries = np.where(fills, entries, smallest[group, rank])
        others = book[slots, entries]
        wins = keys > others
        assign(book, (slots, entries), np.maximum(keys, others))
        np.maximum.at(self._dropped, slots, np.minimum(keys, others))
        entries = entries + slots * self._quota
        assign(self._places, entries[fills], self._free_rows(int(fills.sum())))
        rows[samples[wins]] = self._places[entries[wins]]
        self._counts = self._counts + np.bincount(slots[fills], minlength=len(self._counts))
        self._floor = self._floor.copy()
        self._floor[classes] = self._dropped[classes]
        full = classes[self._counts[classes] == self._quota]
        self._floor[full] = book[full].min(1)

    def _free_rows(self, count: int) -> list[int]:
        """So many rows that nobody uses, which are in use from now on."""
        again = min(count, len(self._free))
        left = len(self._free) - again
        rows = [*self._free[left:], *range(self._used, self._used + count - again)]
        self._free, self._used = self._free[:left], self._used + count - again
        return rows

    def _share(self, quota: int) -> None:
        """Lay the book out anew for another quota; only the book moves, no sample does."""
        seen = len(self._counts)
        keys = self._keys[: seen * self._quota].reshape(seen, self._quota)
        places = self._places[: seen * self._quota].reshape(seen, self._quota)
        self._keys, self._places = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        if seen:
            order = np.argsort(-keys, axis=1)
            keys = np.take_along_axis(keys, order, 1)
            places = np.take_along_axis(places, order, 1)
            gone = keys[:, quota:]
            self._free = self._free + places[:, quota:][gone != NO_KEY].tolist()
            if gone.shape[1]:
                self._dropped = np.maximum(self._dropped, gone[:, 0])
            kept = min(quota, self._quota)
            self._keys[: seen * quota].reshape(seen, quota)[:, :kept] = keys[:, :kept]
            self._places[: seen * quota].reshape(seen, quota)[:, :kept] = places[:, :kept]
            self._counts = np.minimum(self._counts, quota)
            smallest = np.where(self._counts == quota, keys[:, kept - 1], NO_KEY)
            self._floor = np.maximum(self._dropped, smallest)
        self._quota = quota

    def _entries(self) -> tuple[Integers, Integers]:
        """The entries of the book in use, class by class, and the class of each."""
        slots = np.repeat(np.arange(len(self._counts)), self._counts)
        starts = np.repeat(self._counts.cumsum() - self._counts, self._counts)
        return slots * self._quota + np.arange(len(slots)) - starts, slots

    def _distinct(self, slots: Integers, turns: Integers) -> Integers:
        """A uniform choice of distinct exemplars within each class, by Floyd's algorithm.

        To choose k of n: the turn j = 0 … k − 1 draws one of the first n − k + j + 1; what was chosen
        before is replaced by the last of these. The turns of a class come in order.
        """
        last = (self._counts - np.bincount(slots, minlength=len(self._counts)))[slots] + turns
        draws = self._random_integers(len(slots)) % (last + 1)
        chosen: set[tuple[int, int]] = set()
        picks = []
        for slot, draw, top in zip(slots.tolist(), draws.tolist(), last.tolist(), strict=True):
            pick = top if (slot, draw) in chosen else draw
            chosen.add((slot, pick))
            picks.append(pick)
        return np.array(picks)

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        entries, slots = self._entries()
        return self._places[entries], slots

    def _book(self) -> dict[str, Integers]:
        keys = self._keys[self._entries()[0]]
        return {
            "keys": keys - 1,
            "counts": self._counts,
            "dropped": self._dropped - 1,
            "floor": self._floor - 1,
        }

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        keys, self._counts = book["keys"] + 1, book["counts"]
        self._dropped, self._floor = book["dropped"] + 1, book["floor"] + 1
        counted = self._counts.ndim == 1 and self._counts.sum() == samples and (self._counts >= 0).all()
        shapes = {part.shape for part in (self._counts, self._dropped, self._floor)}
        sized = keys.shape == (samples,) and samples <= self.size and len(self._counts) <= self.size
        if not (counted and sized and len(shapes) == 1):
            raise ValueError(
                f"a memory of {self.size} can't take {samples} exemplars of {len(self._counts)} classes"
            )
        self._quota = self.size // max(len(self._counts), 1)
        if samples and self._counts.max() > self._quota:
            raise ValueError(
                f"a class keeps {self._counts.max()} exemplars, and at most {self._quota} can be"
            )
        entries, _ = self._entries()
        self._keys, self._places = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        self._keys[entries] = keys
        self._places[entries] = np.arange(samples)
        self._used, self._free = samples, []

    def restore(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Take up a state that `state` gave."""
        if state["counts"].shape != (len(self._labels),):
            raise ValueError(
                f"the memory is shared by {list(state['counts'].shape)} of {len(self._labels)} classes"
            )
        super().restore(state, device)

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars and keys, for good; the quota of the others grows again."""
        rows, slots = self.kept()
        book = self._book()
        stays = slots != slot
        kept = self._in_rows(rows[stays])
        keys, slots = book["keys"][stays], without(slots[stays], slot)
        dropped = self._for_a_larger_quota(keys, slots, np.delete(book["dropped"], slot))
        self._lay_out(kept)
        self._close(keys, slots, dropped)

    def _for_a_larger_quota(self, keys: Integers, owners: Integers, dropped: Integers) -> Integers:
        """The thresholds of classes that may keep more from now on.

        Of n samples a class keeps m, so each is kept with probability m / n, and so must the next one be. It lies
        above the largest key that was dropped with probability (m + 1) / (n + 1), and above the smallest key that
        is kept with m / (n + 1): each is the threshold by chance, the first with a probability of about m / n,
        the share of all keys that lie above it. As soon as the quota is full again, both come to the same.
        """
        classes = len(dropped)
        if self.size // max(classes, 1) == self._quota:
            return dropped
        full = np.bincount(owners, minlength=classes) == self._quota
        below = (
            torch.rand(classes, dtype=torch.float64, generator=self._generator).numpy() < dropped / LARGEST
        )
        return np.where(full & below, self._smallest(keys, owners, classes) - 1, dropped)

    @staticmethod
    def _smallest(keys: Integers, owners: Integers, classes: int) -> Integers:
        smallest = np.full(classes, LARGEST)
        np.minimum.at(smallest, owners, keys)
        return smallest

    def merge(self, other: BalancedMemory, slots: Integers) -> None:
        """Of each class keep the largest keys of both above the larger threshold.

        What the other keeps of a class are all its samples with keys above its threshold. Their keys are drawn
        anew above it: of the same distribution, and not the numbers that this memory drew from the same seed.
        """
        mine, theirs = self._book(), other._book()
        (rows, owners), (other_rows, other_owners) = self.kept(), other.kept()
        samples = torch.cat([self._in_rows(rows), other._in_rows(other_rows).to(self._in_rows(rows).device)])
        dropped = mine["dropped"].copy()
        dropped[slots] = np.maximum(dropped[slots], theirs["dropped"])
        drawn = self._random_keys_above(theirs["dropped"][other_owners])
        keys, owners = np.append(mine["keys"], drawn), np.append(owners, slots[other_owners])
        order = np.lexsort((-keys, owners))  # class by class, the largest key first
        keys, owners = keys[order], owners[order]
        firsts = np.searchsorted(owners, np.arange(len(dropped)))
        stays = (keys > dropped[owners]) & (np.arange(len(keys)) - firsts[owners] < self._quota)
        np.maximum.at(dropped, owners[~stays], keys[~stays])
        self._lay_out(samples[torch.from_numpy(order[stays]).to(samples.device)])
        self._close(keys[stays], owners[stays], dropped)

    def _random_keys_above(self, thresholds: Integers) -> Integers:
        room = LARGEST - 1 - thresholds
        shares = torch.rand(len(room), dtype=torch.float64, generator=self._generator).numpy()
        return thresholds + 1 + np.minimum((shares * room).astype(np.int64), room - 1)

    def _close(self, keys: Integers, owners: Integers, dropped: Integers) -> None:
        """Open the book anew, of exemplars that lie in the first rows, class by class."""
        classes = len(dropped)
        counts = np.bincount(owners, minlength=classes)
        full = counts == self.size // max(classes, 1)
        floor = np.where(full, np.maximum(dropped, self._smallest(keys, owners, classes)), dropped)
        self._reopen({"keys": keys, "counts": counts, "dropped": dropped, "floor": floor}, len(keys))
