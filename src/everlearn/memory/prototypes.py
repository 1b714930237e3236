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

    def move(self, features: Tensor, slots: Tensor, momentum: float, renormalise: bool) -> None:
        """Equation 1: p^c ← α p^c + (1 − α) p̄^c for every class c among the slots, in place. Tensors alone.

        features: unit-length embeddings, `[samples, d]`. slots: the class of each.
        """
        owners = (torch.arange(len(self.vectors), device=slots.device)[:, None] == slots).to(features.dtype)
        counts = owners.sum(1, keepdim=True)  # [capacity, 1]
        means = (owners @ features).div_(counts.clamp(min=1))
        moved = means.mul_(1 - momentum).add_(self.vectors, alpha=momentum)
        if renormalise:
            moved = normalize(moved, dim=1)
        self.vectors.copy_(torch.where(counts > 0, moved, self.vectors))

    def nbytes(self) -> int:
        """Bytes held."""
        return self.vectors.nbytes + self.seen.nbytes
