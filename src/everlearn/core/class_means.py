"""Prototypes for predictions: the evolving ones, or the mean embedding of the exemplars of each class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.core.prediction import CHUNK
from everlearn.networks import as_input, to_unit_length

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["prediction_prototypes"]


def prediction_prototypes(learner: Learner) -> Tensor:
    """The prototypes used for predictions, `[classes, d]`; computed from the exemplars at most once per batch."""
    held: Any = learner.prototype_memory
    evolving: Tensor = held.vectors[: len(learner.labels)]
    if not learner.settings.recalibrate:
        return evolving
    if held.from_exemplars is None:
        held.from_exemplars = _from_exemplars(learner, evolving)
    means: Tensor = held.from_exemplars
    return means


def _from_exemplars(learner: Learner, otherwise: Tensor) -> Tensor:
    """The unit-length mean embedding of the exemplars of each class; `otherwise` for classes without any."""
    rows, slots = (torch.from_numpy(part).to(learner.device) for part in learner.memory.kept())
    parts = [learner.features(as_input(learner.memory.recall(chunk))) for chunk in torch.split(rows, CHUNK)]
    sums = torch.zeros_like(otherwise).index_add_(0, slots, torch.cat(parts))
    return torch.where(sums.any(1, keepdim=True), to_unit_length(sums)[0], otherwise)
