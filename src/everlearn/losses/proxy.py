"""Cross-entropy of a softmax over prototypes: how prototypes learn by gradient.

P(c|x) = exp(f·p^c/τ) / Σ_k exp(f·p^k/τ), with unit-length embeddings f and prototypes p: each class has one vector,
the nearest prototype wins, and there is no last layer that grows.

Movshovitz-Attias, Y. et al. No Fuss Distance Metric Learning Using Proxies. ICCV 2017.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gradient", "prototype_gradient", "proxy_loss"]

UNSEEN = -1e4  # the score of a row that is no class yet; its probability is 0


def proxy_loss(
    features: Tensor, slots: Tensor, prototypes: Tensor, temperature: float, seen: Tensor | None = None
) -> Tensor:
    """The mean cross-entropy of a batch, a scalar.

    features: unit-length embeddings f, `[batch, d]`. slots: the class of each, as a row of `prototypes`.
    prototypes: unit-length vectors, `[classes, d]`. temperature: τ. seen: which rows are classes; all by default.

    >>> f = torch.tensor([[0.8, 0.6], [-0.28, 0.96]])
    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(proxy_loss(f, torch.tensor([0, 1]), p, temperature=0.5).item(), 4)
    0.2967
    """
    scores = _scores(features, prototypes, temperature, seen)
    return torch.nn.functional.cross_entropy(scores, slots)


def _scores(features: Tensor, prototypes: Tensor, temperature: float, seen: Tensor | None) -> Tensor:
    scores = features @ prototypes.T / temperature
    return scores if seen is None else torch.where(seen, scores, UNSEEN)


def _slope(
    features: Tensor, slots: Tensor, prototypes: Tensor, temperature: float, seen: Tensor | None
) -> Tensor:
    """The gradient by the scores f·p before they are divided by τ: softmax − one-hot."""
    slope = _scores(features, prototypes, temperature, seen).softmax(1)
    slope.scatter_add_(1, slots[:, None], slope.new_full((len(slots), 1), -1))
    return slope.div_(len(slots) * temperature)


def gradient(
    features: Tensor, slots: Tensor, prototypes: Tensor, temperature: float, seen: Tensor | None = None
) -> Tensor:
    """The gradient by the features, `[batch, d]`."""
    return _slope(features, slots, prototypes, temperature, seen) @ prototypes


def prototype_gradient(
    features: Tensor, slots: Tensor, prototypes: Tensor, temperature: float, seen: Tensor | None = None
) -> Tensor:
    """The gradient by the prototypes, `[classes, d]`."""
    return _slope(features, slots, prototypes, temperature, seen).T @ features
