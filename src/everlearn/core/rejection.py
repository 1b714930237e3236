"""Rejection of unknown samples: those whose nearest exemplars are farther away than nearly all exemplars' own are.

This tells known from unknown better than the scores of classes do (benchmarks/unknown.py).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.arrays import in_float64, unit_rows
from everlearn.encoders import Features
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Known", "known_region", "rejected"]

AT_MOST = 1000  # exemplars that are compared with
NEAREST = 5  # of them that count


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


def known_region(learner: Learner) -> Known:
    """Where the known samples are, computed from the exemplars at most once per batch."""
    if learner.rejection is None:
        samples = learner.memory.samples()[0]
        samples = samples[:: max(-(-len(samples) // AT_MOST), 1)]
        features = unit_rows(learner.embed(Features(samples))) if len(samples) else torch.empty(0, 1)
        learner.rejection = Known(features, learner.settings.unknown)
    return learner.rejection
