"""Rejection of unknown samples: those that are farther from every class than nearly all exemplars are."""

from __future__ import annotations

import math

from torch import Tensor

from everlearn.arrays import in_float64
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

__all__ = ["AT_MOST", "reject", "threshold"]

AT_MOST = 1000  # exemplars that the threshold is computed from


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
