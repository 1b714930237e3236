"""Rejection of unknowns: no label is given where a sample is farther from every class than nearly all exemplars."""

from __future__ import annotations

import math

from torch import Tensor

from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

__all__ = ["reject", "threshold"]

# So many exemplars tell a quantile well enough; a larger memory would only cost more.
AT_MOST = 1000


def reject(predicted: list[Label], scores: Tensor, least: float) -> list[Label]:
    """The predictions, with UNKNOWN in place of those whose best score is below the least one.

    scores: of each sample and class, `[samples, classes]`.
    """
    known = (scores.amax(1) >= least).tolist()
    return [label if is_known else UNKNOWN for label, is_known in zip(predicted, known, strict=True)]


def some_exemplars(samples: Tensor) -> Tensor:
    """As many exemplars as a threshold is taken from."""
    return samples[:: max(-(-len(samples) // AT_MOST), 1)]


def threshold(scores: Tensor, share: float) -> float:
    """The score below which the exemplars' own best scores lie with the accepted frequency; −∞ without exemplars.

    Of new samples somewhat more are rejected, since the exemplars are also learnt from.

    scores: of exemplars and classes, `[exemplars, classes]`.
    """
    return float(scores.amax(1).double().quantile(share)) if len(scores) else -math.inf
