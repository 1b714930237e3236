"""The features of all exemplars of the replay memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from everlearn.core.chunks import chunk_size
from everlearn.networks import as_input

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["exemplar_features"]


def exemplar_features(learner: Learner, features: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The features of all exemplars, `[exemplars, d]`, and the class of each; to be called in evaluation mode."""
    rows, slots = (torch.from_numpy(part).to(learner.device) for part in learner.memory.kept())
    parts = torch.split(rows, chunk_size(learner))
    chunks = (learner.prepared(as_input(learner.memory.recall(part))) for part in parts)
    return torch.cat([features(chunk) for chunk in chunks]), slots
