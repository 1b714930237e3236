"""The supervised contrastive loss: features of the same class attract each other, all others repel.

Khosla, P. et al. Supervised Contrastive Learning. NeurIPS 2020.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["proxy_contrastive_loss", "supervised_contrastive_loss"]

NEVER = -1e4  # a similarity whose exponential is 0; finite, so that a row of them has a gradient


def supervised_contrastive_loss(features: Tensor, slots: Tensor, temperature: float) -> Tensor:
    """−1/|A| Σ_i 1/|P(i)| Σ_{j ∈ P(i)} log softmax_{j ≠ i}(f_i·f_j / τ).

    P(i): the other samples of the class of i. A: the samples for which there are any. 0 where A is empty.

    features: of unit length, `[samples, d]`. slots: the class of each.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> supervised_contrastive_loss(features, torch.tensor([0, 0, 1]), temperature=1.0)
    tensor(0.3133)
    """
    itself = torch.eye(len(slots), dtype=torch.bool, device=slots.device)
    similarities = (features @ features.T / temperature).masked_fill(itself, NEVER)
    positive = (slots[:, None] == slots) & ~itself
    return _mean_over_positives(similarities, positive)


def proxy_contrastive_loss(features: Tensor, proxies: Tensor, slots: Tensor, temperature: float) -> Tensor:
    """The same between samples and the proxies of their classes: each sample contributes the proxy of its class.

    So a class that comes often in the batch counts often in the denominator, and one that does not come does not.

    features, proxies: of unit length, `[samples, d]`; a row of `proxies` is the proxy of the sample's class.

    >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> proxy_contrastive_loss(features, features, torch.tensor([0, 1]), temperature=1.0)
    tensor(0.3133)
    """
    return _mean_over_positives(features @ proxies.T / temperature, slots[:, None] == slots)


def _mean_over_positives(similarities: Tensor, positive: Tensor) -> Tensor:
    """The mean over rows of the mean negative log-probability of the positive columns, for rows that have any."""
    losses = -similarities.log_softmax(1).masked_fill(~positive, 0).sum(1)
    counts = positive.sum(1)
    return (losses / counts.clamp(min=1)).sum() / (counts > 0).sum().clamp(min=1)
