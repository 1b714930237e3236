"""M_p: the prototypical memory, one slowly moving vector per class; rare changes are in prototype_changes.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.arrays import as_arrays, like, product
from everlearn.memory import prototype_changes as changes
from everlearn.transaction import assign, current

__all__ = ["Prototypes"]


class Prototypes:
    """One prototype p^c per class, in a tensor of fixed shape that doubles when it is full.

    generator: draws the first prototype of a class.
    keeps_means: whether `from_exemplars` is used for several batches, and so a part of the state.
    vectors: `[capacity, d]`; rows of unseen classes are zero.
    seen: which rows are prototypes of a class, `[capacity]`.
    scatter: Σ (f − p^c)(f − p^c)ᵀ over `scattered` samples f, `[d, d]`; None unless it is asked for.
    samples: how many samples each is the mean of, `[capacity]`; None unless they are means of classes.
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
        self.vectors, self.seen = changes.empty(changes.SMALLEST, dimension, device)
        self.samples: Tensor | None = None
        self.scatter: Tensor | None = None
        self.scattered: Tensor | None = None
        self.metric: Any = None  # of core/whitening.py, until something changes

    def open_classes(self, classes: int) -> bool:
        """Give new classes a random prototype in the positive orthant; True if the tensors were replaced."""
        grown = classes > len(self.vectors)
        if grown:
            changes.resize(self, classes)
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

    def invalidate(self) -> None:
        """Drop the prototypes computed from the memory, unless they are used for several batches."""
        self.metric = None
        if not self.keeps_means:
            self.from_exemplars = None

    add = changes.add
    nbytes = changes.nbytes
    state = changes.state
    restore = changes.restore
    forget = changes.forget
    recompute = changes.recompute
