"""M_r by herding: for each class, the samples whose mean is nearest to the mean of the class.

Herding needs all samples of a class at once, so everything that arrives is stored until the horizon ends. Then the
exemplars are chosen and the rest is dropped. The exemplars of a class are stored in the order in which they were
chosen, so the first k are always the best k: the list is truncated when new classes reduce the quota.

Welling, M. Herding Dynamical Weights to Learn. ICML 2009.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from everlearn.arrays import in_float64
from everlearn.memory.base import Integers, ReplayMemory, remove_slot, write_rows
from everlearn.memory.labels import LabelTable

__all__ = ["HerdedMemory", "herd"]


def herd(features: Tensor, count: int, unit_length: bool = False) -> Tensor:
    """The indices of the chosen samples, the best first: each brings their mean nearest to the mean of all.

    features: `[samples, d]`. count: how many to choose; all, if there are not more.
    unit_length: whether features and their means are normalised to unit length.

    >>> herd(torch.tensor([[0.0], [4.0], [1.0], [6.0]]), 3)
    tensor([1, 2, 3])
    """
    device, features = features.device, in_float64(features)
    shape = torch.nn.functional.normalize if unit_length else torch.clone
    mean = shape(features.mean(0, keepdim=True))  # [1, d]
    total = torch.zeros_like(mean)
    excluded = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    chosen = torch.empty(min(count, len(features)), dtype=torch.int64, device=features.device)
    for i in range(len(chosen)):
        means = shape((total + features) / (i + 1))  # of the chosen samples plus one more, [samples, d]
        best = (torch.linalg.vector_norm(means - mean, dim=1) + excluded).argmin()
        total += features[best]
        excluded[best] = torch.inf
        chosen[i] = best
    return chosen.to(device)


class HerdedMemory(ReplayMemory):
    """At most `size` exemplars, ⌊size / classes⌋ of each class; and all samples since the last refresh."""

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self._slots: Integers = np.zeros(0, np.int64)  # the class of each exemplar, class after class
        self.horizon: Tensor | None = None  # samples since the last refresh; its capacity doubles
        self._came: Integers = np.zeros(0, np.int64)  # the slots of these samples

    def __len__(self) -> int:
        """The number of exemplars."""
        return len(self._slots)

    def allocate(self, like: Tensor, device: torch.device) -> None:
        """Allocate the rows for samples of this shape and type."""
        super().allocate(like, device)
        self.horizon = torch.zeros(0, *like.shape[1:], dtype=like.dtype, device=device)

    def open_classes(self, classes: int) -> None:
        """Nothing to do: the exemplars are chosen again when the horizon ends."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are stored)."""
        rows: Integers = torch.randperm(len(self), generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def draw_of_each(self) -> tuple[Integers, Integers]:
        """Row and slot of one random exemplar of each class that has any."""
        slots, firsts, counts = np.unique(self._slots, return_index=True, return_counts=True)
        return firsts + self._random_integers(len(slots)) % np.maximum(counts, 1), slots

    def admit(self, slots: Integers) -> Integers:
        """The row of the horizon where each new sample is stored until it ends."""
        assert self.horizon is not None
        start = len(self._came)
        self._came = np.concatenate([self._came, slots])
        if len(self._came) > len(self.horizon):
            room = max(2 * len(self.horizon), len(self._came))
            grown = self.horizon.new_zeros(room, *self.horizon.shape[1:])
            grown[:start] = self.horizon[:start]
            self.horizon = grown
        return np.arange(start, len(self._came))

    def overwritten(self, rows: Tensor) -> Tensor:
        """What is in these rows of the horizon."""
        assert self.horizon is not None
        return self.horizon[rows]

    def write(self, x: Tensor, rows: Tensor) -> None:
        """Write samples to the rows of the horizon that `admit` chose."""
        assert self.horizon is not None
        write_rows(self.horizon, rows, x)

    def refresh(self, choose: Callable[[Tensor, int], Tensor]) -> bool:
        """End the horizon: choose the exemplars of its classes, truncate the lists of the others.

        The exemplars of a class are chosen from its old exemplars and its new samples. False if there are no new
        samples.
        choose: a function of the samples of one class and a number; returns the indices of so many, the best first.
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
        """Bytes of the exemplars and their index."""
        return self._slots.nbytes + (0 if self.rows is None else self.rows.nbytes)

    def horizon_nbytes(self) -> int:
        """Bytes of what came since the last refresh."""
        return self._came.nbytes + (0 if self.horizon is None else self.horizon.nbytes)

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots

    def _index_state(self) -> dict[str, Integers]:
        return {"slots": self._slots, "came": self._came}

    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        if not samples == len(index["slots"]) <= self.size:
            raise ValueError(
                f"a memory of size {self.size} with {len(index['slots'])} slots can't hold {samples} exemplars"
            )
        self._slots, self._came = index["slots"], index["came"]

    def state(self) -> dict[str, Tensor]:
        """The whole memory as tensors, including the horizon."""
        state = super().state()
        if self.horizon is not None:
            state["horizon"] = self.horizon[: len(self._came)].clone()
        return state

    def restore(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Load a state that `state` returned."""
        horizon = state["horizon"]
        super().restore({name: part for name, part in state.items() if name != "horizon"}, device)
        samples = state["samples"]
        if len(horizon) != len(self._came):
            raise ValueError(f"the horizon has {len(horizon)} samples, but {len(self._came)} slots")
        if (horizon.shape[1:], horizon.dtype) != (samples.shape[1:], samples.dtype):
            raise ValueError(
                f"the samples of the horizon are {list(horizon.shape[1:])} of {horizon.dtype}, "
                f"but the exemplars are {list(samples.shape[1:])} of {samples.dtype}"
            )
        if len(self._came) and not 0 <= self._came.min() <= self._came.max() < len(self._labels):
            raise ValueError(f"the horizon has samples of more than {len(self._labels)} classes")
        self.horizon = horizon.to(device).clone()

    # Forget and edit.

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars and samples; the lists of the other classes stay as they are."""
        if self.rows is None or self.horizon is None:
            return
        _, slots = self.stored()
        stays = np.flatnonzero(slots != slot)
        self.edit(stays, remove_slot(slots[stays], slot))

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the exemplars and samples of the horizon, with new classes.

        An exemplar that moves to another class is the last of its list.
        """
        samples, owners = self.stored()
        assert self.horizon is not None
        old, moved = order < len(self), slots != owners[order]
        by_class = np.lexsort((order[old], moved[old], slots[old]))
        exemplars, self._slots = order[old][by_class], slots[old][by_class]
        self._replace_samples(samples[torch.from_numpy(exemplars).to(samples.device)])
        self.horizon = samples[torch.from_numpy(order[~old]).to(samples.device)]
        self._came = slots[~old]
        return np.append(exemplars, order[~old])

    def stored(self) -> tuple[Tensor, Integers]:
        """The exemplars and the samples of the horizon, and the slots of both."""
        if self.rows is None or self.horizon is None:
            return torch.empty(0), np.zeros(0, np.int64)
        samples = torch.cat([self.rows[: len(self)], self.horizon[: len(self._came)]])
        return samples, np.append(self._slots, self._came)
