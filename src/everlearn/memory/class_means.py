"""The mean of all features of each class so far, and how many there were."""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.memory.base import Integers

__all__ = ["ClassMeans"]

MOST = 2**53  # samples that a class can have had


class ClassMeans:
    """One mean per class. Every change replaces the tensors, so that a transaction can go back to the old ones.

    counts: samples of each class, `[classes]`. means: `[classes, d]`, zero for a class without samples.

    >>> held = ClassMeans(2, torch.device("cpu"))
    >>> held.open_classes(2)
    >>> held.add(torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 5.0]]), torch.tensor([0, 0, 1]))
    >>> held.means.tolist(), held.counts.tolist()
    ([[2.0, 0.0], [5.0, 5.0]], [2.0, 1.0])
    """

    def __init__(self, dimension: int, device: torch.device) -> None:
        self.counts = torch.zeros(0, device=device)
        self.means = torch.zeros(0, dimension, device=device)

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        more = classes - len(self.counts)
        self.counts = torch.cat([self.counts, self.counts.new_zeros(more)])
        self.means = torch.cat([self.means, self.means.new_zeros(more, self.means.shape[1])])

    def add(self, features: Tensor, slots: Tensor) -> None:
        """Count these features, `[samples, d]`, of these classes, `[samples]`."""
        ones = torch.ones_like(features[:, 0])
        new = torch.zeros_like(self.counts).index_add_(0, slots, ones)
        sums = torch.zeros_like(self.means).index_add_(0, slots, features)
        self._join(new, sums)

    def merge(self, other: ClassMeans, slots: Integers) -> None:
        """Count what another has counted. slots: the class here of each of its classes."""
        places = torch.from_numpy(slots).to(self.counts.device)
        theirs = other.counts.to(self.counts.device)
        sums = other.means.to(self.means.device) * theirs[:, None]
        self._join(
            torch.zeros_like(self.counts).index_add_(0, places, theirs),
            torch.zeros_like(self.means).index_add_(0, places, sums),
        )

    def _join(self, new: Tensor, sums: Tensor) -> None:
        counts = self.counts + new
        self.means = self.means + (sums - new[:, None] * self.means) / counts.clamp(min=1)[:, None]
        self.counts = counts

    def forget(self, slot: int) -> None:
        """Remove a class; those after it move down by one."""
        self.counts = torch.cat([self.counts[:slot], self.counts[slot + 1 :]])
        self.means = torch.cat([self.means[:slot], self.means[slot + 1 :]])

    def nbytes(self) -> int:
        """Bytes held."""
        return self.counts.nbytes + self.means.nbytes

    def copy(self) -> ClassMeans:
        """A copy; the tensors are shared, since no change is made in place."""
        new = ClassMeans(self.means.shape[1], self.means.device)
        new.counts, new.means = self.counts, self.means
        return new

    def state(self) -> dict[str, Tensor]:
        """Its tensors, by name."""
        return {"class_means.counts": self.counts.clone(), "class_means.means": self.means.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load the tensors that `state` returned; raises a ValueError if they do not fit."""
        counts, means = state["class_means.counts"], state["class_means.means"]
        if counts.shape != self.counts.shape or means.shape != self.means.shape:
            raise ValueError(
                f"its class means have the shapes {list(counts.shape)} and {list(means.shape)}, "
                f"expected {list(self.counts.shape)} and {list(self.means.shape)}"
            )
        if not bool(((counts >= 0) & (counts <= MOST)).all()):
            raise ValueError("its class means have counts that are no numbers of samples")
        self.counts, self.means = counts.to(self.counts), means.to(self.means)
