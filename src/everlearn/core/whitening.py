"""Prototypes of fixed features compared as linear discriminant analysis does: by the covariance within classes.

The covariance is that of all features so far around the mean of their class, d² numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from everlearn.arrays import Array, in_type_of, unit_rows
from everlearn.networks import to_unit_length

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Metric", "metric_of", "whitened_scores"]

SMALLEST = 1e-4  # of the mean variance: features of less count as if they had it


class Metric(NamedTuple):
    """Features are centred by `mean`, `[d]`, and multiplied by `factor`, `[d, d]`: then classes are round.

    prototypes: those of all classes in this space, at unit length, `[classes, d]`.
    """

    mean: Tensor
    factor: Tensor
    prototypes: Tensor


def whitened_scores(learner: Learner, output: Array, temperature: float) -> Array:
    """The cosine of features and prototypes over the temperature, in the space in which classes are round.

    output: of the network, `[samples, d]`.
    """
    metric = Metric(*(in_type_of(output, part) for part in metric_of(learner)))
    whitened = unit_rows((unit_rows(output) - metric.mean) @ metric.factor)
    return whitened @ metric.prototypes.T / temperature


def metric_of(learner: Learner) -> Metric:
    """The metric of a learner's prototypes, computed at most once per batch."""
    held: Any = learner.prototype_memory
    if held.metric is None:
        means = held.vectors[: len(learner.labels)]
        size = means.shape[1]
        scatter = means.new_zeros(size, size) if held.scatter is None else held.scatter
        samples = 0.0 if held.scattered is None else float(held.scattered)
        held.metric = _metric(means, scatter, max(samples - len(means), 0.0))
    metric: Metric = held.metric
    return metric


@torch.no_grad()
def _metric(means: Tensor, scatter: Tensor, degrees: float) -> Metric:
    """The metric of these class means, and of the spread of all features around them.

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
    return Metric(mean, factor, to_unit_length((means - mean) @ factor)[0])
