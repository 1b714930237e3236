"""Prototypes that learn by gradient, together with the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.core.turned_images import TURNS, folded, turned_prototypes, turns_of
from everlearn.losses import proxy
from everlearn.memory.prototypes import Prototypes
from everlearn.transaction import assign, current

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["descend", "fit_with_prototypes"]


def fit_with_prototypes(learner: Learner, x: Tensor, slots: Tensor, weights: Tensor | None = None) -> Tensor:
    """One SGD step of network and prototypes on the cross-entropy over these; returns the embeddings before it.

    weights: how much the gradient of each sample counts for the network, `[samples, 1]`.
    """
    held, settings = learner.prototype_memory, learner.settings
    assert held is not None
    prototypes, seen = held.in_use()
    batch: dict[str, Any] = {
        "slots": slots,
        "prototypes": prototypes,
        "temperature": settings.temperature,
        "seen": seen,
    }
    turns = turns_of(learner)
    if turns is not None:
        batch["slots"] = turns * len(prototypes) + slots
        batch["prototypes"] = turned_prototypes(prototypes)
        batch["seen"] = None if seen is None else seen.repeat(TURNS)
    features = learner.fit_embedding(x, proxy, weights, **batch)
    slope = proxy.prototype_gradient(features, **batch)
    descend(held, slope if turns is None else folded(slope), settings.learning_rate)
    return features


@torch.no_grad()
def descend(prototypes: Prototypes, slope: Tensor, rate: float) -> None:
    """One SGD step of the prototypes, and back to unit length. Tensor operations only.

    slope: the gradient by the first prototypes, `[classes, d]`.
    """
    vectors = prototypes.vectors
    moved = normalize(vectors[: len(slope)] - rate * slope, dim=1)
    if vectors.is_cuda:
        transaction = current()
        if transaction is not None:
            transaction.keep([vectors])
        vectors[: len(slope)].copy_(moved)
    else:
        assign(vectors, slice(len(slope)), moved)
