"""M_r by herding: for each class the few samples whose mean is nearest to the mean of all.

Herding looks at all samples of a class at once, so everything that arrives is kept until the
horizon ends; only then are the exemplars chosen, and the rest goes. A class's exemplars lie in the
order they were chosen, so that the first of them are always the best so many: the list is cut when
new classes shrink the quota.

Welling, M. Herding Dynamical Weights to Learn. ICML 2009.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from everlearn.memory.base import Integers, ReplayMemory, without, write_rows
from everlearn.memory.labels import LabelTable

__all__ = ["HerdedMemory", "herd"]


def herd(features: Tensor, count: int, unit_length: bool = False) -> Tensor:
    """Which samples to keep, the best first: each brings the mean of the chosen nearest to the mean of all.

    features: `[samples, d]`. count: how many; all, if there are no more.
    unit_length: features are directions, and so is the mean of some.

    >>> herd(torch.tensor([[0.0], [4.0], [1.0], [6.0]]), 3)
    tensor([1, 2, 3])
    """
    features = features.double()
    shape = torch.nn.functional.normalize if unit_length else torch.clone
    mean = shape(features.mean(0, keepdim=True))  # [1, d]
    total = torch.zeros_like(mean)
    barred = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    chosen = torch.empty(min(count, len(features)), dtype=torch.int64, device=features.device)
    for i in range(len(chosen)):
        means = shape((total + features) / (i + 1))  # of those chosen and each sample, [samples, d]
        best = (torch.linalg.vector_norm(means - mean, dim=1) + barred).argmin()
        total += features[best]
        barred[best] = torch.inf
        chosen[i] = best
    return chosen


class HerdedMemory(ReplayMemory):
    """At most `size` exemplars, ⌊size / classes⌋ of each class; and all that came since the last refresh."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self._slots: Integers = np.zeros(0, np.int64)  # the class of each exemplar, class after class
        self.horizon: Tensor | None = None  # what came since, in a room that doubles
        self._came: Integers = np.zeros(0, np.int64)  # and its classes

    def __len__(self) -> int:
        """How many exemplars are kept."""
        return len(self._slots)

    def allocate(self, like: Tensor, device: torch.device) -> None:
        """Make room for samples of this shape and type, once they are known."""
        super().allocate(like, device)
        self.horizon = torch.zeros(0, *like.shape[1:], dtype=like.dtype, device=device)

    def open_classes(self, classes: int) -> None:
        """Nothing changes until the exemplars are chosen anew."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are kept)."""
        rows: Integers = torch.randperm(len(self), generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def draw_of_each(self) -> tuple[Integers, Integers]:
        """Row and slot of one random exemplar of each class that has any."""
        slots, firsts, counts = np.unique(self._slots, return_index=True, return_counts=True)
        return firsts + self._random_integers(len(slots)) % np.maximum(counts, 1), slots

    def admit(self, slots: Integers) -> Integers:
        """Where each new sample is kept until the horizon ends."""
        assert self.horizon is not None
        start = len(self._came)
        self._came = np.concatenate([self._came, slots])
        if len(self._came) > len(self.horizon):
            room = max(2 * len(self.horizon), len(self._came))
            grown = self.horizon.new_zeros(room, *self.horizon.shape[1:])
            grown[:start] = self.horizon[:start]
            self.horizon = grown
        return np.arange(start, len(self._came))

    def write(self, x: Tensor, rows: Tensor) -> None:
        """Put samples into the rows of the horizon that `admit` gave them."""
        assert self.horizon is not None
        write_rows(self.horizon, rows, x)

    def refresh(self, choose: Callable[[Tensor, int], Tensor]) -> bool:
        """The horizon is over: choose the exemplars of the classes in it, cut the lists of the others.

        A class that came before is chosen from its exemplars and what came of it since. False if nothing came.
        choose: of samples of one class, the places of so many, the best first.
        """
        assert self.rows is not None and self.horizon is not None
        if not len(self._came):
            return False
        quota = self.size // len(self._labels)
        kept: list[Tensor] = []
        slots: list[int] = []
        for slot in np.union1d(self._slots, self._came).tolist():
            samples = self.rows[torch.from_numpy(np.flatnonzero(self._slots == slot)).to(self.rows.device)]
            came = torch.from_numpy(np.flatnonzero(self._came == slot)).to(self.rows.device)
            if len(came):
                samples = torch.cat([samples, self.horizon[came]])
                samples = samples[choose(samples, quota)]
            kept.append(samples[:quota])
            slots += [slot] * len(kept[-1])
        rows = torch.zeros_like(self.rows)
        rows[: len(slots)] = torch.cat(kept)
        self.rows, self._slots = rows, np.array(slots)
        self._came, self.horizon = self._came[:0].copy(), self.horizon[:0].clone()
        return True

    def nbytes(self) -> int:
        """Bytes of the exemplars and their book."""
        return self._slots.nbytes + (0 if self.rows is None else self.rows.nbytes)

    def horizon_nbytes(self) -> int:
        """Bytes of what came since the last refresh."""
        return self._came.nbytes + (0 if self.horizon is None else self.horizon.nbytes)

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots

    def _book(self) -> dict[str, Integers]:
        return {"slots": self._slots, "came": self._came}

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        if not samples == len(book["slots"]) <= self.size:
            raise ValueError(f"a memory of {self.size} with {len(book['slots'])} slots can't keep {samples}")
        self._slots, self._came = book["slots"], book["came"]

    def state(self) -> dict[str, Tensor]:
        """All of it, the horizon included."""
        state = super().state()
        if self.horizon is not None:
            state["horizon"] = self.horizon[: len(self._came)].clone()
        return state

    def restore(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Take up a state that `state` gave."""
        horizon = state["horizon"]
        super().restore({name: part for name, part in state.items() if name != "horizon"}, device)
        samples = state["samples"]
        if len(horizon) != len(self._came):
            raise ValueError(f"{len(self._came)} samples came, but {len(horizon)} are there")
        if (horizon.shape[1:], horizon.dtype) != (samples.shape[1:], samples.dtype):
            raise ValueError(
                f"what came is {list(horizon.shape[1:])} of {horizon.dtype}, unlike the exemplars"
            )
        if len(self._came) and not 0 <= self._came.min() <= self._came.max() < len(self._labels):
            raise ValueError(f"samples came of more than {len(self._labels)} classes")
        self.horizon = horizon.to(device).clone()

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars and what came of it; the others' lists stay as they are."""
        if self.rows is None or self.horizon is None:
            return
        stays, came = self._slots != slot, self._came != slot
        self._lay_out(self._in_rows(np.flatnonzero(stays)))
        self.horizon = self.horizon[torch.from_numpy(np.flatnonzero(came)).to(self.horizon.device)]
        self._slots, self._came = without(self._slots[stays], slot), without(self._came[came], slot)

    def all_samples(self) -> tuple[Tensor, Integers]:
        """The exemplars and what came since, and the classes of both."""
        assert self.rows is not None and self.horizon is not None
        samples = torch.cat([self.rows[: len(self)], self.horizon[: len(self._came)]])
        return samples, np.append(self._slots, self._came)
