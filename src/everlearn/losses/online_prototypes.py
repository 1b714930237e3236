"""Online prototypes: the mean feature of each class in a batch, and a contrastive loss between those of two views.

Wei, Y. et al. Online Prototype Learning for Online Continual Learning. ICCV 2023.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["class_pairs", "mean_by_class", "prototype_equilibrium_loss"]

NEVER = -1e4  # a similarity whose exponential is 0


def mean_by_class(features: Tensor, slots: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """The mean feature of each class in the batch, `[classes, d]`, zero for the others; and which ones are there.

    >>> mean_by_class(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 2]), classes=3)
    (tensor([[2.],
            [0.],
            [5.]]), tensor([ True, False,  True]))
    """
    everything = torch.arange(classes, device=slots.device)
    owners = (everything[:, None] == slots).to(features.dtype)  # [classes, samples]
    counts = owners.sum(1, keepdim=True)
    return owners @ features / counts.clamp(min=1), counts[:, 0] > 0


def prototype_equilibrium_loss(first: Tensor, second: Tensor, present: Tensor, temperature: float) -> Tensor:
    """The prototypes of a class in two views attract each other; those of other classes repel.

    The mean over both prototypes of all classes that are there of −log softmax(p·q / τ); q are all others.

    first, second: `[classes, d]`, of any length. present: which classes are there.

    >>> prototypes = torch.eye(2)
    >>> prototype_equilibrium_loss(prototypes, prototypes, torch.tensor([True, True]), temperature=1.0)
    tensor(0.5514)
    """
    vectors, there = normalize(torch.cat([first, second])), present.repeat(2)
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    similarities = (vectors @ vectors.T / temperature).masked_fill(itself | ~there, NEVER)
    partners = torch.arange(len(vectors), device=vectors.device).roll(len(first))
    losses = -similarities.log_softmax(1).gather(1, partners[:, None])[:, 0]
    return (losses * there).sum() / there.sum().clamp(min=1)


def class_pairs(means: Tensor, keys: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pairs of classes to mix, `count` of them, the nearer ones more often. Tensor operations only.

    The pair of classes i < j gets round(count · p_ij) places, where p is the softmax of 1 / ‖μ_i − μ_j‖ over all
    pairs of classes with a mean. The places that are missing go to random pairs, one each; if there are too many,
    random pairs lose one each.

    means: `[classes, d]`, zero for classes without one. keys: random integers, one for each pair, `[pairs]`.
    Returns the two classes of each place, `[2, count]`, its pair, `[count]`, and whether there is any pair, `[]`.

    >>> means = torch.tensor([[1.0], [2.0], [9.0], [0.0]])
    >>> classes, pairs, some = class_pairs(means, torch.arange(6), count=3)
    >>> classes.tolist(), some  # 1 / distance is 1 for the first pair of classes, and below 0.15 for the others
    ([[0, 0, 1], [1, 2, 2]], tensor(True))
    """
    rows, columns = torch.triu_indices(len(means), len(means), 1, device=means.device)
    present = means.any(1)
    there = present[rows] & present[columns]
    distances = (means[rows] - means[columns]).square().sum(1).sqrt().clamp(min=1e-6)
    shares = torch.where(there, 1 / distances, -torch.inf).softmax(0).nan_to_num()
    places = (shares * count).round()
    order = keys.argsort()
    missing = count - places.sum()
    added = (there[order].cumsum(0) <= missing) & there[order]
    removed = ((places[order] > 0).cumsum(0) <= -missing) & (places[order] > 0)
    change = torch.zeros_like(places).scatter(0, order, added.to(places.dtype) - removed.to(places.dtype))
    ends = (places + change).cumsum(0)
    wanted = torch.arange(count, device=means.device, dtype=ends.dtype)
    pairs = torch.searchsorted(ends, wanted, right=True).clamp(max=len(rows) - 1)
    return torch.stack([rows[pairs], columns[pairs]]), pairs, there.any()
