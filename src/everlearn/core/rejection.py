"""Rejection of unknown samples: those whose nearest exemplars are farther away than nearly all exemplars' own are.

This tells known from unknown better than the scores of classes do (benchmarks/unknown.py), except for fixed features
that are compared by their covariance: there the nearest prototype does it better.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.arrays import in_float64, unit_rows
from everlearn.core.whitening import Metric, metric_of
from everlearn.encoders import Features
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Known", "NearPrototypes", "known_region", "rejected"]

AT_MOST = 1000  # exemplars that are compared with
NEAREST = 5  # of them that count


class NearPrototypes:
    """Where the known samples are, in the space in which classes are round: in the direction of a prototype.

    exemplars: their features, `[exemplars, d]`.
    least: a sample whose largest cosine with a prototype is lower is unknown: the quantile `share` of the exemplars'.
    """

    def __init__(self, metric: Metric, exemplars: Tensor, share: float) -> None:
        self._metric = metric
        self.least = (
            float(in_float64(self._similarity(exemplars)).quantile(share)) if len(exemplars) else -1.0
        )

    def _similarity(self, features: Tensor) -> Tensor:
        mean, factor, prototypes = self._metric
        similar: Tensor = (unit_rows((unit_rows(features) - mean) @ factor) @ prototypes.T).amax(1)
        return similar

    def accepts(self, features: Tensor) -> Tensor:
        """Whether each of the samples with these features is known."""
        return self._similarity(features) >= self.least


class Known:
    """Where the known samples are: near these exemplars.

    exemplars: their features at unit length, `[exemplars, d]`.
    share: the share of known samples that may be rejected.
    least: the mean similarity to the nearest exemplars below which a sample is unknown. It is the quantile `share` of
        the same for the exemplars, each compared with all others; −∞ where there is at most one.

    >>> known = Known(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]]), 0.0)
    >>> known.accepts(torch.tensor([[0.9, 0.1], [-1.0, 0.0]])).tolist()
    [True, False]
    """

    def __init__(self, exemplars: Tensor, share: float) -> None:
        self.exemplars = exemplars
        self.least = -math.inf
        if len(exemplars) > 1:
            similar = exemplars @ exemplars.T
            similar.fill_diagonal_(-math.inf)
            nearest = similar.topk(min(NEAREST, len(exemplars) - 1), 1).values.mean(1)
            self.least = float(in_float64(nearest).quantile(share))

    def accepts(self, features: Tensor) -> Tensor:
        """Whether each of the samples with these features is known."""
        if self.least == -math.inf:
            return features.new_ones(len(features), dtype=torch.bool)
        similar = unit_rows(features) @ self.exemplars.T
        nearest: Tensor = similar.topk(min(NEAREST, len(self.exemplars) - 1), 1).values.mean(1)
        return nearest >= self.least


def rejected(learner: Learner, predicted: list[Label], x: Any) -> list[Label]:
    """The predictions of samples, with UNKNOWN for those that the learner rejects."""
    known = known_region(learner).accepts(learner.embed(x)).tolist()
    return [label if is_known else UNKNOWN for label, is_known in zip(predicted, known, strict=True)]


def known_region(learner: Learner) -> Known | NearPrototypes:
    """Where the known samples are, computed from the exemplars at most once per batch."""
    if learner.rejection is None:
        samples = learner.memory.samples()[0]
        samples = samples[:: max(-(-len(samples) // AT_MOST), 1)]
        share = learner.settings.unknown
        features = learner.embed(Features(samples)) if len(samples) else torch.empty(0, 1)
        if learner.options.whiten:
            learner.rejection = NearPrototypes(metric_of(learner), features, share)
        else:
            learner.rejection = Known(unit_rows(features), share)
    return learner.rejection
