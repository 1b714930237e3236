"""Prototypes for predictions: the evolving ones, or the mean embedding of the exemplars of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.core.exemplar_features import exemplar_features
from everlearn.core.prediction import evaluate
from everlearn.core.whitening import metric_of
from everlearn.encoders import Features
from everlearn.networks import to_unit_length

if TYPE_CHECKING:
    from collections.abc import Callable

    from everlearn.core.learner import Learner

__all__ = [
    "class_means",
    "class_sums",
    "nearest_mean_scores",
    "prediction_prototypes",
    "refresh_means",
    "settle_means",
]


def refresh_means(learner: Learner) -> None:
    """Compute the prototypes anew from the memory, if the method has any: the mean embedding of each class."""
    held = learner.prototype_memory
    samples, labels = ((), []) if held is None else learner.memory.samples()
    if held is not None and labels:
        slots = torch.tensor(learner.labels.slots(labels), device=learner.device)
        unit = learner.options.renormalise or learner.settings.learn_prototypes
        held.recompute(learner.embed(Features(samples)), slots, unit)


def prediction_prototypes(learner: Learner) -> Tensor:
    """The prototypes used for predictions, `[classes, d]`: the evolving ones, or means of the exemplars."""
    held: Any = learner.prototype_memory
    evolving: Tensor = held.vectors[: len(learner.labels)]
    if learner.options.whiten:
        return metric_of(learner).prototypes
    if learner.options.class_means:
        return to_unit_length(evolving)[0]
    if not learner.settings.recalibrate:
        return evolving
    age = learner.batches - held.computed_at
    if held.from_exemplars is None or age >= learner.settings.recalibrate_every:
        means = evaluate(learner, lambda: _from_exemplars(learner, evolving))
        held.from_exemplars, held.computed_at = means, learner.batches
    means = held.from_exemplars
    return torch.cat([means, evolving[len(means) :]])  # and classes that came since


def settle_means(learner: Learner) -> None:
    """Compute the means that are due, if they are used for several batches, before anything changes.

    Else they would depend on when somebody asked for a prediction.
    """
    held = learner.prototype_memory
    kept = held is not None and held.keeps_means and learner.settings.recalibrate
    if kept and learner.classes and len(learner.memory):
        prediction_prototypes(learner)


def _from_exemplars(learner: Learner, otherwise: Tensor) -> Tensor:
    """The unit-length mean embedding of the exemplars of each class; `otherwise` for classes without any."""
    sums = class_sums(learner, learner.features)
    return torch.where(sums.any(1, keepdim=True), to_unit_length(sums)[0], otherwise)


def class_sums(learner: Learner, features: Callable[[Tensor], Tensor]) -> Tensor:
    """The sum of the features of the exemplars of each class, `[classes, d]`."""
    found, slots = exemplar_features(learner, features)
    return found.new_zeros(len(learner.labels), found.shape[1]).index_add_(0, slots, found)


def class_means(learner: Learner, features: Callable[[Tensor], Tensor]) -> Tensor:
    """The unit-length mean of the unit-length features of the exemplars of each class, `[classes, d]`.

    Zero for a class without exemplars. To be called while the network is in evaluation mode.
    """
    return to_unit_length(class_sums(learner, lambda x: to_unit_length(features(x))[0]))[0]


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """−‖f − μ‖² for each class, of features at unit length; −∞ for a class without exemplars.

    All classes are equal where none has any.

    >>> nearest_mean_scores(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    tensor([[ 0., -inf, -2.]])
    """
    present = means.any(1)
    scores = 2 * to_unit_length(features)[0] @ means.T - 2
    nothing = torch.where(present.any(), -torch.inf, 0.0).to(scores.dtype)
    return torch.where(present, scores, nothing)
