"""None of these: a prediction is withheld where a sample is farther from every class than nearly all of one's own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.learners.predicting import Predicting

__all__ = ["threshold", "withhold"]

# So many exemplars tell a quantile well enough; a larger memory would only cost more.
AT_MOST = 1000


def withhold(predicted: list[Label], scores: Tensor, least: float) -> list[Label]:
    """The predictions, with UNKNOWN in place of those whose best score is below the least one.

    scores: of each sample and class, `[samples, classes]`.
    """
    known = (scores.amax(1) >= least).tolist()
    return [label if is_known else UNKNOWN for label, is_known in zip(predicted, known, strict=True)]


def threshold(learner: Predicting) -> float:
    """The score below which the exemplars' own best scores lie with the frequency that the setting accepts.

    Of new samples somewhat more are lost, since the exemplars are also learnt from. Without exemplars it is −∞.
    """
    assert learner.memory is not None
    samples, _ = learner.memory.samples()
    if not len(samples):
        return -math.inf
    some = samples[:: -(-len(samples) // AT_MOST)]
    best = learner._scored(some).amax(1)
    return float(best.double().quantile(learner.settings.unknown))
