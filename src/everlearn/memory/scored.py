"""M_r whose exemplars each carry a score, which the learner gives and which decides who makes room.

It fills in the order of arrival. What happens once it is full depends on the scores of what arrives,
so here the learner decides, and the memory only keeps the book.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from everlearn.memory.base import Integers, ReplayMemory, without
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
        """How many exemplars are kept."""
        return len(self.scores)

    def open_classes(self, classes: int) -> None:
        """Nothing changes: the memory is not shared out."""

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are kept)."""
        rows = torch.randperm(len(self), generator=self._generator)[:count].numpy()
        return rows, self._slots[rows]

    def admit(self, slots: Integers) -> Integers:
        """The empty rows for as many new samples as there are, the last row for the others.

        The book is written only by `enter`, once the scores are known.
        """
        return np.minimum(len(self) + np.arange(len(slots)), self.size)

    def enter(self, x: Tensor, slots: Tensor, scores: Tensor, rows: Tensor) -> None:
        """Keep samples with their scores in these rows: the next empty ones, or those of exemplars that go."""
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

    def _book(self) -> dict[str, Integers]:
        return {"slots": self._slots[: len(self)]}

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        if not len(book["slots"]) == len(book["scores"]) == samples <= self.size:
            raise ValueError(f"a memory of {self.size} can't keep {samples} samples")
        self._slots[:samples] = book["slots"]
        self.scores = torch.from_numpy(book["scores"])

    def state(self) -> dict[str, Tensor]:
        """All of it, exemplars in the order of the book; empty rows are not stored."""
        return super().state() | {"scores": self.scores.clone()}

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars and their scores; the room they leave fills again."""
        rows, slots = self.kept()
        stays = slots != slot
        if self.rows is not None:
            self._lay_out(self._in_rows(rows[stays]))
        self.scores = self.scores[torch.from_numpy(stays)]
        self._slots[: len(self)] = without(slots[stays], slot)
