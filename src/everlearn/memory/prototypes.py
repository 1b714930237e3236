"""M_p: the prototypical memory, one slowly moving vector per class."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.arrays import as_arrays, like, product
from everlearn.transaction import assign, current

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
        assign(self.vectors, new, normalize(fresh, dim=1).to(self.vectors.device))
        assign(self.seen, new, True)
        self.count = classes
        return grown

    def in_use(self) -> tuple[Tensor, Tensor | None]:
        """The prototypes and which of them stand for a class: on a GPU in the fixed shape that a graph needs."""
        return (self.vectors, self.seen) if self.vectors.is_cuda else (self.vectors[: self.count], None)

    def move(self, features: Tensor, slots: Tensor, momentum: float, renormalise: bool) -> None:
        """Equation 1: p^c ← α p^c + (1 − α) p̄^c for every class c among the slots, in place. Tensors alone.

        features: unit-length embeddings, `[samples, d]`. slots: the class of each.
        """
        xp, (vectors, features, slots) = as_arrays(self.vectors, features, slots)
        # On the host only the classes that are there; a GPU takes all, since a graph has fixed shapes.
        all_classes = xp.arange(len(vectors), device=vectors.device)
        present = np.bincount(slots).nonzero()[0] if xp is np else all_classes
        owners = like(present[:, None] == slots, features)  # [present, samples]
        counts = owners.sum(axis=1)
        share = ((1 - momentum) / counts.clip(min=1))[:, None]
        before = vectors[present]
        moved = momentum * before + product(owners, features) * share
        if renormalise:
            moved = moved / xp.sqrt((moved * moved).sum(axis=1, keepdims=True)).clip(min=1e-12)
        if xp is np:
            assign(vectors, present, moved)
        else:
            transaction = current()
            if transaction is not None:
                transaction.keep([vectors])
            vectors.copy_(xp.where(counts[:, None] > 0, moved, before))

    def nbytes(self) -> int:
        """Bytes held."""
        return self.vectors.nbytes + self.seen.nbytes

    def forget(self, slot: int) -> None:
        """Drop a class's prototype; those after it move down by one, into a room for one class fewer."""
        left = torch.cat([self.vectors[:slot], self.vectors[slot + 1 : self.count]])
        anew = Prototypes(self.vectors.shape[1], self.vectors.device)
        while len(anew.vectors) < len(left):
            anew = Prototypes(self.vectors.shape[1], self.vectors.device, 2 * len(anew.vectors))
        self.vectors, self.seen, self.count = anew.vectors, anew.seen, len(left)
        self.vectors[: self.count] = left
        self.seen[: self.count] = True

    def renew(self, features: Tensor, slots: Tensor, renormalise: bool) -> None:
        """Take the prototypes anew, as the mean of the features of each class; every class has some."""
        sums = torch.zeros_like(self.vectors).index_add_(0, slots, features)
        means = sums[: self.count] / slots.bincount(minlength=self.count)[:, None]
        assign(self.vectors, slice(self.count), normalize(means, dim=1) if renormalise else means)
