"""The base class of all replay memories.

The samples are in one tensor on the device. The index (which class each row belongs to, and what decides which
sample is replaced) is on the host. It never depends on the weights, so the device only gathers and writes the rows
that the host has chosen, and a step with replay consists of tensor operations only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label, LabelTable
from everlearn.transaction import assign, current

__all__ = ["Integers", "ReplayMemory", "empty_rows", "remove_slot", "write_rows"]

Integers = NDArray[np.int64]

LARGEST = 2**63 - 1


class ReplayMemory(ABC):
    """At most `size` exemplars, stored in the type they arrived in.

    labels: the learner's label table.
    generator: the learner's random generator (on the host).
    """

    types: ClassVar[dict[str, torch.dtype]] = {}  # dtypes of the tensors in a state that are not int64

    def __init__(self, size: int, labels: LabelTable, generator: torch.Generator) -> None:
        self.size = size
        self._labels = labels
        self._generator = generator
        self.rows: Tensor | None = None  # the samples, and one more row for samples that are not stored

    # For users.

    @abstractmethod
    def __len__(self) -> int:
        """The number of exemplars."""

    def counts(self) -> dict[Label, int]:
        """The number of exemplars of each class."""
        _, slots = self.kept()
        counts = np.bincount(slots, minlength=len(self._labels))
        return dict(zip(self._labels.labels, counts.tolist(), strict=True))

    def samples(self) -> tuple[Tensor, list[Label]]:
        """All exemplars, in the order of the index, and their labels."""
        if self.rows is None:
            return torch.empty(0), []
        rows, slots = self.kept()
        labels = self._labels.labels
        kept = self.rows[torch.from_numpy(rows).to(self.rows.device)]
        return kept, [labels[slot] for slot in slots.tolist()]

    def nbytes(self) -> int:
        """Bytes of the samples and of every array of the index."""
        samples = 0 if self.rows is None else self.rows.nbytes
        return samples + sum(part.nbytes for part in vars(self).values() if isinstance(part, np.ndarray))

    # For learners.

    def allocate(self, like: Tensor, device: torch.device) -> None:
        """Allocate the rows for samples of this shape and type."""
        self.rows = empty_rows(self.size + 1, like, device)

    @abstractmethod
    def open_classes(self, classes: int) -> None:
        """Prepare for this many classes in all."""

    @abstractmethod
    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, without replacement (fewer if fewer are stored)."""

    @abstractmethod
    def admit(self, slots: Integers) -> Integers:
        """Choose the row where each new sample is stored; the last row means that it is not stored."""

    def recall(self, rows: Tensor) -> Tensor:
        """The samples in these rows. Tensor operations only."""
        assert self.rows is not None
        if self.rows.is_cpu and self.rows.dtype is torch.uint8:
            return torch.from_numpy(self.rows.numpy().take(rows.numpy(), 0))  # in a third of the time
        return self.rows[rows]

    def overwritten(self, rows: Tensor) -> Tensor:
        """What is in the rows that `admit` chose, before `write`. Tensor operations only."""
        return self.recall(rows)

    def write(self, x: Tensor, rows: Tensor) -> None:
        """Write samples to the rows that `admit` chose. Tensor operations only."""
        assert self.rows is not None
        write_rows(self.rows, rows, x)

    def _random_integers(self, count: int) -> Integers:
        drawn: Integers = torch.randint(LARGEST, (count,), generator=self._generator).numpy()
        return drawn

    # State.

    @abstractmethod
    def kept(self) -> tuple[Integers, Integers]:
        """The used rows, in the order of the index, and the slot of each."""

    @abstractmethod
    def _index_state(self) -> dict[str, Integers]:
        """The parts of the index that a state holds, besides the order of the samples."""

    @abstractmethod
    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        """Load an index that `_index_state` returned; its `samples` samples are in the first rows, in order."""

    def state(self) -> dict[str, Tensor]:
        """The whole memory as tensors: exemplars in the order of the index, without empty rows."""
        state = {name: torch.from_numpy(np.array(part)) for name, part in self._index_state().items()}
        if self.rows is not None:
            state["samples"] = self.samples()[0]
        return state

    def restore(self, state: dict[str, Tensor], device: torch.device) -> None:
        """Load a state that `state` returned."""
        samples = state["samples"]
        for name, part in state.items():
            expected = self.types.get(name, torch.int64)
            if part.dtype != expected and name != "samples":
                raise ValueError(f"the memory's {name} has dtype {part.dtype}, expected {expected}")
        index = {name: part.cpu().numpy().copy() for name, part in state.items() if name != "samples"}
        self._restore_index(index, len(samples))
        self.allocate(samples, device)
        assert self.rows is not None
        self.rows[: len(samples)] = samples.to(device)

    # Forget, edit and merge.

    def stored(self) -> tuple[Tensor, Integers]:
        """All samples that the memory holds, and the slot of each."""
        return self.samples()[0], self.kept()[1]

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the stored samples, with new classes; returns those that were kept.

        order: their places among the samples that `stored` returns. slots: the class of each, now.
        """
        raise ValueError(f"{type(self).__name__} can't be edited")

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars; the slots after it move down by one."""
        raise ValueError(f"{type(self).__name__} can't forget a class")

    def merge(self, other: Any, slots: Integers) -> None:
        """Merge another memory of the same class and size into this one; the other is not changed.

        slots: the slot in this memory of each class of the other; all of them are open.
        """
        raise ValueError(f"{type(self).__name__} can't be merged with another")

    def _replace_samples(self, samples: Tensor) -> None:
        """Write these samples to the first rows, and zeros to all others."""
        if self.rows is not None:
            self.rows[: len(samples)] = samples.to(self.rows.device)
            self.rows[len(samples) :] = 0

    def _samples_in(self, rows: Integers) -> Tensor:
        assert self.rows is not None
        return self.rows[torch.from_numpy(rows).to(self.rows.device)]


def empty_rows(count: int, like: Tensor, device: torch.device) -> Tensor:
    """Rows of zeros for samples of this shape and type; on the host, memory is used only once they are written."""
    if device.type != "cpu":
        return torch.zeros(count, *like.shape[1:], dtype=like.dtype, device=device)
    each = like.shape[1:].numel()
    try:
        room = np.zeros(count * each * like.element_size(), np.uint8)
    except (MemoryError, ValueError):
        raise MemoryError(
            f"out of memory: no room for {count:,} samples of shape {list(like.shape[1:])}; lower memory_size"
        ) from None
    return torch.from_numpy(room).view(like.dtype).view(count, *like.shape[1:])


def write_rows(held: Tensor, rows: Tensor, x: Tensor) -> None:
    """Overwrite rows of a tensor in place; undone if the transaction fails. Tensor operations only."""
    if held.is_cpu and held.dtype is x.dtype is torch.uint8:
        assign(held.numpy(), rows.numpy(), x.numpy())  # in a third of the time
        return
    transaction = current()
    if transaction is not None:
        before = held[rows]
        transaction.on_undo(lambda: held.index_copy_(0, rows, before))
    held.index_copy_(0, rows, x)


def remove_slot(slots: Integers, gone: int) -> Integers:
    """The slots after the class `gone` is removed: those above it move down by one."""
    return slots - (slots > gone)
