"""Rejection of unknown samples: those that are farther from every class than nearly all exemplars are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.arrays import Array, in_float64
from everlearn.encoders import Features
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["least_score", "reject", "rejected", "threshold"]

AT_MOST = 1000  # exemplars that the threshold is computed from


Scored = Callable[["Learner", Any], Array]  # the scores that a learner gives to samples


def rejected(learner: Learner, predicted: list[Label], scores: Array, scored: Scored) -> list[Label]:
    """The predictions of a learner, with UNKNOWN for samples that it rejects."""
    return reject(predicted, torch.as_tensor(scores), least_score(learner, scored))


def least_score(learner: Learner, scored: Scored) -> float:
    """The score below which a prediction is rejected, computed from the exemplars at most once per batch."""
    if learner.rejection_threshold is None:
        samples = learner.memory.samples()[0]
        samples = samples[:: max(-(-len(samples) // AT_MOST), 1)]
        scores = scored(learner, Features(samples)) if len(samples) else torch.empty(0, 1)
        learner.rejection_threshold = threshold(torch.as_tensor(scores), learner.settings.unknown)
    return learner.rejection_threshold


def reject(predicted: list[Label], scores: Tensor, least: float) -> list[Label]:
    """The predictions, with UNKNOWN for samples whose best score is below `least`.

    scores: of each sample and class, `[samples, classes]`.
    """
    known = (scores.amax(1) >= least).tolist()
    return [label if is_known else UNKNOWN for label, is_known in zip(predicted, known, strict=True)]


def threshold(scores: Tensor, share: float) -> float:
    """The quantile `share` of the best scores of the exemplars; −∞ without exemplars.

    The share of new samples below it is somewhat larger, since the learner is trained on the exemplars.

    scores: of exemplars and classes, `[exemplars, classes]`.
    """
    return float(in_float64(scores.amax(1)).quantile(share)) if len(scores) else -math.inf
