"""M_r with a score for each exemplar, given by the learner, which decides which exemplar is replaced.

The memory fills in the order of arrival. Once it is full, the learner decides by the scores of the new samples; the
memory only stores them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from everlearn.memory.base import Integers, ReplayMemory, remove_slot
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["ScoredMemory"]


class ScoredMemory(ReplayMemory):
    """At most `size` exemplars, and one score each."""

    types: ClassVar[dict[str, torch.dtype]] = {"scores": torch.float32}

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.scores = torch.zeros(0)  # of each exemplar, on the host
        self._slots: Integers = np.zeros(size, np.int64)  # the class of each row

    def __len__(self) -> int:
        """The number of exemplars."""
        return len(self.scores)

    def open_classes(self, classes: int) -> None:
        """Nothing to do: the memory is not shared by class."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are stored)."""
        rows = torch.randperm(len(self), generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def admit(self, slots: Integers) -> Integers:
        """An empty row for each new sample while there are any, the last row for the others.

        Only `enter` changes the index, once the scores are known.
        """
        return np.minimum(len(self) + np.arange(len(slots)), self.size)

    def enter(self, x: Tensor, slots: Tensor, scores: Tensor, rows: Tensor) -> None:
        """Store samples with their scores in these rows: the next empty ones, or those of replaced exemplars."""
        self.write(x, rows)
        places, scores = rows.cpu(), scores.cpu()
        assign(self._slots, places.numpy(), slots.cpu().numpy())
        old = places < len(self)
        kept = torch.cat([self.scores, scores[~old]])  # a new tensor
        kept[places[old]] = scores[old]
        self.scores = kept

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        return np.arange(len(self)), self._slots[: len(self)]

    def _index_state(self) -> dict[str, Integers]:
        return {"slots": self._slots[: len(self)]}

    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        if not len(index["slots"]) == len(index["scores"]) == samples <= self.size:
            raise ValueError(f"a memory of size {self.size} can't hold {samples} exemplars with these scores")
        self._slots[:samples] = index["slots"]
        self.scores = torch.from_numpy(index["scores"])

    def state(self) -> dict[str, Tensor]:
        """The whole memory as tensors: exemplars in the order of the index, without empty rows."""
        return super().state() | {"scores": self.scores.clone()}

    # Forget and edit.

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars and their scores; their rows are filled again."""
        _, slots = self.kept()
        stays = np.flatnonzero(slots != slot)
        self.edit(stays, remove_slot(slots[stays], slot))

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the exemplars, with new classes and their old scores."""
        if self.rows is not None:
            self._replace_samples(self._samples_in(self.kept()[0][order]))
        self.scores = self.scores[torch.from_numpy(order)]
        self._slots[: len(self)] = slots
        return order
