"""How good the representation is: pure functions of features, labels and prototypes.

u_i is the feature of sample i scaled to unit length, m_c the mean of the u_i of class c. Ideally the prototype
p^c points to m_c.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.arrays import in_float64
from everlearn.memory.labels import Label, as_labels

__all__ = ["Plane", "project", "prototype_shift", "prototype_truth", "variance"]

Prototypes = Mapping[Label, Tensor]


class Plane(NamedTuple):
    """Features and prototypes in two dimensions, and the share of the variance that each dimension explains."""

    samples: Tensor  # [n, 2]
    prototypes: dict[Label, Tensor]  # [2] each
    explained: tuple[float, float]


def prototype_truth(features: Tensor, labels: Any, prototypes: Prototypes) -> dict[Label, float]:
    """How well each prototype matches its class: cos(p^c, m_c), for each class with a prototype and samples.

    >>> features = torch.tensor([[1.0, 1.0], [1.0, -1.0], [0.0, 2.0]])
    >>> prototypes = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([1.0, 0.0])}
    >>> prototype_truth(features, ["a", "a", "b"], prototypes)
    {'a': 1.0, 'b': 0.0}
    """
    classes, _, means = _class_means(features, labels)
    both = [(place, label) for place, label in enumerate(classes) if label in prototypes]
    if not both:
        return {}
    mine = means[[place for place, _ in both]]
    theirs = torch.stack([prototypes[label] for _, label in both]).to(mine)
    cosines = (mine * theirs).sum(1) / (mine.norm(dim=1) * theirs.norm(dim=1))
    return dict(zip([label for _, label in both], cosines.clamp(-1, 1).tolist(), strict=True))


def variance(features: Tensor, labels: Any) -> tuple[float, float]:
    """Intra-class and inter-class variance of unit-length features; all classes have the same weight.

    intra = mean over c of the mean over i in c of |u_i − m_c|²
    inter = mean over c of |m_c − m|², with m the mean of all m_c

    >>> variance(torch.tensor([[1.0, 0.0], [2.0, 0.0], [-3.0, 0.0]]), ["a", "a", "b"])
    (0.0, 1.0)
    """
    _, owners, means = _class_means(features, labels)
    away = (_units(features) - means[owners]).square().sum(1)  # [n]
    intra = _mean_by_class(away[:, None], owners, len(means)).mean()
    inter = (means - means.mean(0)).square().sum(1).mean()
    return intra.item(), inter.item()


def prototype_shift(before: Prototypes, after: Prototypes) -> dict[Label, float]:
    """How far each prototype moved: |p^c_after − p^c_before|, for each class with both.

    >>> prototype_shift({"a": torch.tensor([1.0, 0.0])}, {"a": torch.tensor([0.0, 0.0]), "b": torch.ones(2)})
    {'a': 1.0}
    """
    both = [label for label in after if label in before]
    if not both:
        return {}
    moved = torch.stack([after[label] for label in both]) - torch.stack([before[label] for label in both])
    return dict(zip(both, moved.norm(dim=1).tolist(), strict=True))


def project(features: Tensor, prototypes: Prototypes) -> Plane:
    """The two principal components of the features, and the prototypes in the same plane.

    The largest entry of a component is positive, so the same features always give the same picture.

    >>> corners = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]])
    >>> plane = project(corners, {"a": torch.tensor([2.0, 2.0])})
    >>> plane.samples[1].tolist(), plane.prototypes["a"].tolist(), plane.explained
    ([2.0, -1.0], [0.0, 1.0], (0.8, 0.2))
    """
    wide = _matrix(features)
    middle = wide.mean(0)
    spread = (wide - middle).T @ (wide - middle)  # [d, d], n times the covariance
    values, vectors = torch.linalg.eigh(spread)  # in ascending order
    axes = vectors.flip(1)[:, :2]  # [d, 2]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    axes = axes * largest.sign()
    shares = (values.flip(0).clamp(min=0) / values.clamp(min=0).sum().clamp(min=1e-300)).tolist()
    if axes.shape[1] == 1:  # features of one number lie on a line
        axes, shares = torch.cat([axes, torch.zeros_like(axes)], 1), [*shares, 0.0]
    placed = {label: ((vector.to(middle) - middle) @ axes).float() for label, vector in prototypes.items()}
    return Plane(((wide - middle) @ axes).float(), placed, (shares[0], shares[1]))


def _matrix(features: Tensor) -> Tensor:
    """The features in float64, after a check of their shape."""
    if features.ndim != 2 or len(features) == 0:
        raise ValueError(
            f"features must have the shape [samples, d] with at least one sample, not {list(features.shape)}"
        )
    return in_float64(features.detach())


def _units(features: Tensor) -> Tensor:
    return normalize(_matrix(features), dim=1)


def _class_means(features: Tensor, labels: Any) -> tuple[list[Label], Tensor, Tensor]:
    """The classes in the order first seen, the index of each sample's class, and the mean m_c of every class."""
    names = as_labels(labels)
    if len(names) != len(features):
        raise ValueError(f"got {len(features)} features but {len(names)} labels")
    places = {label: place for place, label in enumerate(dict.fromkeys(names))}
    units = _units(features)
    owners = torch.tensor([places[label] for label in names], device=units.device)
    return list(places), owners, _mean_by_class(units, owners, len(places))


def _mean_by_class(values: Tensor, owners: Tensor, classes: int) -> Tensor:
    """`[n, k]` to `[classes, k]`."""
    sums = values.new_zeros(classes, values.shape[1]).index_add_(0, owners, values)
    return sums / owners.bincount(minlength=classes)[:, None]
