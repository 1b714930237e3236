"""A temperature for all classes alike, from the scores that a step computes anyway.

The classes of a stream of images come and go, so that its newest samples say little about the others. Exemplars are
of all classes, but were learnt before. So three logarithms of the inverse temperature are fitted, to

    a  the exemplars that are replayed,
    s  those of them whose classes are in the batch,
    n  the new samples whose classes are among the exemplars, before they are learnt,

and a + (n − s) is used: what exemplars of all classes show, corrected by how much better an exemplar is known than a
new sample of the same class. Where every class is in every batch this is n, what new samples alone show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from everlearn.core.input_kind import Options
    from everlearn.core.learner import Learner
    from everlearn.core.plan import Plan

__all__ = ["batch_is_used", "combined_sharpness", "fit_calibration", "newton_step", "scores_are_known"]

# One batch of so many is used, among the first samples and later: of an MLP and batches of ten this takes 4 % of the
# time at first, and 1 % later.
EVERY, EVERY_LATER, EARLY = 4, 16, 10_000
# Samples that count in each fit, about, but at least a share of all: the scores change fast at first, how much better
# exemplars are known does not.
RECENT, RECENT_SHARE = np.array([100.0, 1000.0, 1000.0]), 1 / 8
FIRM = 5.0  # information that holds a fit where it is
LONGEST = 0.5  # step
FLATTEST, SHARPEST = -4.0, 3.0  # bounds of the fits

Numbers = NDArray[np.float64]
NETWORKS = ("mlp", "identity")  # those that compute the same in training and in evaluation mode


def scores_are_known(learner: Learner, options: Options) -> bool:
    """Whether a step embeds samples as a prediction would: the same weights, prototypes and views of samples."""
    settings: Any = learner.settings
    views = ("colour", "cutout", "mixing", "turned", "mirrored", "shifted")
    of_settings = (*views, "recalibrate", "learn_prototypes")
    return (
        getattr(learner, "embeds_in_step", False)
        and learner.given in NETWORKS
        and settings.augmentation == "none"
        and not any(getattr(settings, name) for name in of_settings)
        and not (options.averaging or options.blend or options.class_means or options.whiten)
    )


def batch_is_used(learner: Learner) -> bool:
    """Whether the calibration is fitted to the next batch; not on a GPU, where a step is one CUDA graph."""
    every = EVERY if learner.samples < EARLY else EVERY_LATER
    return learner.device.type == "cpu" and learner.batches % every == every - 1


def fit_calibration(learner: Learner, plan: Plan, outcomes: list[Any]) -> None:
    """Fit the calibration to the embeddings of the first step on a batch, where this batch is used for it."""
    held = learner.calibration
    if held is None or not held.due:
        return
    held.due = False
    features = outcomes[0]
    if plan.old_slots is None or not isinstance(features, Tensor):
        return
    slots = np.concatenate([plan.slots.numpy(), plan.old_slots[0].numpy()])
    if len(slots) == len(features):
        scores = np.asarray(learner.scores_of(features.detach().numpy()), np.float64)
        held.follow(scores, slots, len(plan.slots))


def newton_step(fits: Numbers, scores: Numbers, slots: NDArray[np.int64], new: int) -> Numbers:
    """The three fits, their information and their samples, `[3, 3]`, after a step on the likelihood of these samples.

    scores: `[samples, classes]`, of `new` new samples, then of exemplars. slots: their classes.
    """
    sharpness, information, samples = fits
    present = np.zeros((2, scores.shape[1]), bool)  # the classes of new samples, and of exemplars
    present[0, slots[:new]] = present[1, slots[new:]] = True
    common = (present[0] & present[1])[slots]
    counted = np.zeros((3, len(slots)))  # whether a fit counts a sample, [fits, samples]
    counted[0, new:], counted[1, new:], counted[2, :new] = 1, common[new:], common[:new]
    # With p = softmax(βz) and β = e^sharpness: ∂ log p_y = β (z_y − E z), and its information is β² Var z.
    z = scores - scores.max(1, keepdims=True)
    factors = np.exp(sharpness)
    p = np.exp(np.multiply.outer(factors, z))  # [fits, samples, classes], up to its sum
    sums, weighted = p.sum(2), p * z
    means = weighted.sum(2) / sums
    spreads = (weighted * z).sum(2) / sums - means * means
    errors = z[np.arange(len(slots)), slots] - means
    slopes, gained = factors * (errors * counted).sum(1), factors**2 * (spreads * counted).sum(1)
    counts = counted.sum(1)
    samples = samples + counts
    kept = (1 - 1 / np.maximum(RECENT, RECENT_SHARE * samples)) ** counts
    information = kept * information + np.maximum(gained, 0)
    steps = np.minimum(np.maximum(slopes / (information + FIRM), -LONGEST), LONGEST)
    return np.array([np.minimum(np.maximum(sharpness + steps, FLATTEST), SHARPEST), information, samples])


def combined_sharpness(fits: Numbers) -> float:
    """a + (n − s), within bounds."""
    exemplars, seen, new = map(float, fits[0])
    return min(max(exemplars + new - seen, FLATTEST), SHARPEST)
