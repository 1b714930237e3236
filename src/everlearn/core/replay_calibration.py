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

__all__ = ["EVERY", "combined_sharpness", "fit_calibration", "newton_step", "scores_are_known"]

EVERY = 4  # one batch of so many is used: this is 1 % of the time of a batch of ten with an MLP
RECENT = 200  # samples of a fit that count, about
FIRM = 5.0  # information that holds a fit where it is
LONGEST = 0.5  # step
BOUNDS = (-4.0, 3.0)  # of the fits
SIGNS = np.array([1.0, -1.0, 1.0])  # a − s + n

Numbers = NDArray[np.float64]
NETWORKS = ("mlp", "identity")  # those that compute the same in training and in evaluation mode


def scores_are_known(learner: Learner, options: Options) -> bool:
    """Whether a step embeds samples as a prediction would: the same weights, prototypes and views of samples."""
    settings: Any = learner.settings
    of_settings = ("colour", "cutout", "mixing", "mirrored", "recalibrate", "learn_prototypes")
    return (
        getattr(learner, "embeds_in_step", False)
        and learner.given in NETWORKS
        and settings.augmentation == "none"
        and not any(getattr(settings, name) for name in of_settings)
        and not (options.averaging or options.blend or options.class_means or options.whiten)
    )


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
    """The three fits and their information, `[2, 3]`, after one step on the log-likelihood of these samples.

    scores: `[samples, classes]`, of `new` new samples, then of exemplars. slots: their classes.
    """
    sharpness, information = fits
    is_new = np.arange(len(slots)) < new
    in_both = np.zeros(scores.shape[1], bool)
    in_both[slots[new:]] = True
    common = in_both[slots]
    in_both[:] = False
    in_both[slots[:new]] = True
    common &= in_both[slots]
    counted = np.array([~is_new, ~is_new & common, is_new & common])  # [fits, samples]
    # With p = softmax(βz) and β = e^sharpness: ∂ log p_y = β (z_y − E z), and its information is β² Var z.
    z = scores - scores[np.arange(len(slots)), slots][:, None]
    factors = np.exp(sharpness)[:, None]
    powers = factors[:, :, None] * z
    p = np.exp(powers - powers.max(2, keepdims=True))
    p /= p.sum(2, keepdims=True)
    means = (p * z).sum(2)
    spreads = (p * z * z).sum(2) - means**2
    slopes = -(counted * factors * means).sum(1)
    information = (1 - 1 / RECENT) ** counted.sum(1) * information + (counted * factors**2 * spreads).sum(1)
    steps = np.clip(slopes / (information + FIRM), -LONGEST, LONGEST)
    return np.array([np.clip(sharpness + steps, *BOUNDS), information])


def combined_sharpness(fits: Numbers) -> float:
    """a − s + n."""
    return float(np.clip(fits[0] @ SIGNS, *BOUNDS))
