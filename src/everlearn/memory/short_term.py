"""A short-term memory: a buffer of samples that are learnt together once it is full."""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.memory.base import Integers

__all__ = ["ShortTermMemory"]


class ShortTermMemory:
    """At most `size` samples in the order of arrival, with the slots of their classes.

    >>> memory = ShortTermMemory(3, torch.zeros(0, 2), torch.device("cpu"))
    >>> memory.add(torch.ones(2, 2), torch.tensor([0, 1]))
    2
    >>> memory.add(torch.ones(2, 2), torch.tensor([1, 1])), len(memory), memory.full
    (1, 3, True)
    >>> memory.slots.tolist()
    [0, 1, 1]
    """

    def __init__(self, size: int, like: Tensor, device: torch.device) -> None:
        self._samples = torch.zeros(size, *like.shape[1:], dtype=like.dtype, device=device)
        self._slots = torch.zeros(size, dtype=torch.int64, device=device)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def full(self) -> bool:
        """Whether there is no room for more samples."""
        return self._count == len(self._slots)

    @property
    def samples(self) -> Tensor:
        """The stored samples."""
        return self._samples[: self._count]

    @property
    def slots(self) -> Tensor:
        """The slots of their classes."""
        return self._slots[: self._count]

    def add(self, x: Tensor, slots: Tensor) -> int:
        """Store the first of these samples, as many as there is room for; returns how many."""
        taken = min(len(x), len(self._slots) - self._count)
        end = self._count + taken
        self._samples[self._count : end] = x[:taken]
        self._slots[self._count : end] = slots[:taken]
        self._count = end
        return taken

    def stored(self) -> tuple[Tensor, Integers]:
        """All samples, and the slot of each."""
        return self.samples, self.slots.cpu().numpy()

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the samples, with new classes; the tensors are new ones, as in `clear`."""
        kept = self.samples[torch.from_numpy(order).to(self._samples.device)]
        self.clear()
        self.add(kept, torch.from_numpy(slots).to(self._slots.device))
        return order

    def clear(self) -> None:
        """Remove all samples. The tensors are new ones, so that a transaction can go back to the old ones."""
        self._samples, self._slots = torch.zeros_like(self._samples), torch.zeros_like(self._slots)
        self._count = 0

    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._samples.nbytes + self._slots.nbytes
