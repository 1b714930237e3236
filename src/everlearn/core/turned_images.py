"""Images turned by quarters of a circle: each turn of a class is a class of its own while learning.

A turned image must be told from the upright ones of its class and of all others, which teaches the network more about
the few exemplars of each class. These classes need no vectors of their own. That of a class turned k times is the
class's vector with its entries moved on by k quarters of its length, and is never used for predictions.

Lee, H. et al. Self-Supervised Label Augmentation via Input Transformations. ICML 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from everlearn.networks import as_input

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["TURNS", "fit_turned", "folded", "moved_on", "turned_prototypes", "turns_of"]

TURNS = 4  # upright, and turned by one, two and three quarters of a circle


def turns_of(learner: Learner) -> Tensor | None:
    """How often each image of the running iteration is turned, `[batch + replayed]`; None without the setting."""
    return None if learner.images is None else learner.images.turns


def moved_on(vectors: Tensor, turns: int) -> Tensor:
    """Each vector with its entries moved on by this many quarters of its length.

    >>> moved_on(torch.tensor([[1, 2, 3, 4]]), 1)
    tensor([[4, 1, 2, 3]])
    """
    return vectors.roll(turns * (vectors.shape[1] // TURNS), dims=1)


def turned_prototypes(prototypes: Tensor) -> Tensor:
    """The prototypes of all classes, then of all classes turned once, twice and three times, `[4 · classes, d]`."""
    return torch.cat([moved_on(prototypes, turns) for turns in range(TURNS)])


def folded(slope: Tensor) -> Tensor:
    """The gradient by the prototypes, `[classes, d]`, from that by `turned_prototypes`."""
    parts = [moved_on(part, -turns) for turns, part in enumerate(slope.chunk(TURNS))]
    return torch.stack(parts).sum(0)


def fit_turned(
    learner: Learner, x: Tensor, slots: Tensor, turns: Tensor, weights: Tensor | None = None
) -> None:
    """One SGD step of a softmax on the cross-entropy over all classes, upright and turned.

    The logits of the classes turned k times are those of the features moved back by k quarters of their length.
    weights: how much the loss of each sample counts, `[samples, 1]`.
    """
    network = learner.network
    features = network.body(as_input(x))
    logits = [learner.head.among_open(network.head(moved_on(features, -k))) for k in range(TURNS)]
    owners = turns * logits[0].shape[1] + slots
    losses = cross_entropy(torch.cat(logits, dim=1), owners, reduction="none")
    learner.descend((losses if weights is None else losses * weights[:, 0]).mean())
