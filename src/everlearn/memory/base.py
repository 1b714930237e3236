"""What all replay memories share.

The samples lie on the device, in one tensor. The book about them (which row is whose, and what
decides who stays) lies on the host: it never depends on the weights, so the device only gathers
and writes the rows it is told, and a step with replay is tensors alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label, LabelTable
from everlearn.transaction import current

__all__ = ["Integers", "ReplayMemory", "empty_rows", "without", "write_rows"]

Integers = NDArray[np.int64]

LARGEST = 2**63 - 1


class ReplayMemory(ABC):
    """At most `size` exemplars, kept as they came.

    labels: the learner's label table, to tell whose exemplars are whose.
    generator: the learner's own source of randomness (on the host).
    """

    types: ClassVar[dict[str, torch.dtype]] = {}  # of the parts of a state that are not int64

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        self.size = size
        self._labels = labels
        self._generator = generator
        self.rows: Tensor | None = None  # the samples, and one row more for what is not kept

    # What a user asks.

    @abstractmethod
    def __len__(self) -> int:
        """How many exemplars are kept."""

    def counts(self) -> dict[Label, int]:
        """How many exemplars each class keeps."""
        _, slots = self.kept()
        counts = np.bincount(slots, minlength=len(self._labels))
        return dict(zip(self._labels.labels, counts.tolist(), strict=True))

    def samples(self) -> tuple[Tensor, list[Label]]:
        """All exemplars, in the order of the book, and their labels."""
        if self.rows is None:
            return torch.empty(0), []
        rows, slots = self.kept()
        labels = self._labels.labels
        kept = self.rows[torch.from_numpy(rows).to(self.rows.device)]
        return kept, [labels[slot] for slot in slots.tolist()]

    def nbytes(self) -> int:
        """Bytes held: the samples, and every array of the book."""
        samples = 0 if self.rows is None else self.rows.nbytes
        return samples + sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    # What a learner does.

    def allocate(self, like: Tensor, device: torch.device) -> None:
        """Make room for samples of this shape and type, once they are known."""
        self.rows = empty_rows(self.size + 1, like, device)

    @abstractmethod
    def open_classes(self, classes: int) -> None:
        """There are this many classes from now on."""

    @abstractmethod
    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, without replacement (fewer if fewer are kept)."""

    @abstractmethod
    def admit(self, slots: Integers) -> Integers:
        """Decide where each new sample is kept: its row, the last row for nowhere."""

    def recall(self, rows: Tensor) -> Tensor:
        """The samples in these rows. Tensors alone."""
        assert self.rows is not None
        return self.rows[rows]

    def write(self, x: Tensor, rows: Tensor) -> None:
        """Put samples into the rows that `admit` gave them. Tensors alone."""
        assert self.rows is not None
        write_rows(self.rows, rows, x)

    def _random_integers(self, count: int) -> Integers:
        drawn: Integers = torch.randint(LARGEST, (count,), generator=self._generator).numpy()
        return drawn

    # State.

    @abstractmethod
    def kept(self) -> tuple[Integers, Integers]:
        """The rows in use, in the order of the book, and the class of each."""

    @abstractmethod
    def _book(self) -> dict[str, Integers]:
        """What a state must hold of the book, besides the order of the samples."""

    @abstractmethod
    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        """Take up a book that `_book` gave, of so many samples that now lie in the first rows, in its order."""

    def state(self) -> dict[str, Tensor]:
        """All of it, exemplars in the order of the book; empty rows are not stored."""
        state = {name: torch.from_numpy(np.array(part)) for name, part in self._book().items()}
        if self.rows is not None:
            state["samples"] = self.samples()[0]
        return state

    def restore(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Take up a state that `state` gave."""
        samples = state["samples"]
        for name, part in state.items():
            if part.dtype != self.types.get(name, torch.int64) and name != "samples":
                raise ValueError(f"the memory's {name} is of {part.dtype}")
        book = {name: part.cpu().numpy().copy() for name, part in state.items() if name != "samples"}
        self._reopen(book, len(samples))
        self.allocate(samples, device)
        assert self.rows is not None
        self.rows[: len(samples)] = samples.to(device)

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars, for good; the slots after it move down by one."""
        raise ValueError(f"{type(self).__name__} can't forget a class")

    def merge(self, other: Any, slots: Integers) -> None:
        """Take in a memory of the same kind and size, by this memory's own rule; the other stays as it is.

        slots: where each class of the other lies here; all of them are open.
        """
        raise ValueError(f"{type(self).__name__} can't be merged with another")

    def _lay_out(self, samples: Tensor) -> None:
        """Let these samples fill the first rows, and leave nothing of others behind."""
        if self.rows is not None:
            self.rows[: len(samples)] = samples.to(self.rows.device)
            self.rows[len(samples) :] = 0

    def _in_rows(self, rows: Integers) -> Tensor:
        assert self.rows is not None
        return self.rows[torch.from_numpy(rows).to(self.rows.device)]


def empty_rows(count: int, like: Tensor, device: torch.device) -> Tensor:
    """Rows of zeros for samples of this shape and type; on the host they take memory as they are used."""
    if device.type != "cpu":
        return torch.zeros(count, *like.shape[1:], dtype=like.dtype, device=device)
    each = like.shape[1:].numel()
    try:
        room = np.zeros(count * each * like.element_size(), np.uint8)
    except (MemoryError, ValueError):
        raise MemoryError(
            f"out of memory: {count:,} samples of shape {list(like.shape[1:])} can't be kept; lower memory_size"
        ) from None
    return torch.from_numpy(room).view(like.dtype).view(count, *like.shape[1:])


def write_rows(held: Tensor, rows: Tensor, x: Tensor) -> None:
    """Overwrite rows of a tensor in place; taken back if the change fails. Tensors alone."""
    transaction = current()
    if transaction is not None:
        before = held[rows]
        transaction.on_undo(lambda: held.index_copy_(0, rows, before))
    held.index_copy_(0, rows, x)


def without(slots: Integers, gone: int) -> Integers:
    """The slots when a class is gone: those after it move down by one."""
    return slots - (slots > gone)
