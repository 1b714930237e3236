"""Contrastive losses on a matrix of similarities, as bounds on mutual information."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["class_info_nce", "pair_info_nce", "similarities_of", "two_view_info_nce", "version_owners"]

TINY = 1e-8  # below it a probability has no gradient


def similarities_of(projections: Tensor, features: Tensor, start: Tensor, weight: float = 1.0) -> Tensor:
    """z·zᵀ + z·fᵀ, where f is a part of the features as wide as the projections z, from a random `start` on.

    projections, features: of unit length, `[samples, d]` and `[samples, more]`. start: an index, `[]`.

    >>> z, f = torch.eye(2), torch.tensor([[0.0, 0.6, 0.8], [0.0, 0.6, 0.8]])
    >>> similarities_of(z, f, torch.tensor(1))
    tensor([[1.6000, 0.6000],
            [0.8000, 1.8000]])
    """
    columns = start + torch.arange(projections.shape[1], device=projections.device)
    return weight * (projections @ projections.T + projections @ features[:, columns].T)


def _losses(similarities: Tensor, temperature: float, itself: bool) -> Tensor:
    """−log of the softmax of each row, `[samples, samples]`; without the diagonal, where `itself` is False."""
    scaled = similarities / temperature
    if not itself:
        diagonal = torch.eye(len(scaled), dtype=torch.bool, device=scaled.device)
        scaled = scaled.masked_fill(diagonal, -1e4)
    return -(scaled.softmax(1) + TINY).log()


def class_info_nce(similarities: Tensor, owners: Tensor, temperature: float, itself: bool = True) -> Tensor:
    """The mean over samples i of 1/|C_i| Σ_{j ∈ C_i} −log p_ij, where C_i are all samples of the class of i.

    itself: whether a sample counts among those it is compared with; if not, p_ii is left out of both sums.

    >>> class_info_nce(torch.zeros(2, 2), torch.tensor([0, 0]), temperature=1.0)
    tensor(0.6931)
    """
    same = owners[:, None] == owners
    losses = _losses(similarities, temperature, itself)
    if not itself:
        losses = losses.masked_fill(torch.eye(len(same), dtype=torch.bool, device=same.device), 0)
    return (losses * same / same.sum(1, keepdim=True)).sum() / len(owners)


def pair_info_nce(similarities: Tensor, temperature: float) -> Tensor:
    """The mean of −log p_ij, where i and j are the two views of one sample: the first half, then the second.

    >>> pair_info_nce(torch.zeros(4, 4), temperature=1.0)
    tensor(1.0986)
    """
    losses = _losses(similarities, temperature, itself=False)
    partners = torch.arange(len(losses), device=losses.device).roll(len(losses) // 2)
    return losses.gather(1, partners[:, None]).mean()


def two_view_info_nce(similarities: Tensor, owners: Tensor, temperature: float) -> Tensor:
    """The two views of a sample attract each other once, all samples of its class twice.

    owners: the class of each sample, `[samples]`; the similarities are of their first views, then of their second.
    """
    alike = class_info_nce(similarities, owners.repeat(2), temperature, itself=False)
    return pair_info_nce(similarities, temperature) + 2 * alike


def version_owners(slots: Tensor, versions: int) -> Tensor:
    """The class of every version of each sample, all samples in the first version first: a version is its own class.

    >>> version_owners(torch.tensor([0, 3]), versions=2)
    tensor([0, 6, 1, 7])
    """
    return (slots * versions + torch.arange(versions, device=slots.device)[:, None]).flatten()
