"""M_p: the prototypical memory, one slowly moving vector per class."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.arrays import as_arrays, like, product
from everlearn.transaction import assign, current

__all__ = ["Prototypes"]


class Prototypes:
    """One prototype p^c per class, in a tensor of fixed shape that doubles when it is full.

    generator: draws the first prototype of a class.
    keeps_means: whether `from_exemplars` is used for several batches, and so a part of the state.
    vectors: `[capacity, d]`; rows of unseen classes are zero.
    seen: which rows are prototypes of a class, `[capacity]`.
    from_exemplars: prototypes computed from the replay memory for predictions, after `computed_at` batches.
    """

    def __init__(
        self, dimension: int, device: torch.device, generator: torch.Generator, keeps_means: bool = False
    ) -> None:
        self.keeps_means = keeps_means
        self._generator = generator
        self.count = 0
        self.from_exemplars: Tensor | None = None
        self.computed_at = 0
        self.vectors, self.seen = _empty(16, dimension, device)

    def open_classes(self, classes: int) -> bool:
        """Give new classes a random prototype in the positive orthant; True if the tensors were replaced."""
        capacity = len(self.vectors)
        while capacity < classes:
            capacity *= 2
        grown = capacity > len(self.vectors)
        if grown:
            more = capacity - len(self.vectors)
            self.vectors = torch.cat([self.vectors, self.vectors.new_zeros(more, self.vectors.shape[1])])
            self.seen = torch.cat([self.seen, self.seen.new_zeros(more)])
        new = slice(self.count, classes)
        fresh = torch.rand(classes - self.count, self.vectors.shape[1], generator=self._generator)
        assign(self.vectors, new, normalize(fresh, dim=1).to(self.vectors.device))
        assign(self.seen, new, True)
        self.count = classes
        return grown

    def in_use(self) -> tuple[Tensor, Tensor | None]:
        """The prototypes, and which rows are used: on a GPU in the fixed shape that a CUDA graph needs."""
        return (self.vectors, self.seen) if self.vectors.is_cuda else (self.vectors[: self.count], None)

    def move(self, features: Tensor, slots: Tensor, momentum: float, renormalise: bool) -> None:
        """Equation 1: p^c ← α p^c + (1 − α) p̄^c for every class c in the slots, in place. Tensor operations only.

        features: unit-length embeddings, `[samples, d]`. slots: the class of each.
        """
        xp, (vectors, features, slots) = as_arrays(self.vectors, features, slots)
        # On the CPU only the classes in the batch; on a GPU all, since a CUDA graph has fixed shapes.
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

    @torch.no_grad()
    def descend(self, slope: Tensor, rate: float) -> None:
        """One SGD step of the prototypes, and back to unit length. Tensor operations only.

        slope: the gradient by the first prototypes, `[classes, d]`.
        """
        moved = normalize(self.vectors[: len(slope)] - rate * slope, dim=1)
        if self.vectors.is_cuda:
            transaction = current()
            if transaction is not None:
                transaction.keep([self.vectors])
            self.vectors[: len(slope)].copy_(moved)
        else:
            assign(self.vectors, slice(len(slope)), moved)

    def nbytes(self) -> int:
        """Bytes held."""
        parts = (self.vectors, self.seen, self.from_exemplars)
        return sum(part.nbytes for part in parts if part is not None)

    def state(self) -> dict[str, Tensor]:
        """The prototypes as tensors, and those computed from the memory."""
        state = {"prototypes": self.vectors[: self.count].clone()}
        if self.from_exemplars is not None and self.keeps_means:
            state["prototypes.from_exemplars"] = self.from_exemplars.clone()
            state["prototypes.computed_at"] = torch.tensor(self.computed_at)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Load a state that `state` returned."""
        self.vectors[: self.count] = state["prototypes"].to(self.vectors.device)
        if "prototypes.from_exemplars" in state:
            means = state["prototypes.from_exemplars"].to(self.vectors.device)
            if means.ndim != 2 or means.shape[1] != self.vectors.shape[1] or len(means) > self.count:
                raise ValueError(f"prototypes.from_exemplars has the shape {list(means.shape)}")
            self.from_exemplars, self.computed_at = means.clone(), int(state["prototypes.computed_at"])

    def forget(self, slot: int) -> None:
        """Remove the prototype of a class; those after it move down by one, into new tensors."""
        self.from_exemplars = None
        left = torch.cat([self.vectors[:slot], self.vectors[slot + 1 : self.count]])
        capacity = 16
        while capacity < len(left):
            capacity *= 2
        self.vectors, self.seen = _empty(capacity, left.shape[1], left.device)
        self.count = len(left)
        self.vectors[: self.count] = left
        self.seen[: self.count] = True

    def recompute(self, features: Tensor, slots: Tensor, renormalise: bool) -> None:
        """Set each prototype to the mean of the features of its class; every class must have some."""
        sums = torch.zeros_like(self.vectors).index_add_(0, slots, features)
        means = sums[: self.count] / slots.bincount(minlength=self.count)[:, None]
        assign(self.vectors, slice(self.count), normalize(means, dim=1) if renormalise else means)


def _empty(capacity: int, dimension: int, device: torch.device) -> tuple[Tensor, Tensor]:
    vectors = torch.zeros(capacity, dimension, device=device)
    return vectors, torch.zeros(capacity, dtype=torch.bool, device=device)
