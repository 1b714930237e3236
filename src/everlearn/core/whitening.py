"""Prototypes of fixed features compared as linear discriminant analysis does: by the covariance within classes.

The covariance is that of all features so far around the mean of their class, d² numbers. The nearest exemplars of a
class count, too: the more of all samples the memory holds, the more they count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.arrays import Array, in_type_of, product, unit_rows
from everlearn.core.exemplar_features import exemplar_features
from everlearn.networks import to_unit_length

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Metric", "metric_of", "whitened_scores"]

SMALLEST = 1e-4  # of the mean variance: features of less count as if they had it
WIDTH = 0.03  # difference in similarity by which an exemplar counts e times less than another of its class
WEIGHT = 0.5  # of the nearest exemplars, against 1 of the prototype, where the memory holds all samples


class Metric(NamedTuple):
    """Features are centred by `mean`, `[d]`, and multiplied by `factor`, `[d, d]`: then classes are round.

    prototypes: those of all classes in this space, at unit length, `[classes, d]`.
    exemplars: features that are centred, over the length that features have in this space, `[exemplars, d]`.
    slots: the class of each, ascending, `[exemplars]`. counts: how many each class has, `[classes]`.
    weight: how much the nearest exemplars count.
    """

    mean: Tensor
    factor: Tensor
    prototypes: Tensor
    exemplars: Tensor
    slots: Tensor
    counts: Tensor
    weight: Tensor


def whitened_scores(learner: Learner, output: Array, temperature: float) -> Array:
    """The cosine of features and prototypes over the temperature, in the space in which classes are round.

    Where every class has exemplars, it is the weighted mean with the similarity to the nearest of these.

    output: of the network, `[samples, d]`.
    """
    metric = Metric(*(in_type_of(output, part) for part in metric_of(learner)))
    whitened = unit_rows((unit_rows(output) - metric.mean) @ metric.factor)
    similar = whitened @ metric.prototypes.T
    if len(metric.exemplars):
        nearest = _nearest(product(whitened, metric.factor.T), metric)
        similar = (similar + metric.weight * nearest) / (1 + metric.weight)
    return similar / temperature


def _nearest(samples: Array, metric: Metric) -> Array:
    """1 + w log mean exp((s − 1) / w) over the exemplars of each class: s the similarity to each, w the width."""
    xp: Any = torch if isinstance(samples, Tensor) else np
    similar = product(samples, metric.exemplars.T).clip(-1, 1)
    return 1 + WIDTH * xp.log(_class_sums(xp.exp((similar - 1) / WIDTH), metric) / metric.counts)


def _class_sums(values: Array, metric: Metric) -> Array:
    """The sum over the exemplars of each class, of which there is at least one: `[samples, classes]`."""
    if isinstance(values, Tensor):
        zeros = values.new_zeros(values.shape[0], len(metric.counts))
        return zeros.scatter_add(1, metric.slots.expand_as(values), values)
    first = np.flatnonzero(np.diff(metric.slots, prepend=-1))
    return np.add.reduceat(values, first, axis=1)


def metric_of(learner: Learner) -> Metric:
    """The metric of a learner's prototypes and exemplars, computed at most once per batch."""
    held: Any = learner.prototype_memory
    if held.metric is None:
        means = held.vectors[: len(learner.labels)]
        size = means.shape[1]
        scatter = means.new_zeros(size, size) if held.scatter is None else held.scatter
        scattered = 0.0 if held.scattered is None else float(held.scattered)
        mean, factor, whitened = _space(means, scatter, max(scattered - len(means), 0.0))
        samples = 0.0 if held.samples is None else float(held.samples.sum())
        exemplars, slots, counts = _exemplars(learner, mean, size + whitened.square().sum(1).mean())
        share = len(exemplars) / max(samples, len(exemplars), 1.0)
        weight = means.new_tensor(WEIGHT * share**0.5)
        held.metric = Metric(mean, factor, to_unit_length(whitened)[0], exemplars, slots, counts, weight)
    metric: Metric = held.metric
    return metric


def _exemplars(learner: Learner, mean: Tensor, squared_length: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The exemplars as a metric has them, the class of each, and their number by class; none if a class has none."""
    features, slots = exemplar_features(learner, learner.features)
    counts = slots.bincount(minlength=len(learner.labels))
    if not len(features) or not bool(counts.all()):
        return mean.new_empty(0, len(mean)), slots[:0], counts.to(mean.dtype)
    slots, order = slots.sort(stable=True)
    return (features[order] - mean) / squared_length.sqrt(), slots, counts.to(mean.dtype)


@torch.no_grad()
def _space(means: Tensor, scatter: Tensor, degrees: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean and the factor of a metric, and the class means there, by the spread of all features around these.

    With few samples the covariances of two features are uncertain, and are reduced by a share of d / (d + n), where n
    is the number of samples less the number of classes; the variances stay, so that no feature needs a scale.
    """
    size = means.shape[1]
    covariance = scatter / max(degrees, 1.0)
    variances = covariance.diagonal().clone()
    variances = variances.clamp(min=max(SMALLEST * float(variances.mean()), 1e-12))
    covariance = covariance * (degrees / (size + degrees))
    covariance.diagonal().copy_(variances)
    root = torch.linalg.cholesky(covariance)
    identity = torch.eye(size, dtype=root.dtype, device=root.device)
    factor = torch.linalg.solve_triangular(root, identity, upper=False).T.contiguous()
    mean = means.mean(0)
    return mean, factor, (means - mean) @ factor
