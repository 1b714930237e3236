"""M_p: the prototypical memory, one slowly moving vector per class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["Prototypes"]


class Prototypes:
    """One prototype p^c per class in a room of fixed shape that doubles when it is full.

    vectors: `[capacity, d]`; rows of unseen classes are zero.
    seen: which rows stand for a class, `[capacity]`.
    """

    def __init__(self, dimension: int, device: torch.device, capacity: int = 16) -> None:
        self.vectors = torch.zeros(capacity, dimension, device=device)
        self.seen = torch.zeros(capacity, dtype=torch.bool, device=device)
        self.count = 0

    def open_classes(self, classes: int, generator: torch.Generator) -> bool:
        """Give new classes a random prototype in the positive orthant; True if the room had to grow."""
        capacity = len(self.vectors)
        while capacity < classes:
            capacity *= 2
        grown = capacity > len(self.vectors)
        if grown:
            more = capacity - len(self.vectors)
            self.vectors = torch.cat([self.vectors, self.vectors.new_zeros(more, self.vectors.shape[1])])
            self.seen = torch.cat([self.seen, self.seen.new_zeros(more)])
        new = slice(self.count, classes)
        fresh = torch.rand(classes - self.count, self.vectors.shape[1], generator=generator)
        self.vectors[new] = normalize(fresh, dim=1).to(self.vectors.device)
        self.seen[new] = True
        self.count = classes
        return grown

    def move(self, sums: Tensor, counts: Tensor, momentum: float, renormalise: bool) -> None:
        """Equation 1: p^c ← α p^c + (1 − α) p̄^c for every class with samples, in place. Tensors alone.

        sums: `[capacity, d]`, the summed features of each class. counts: `[capacity]`, how many.
        """
        means = sums / counts.clamp(min=1)[:, None]
        moved = momentum * self.vectors + (1 - momentum) * means
        if renormalise:
            moved = normalize(moved, dim=1)
        torch.where(counts[:, None] > 0, moved, self.vectors, out=self.vectors)

    def nbytes(self) -> int:
        """Bytes held."""
        return self.vectors.nbytes + self.seen.nbytes
