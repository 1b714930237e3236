"""Remove a class from a learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label, as_labels, shortened
from everlearn.training.averaging import WeightAverage
from everlearn.transaction import atomic

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["copy_before_writing", "drop_class", "forget_label", "memory_edited"]


@atomic
def forget_label(learner: Learner, label: Label) -> None:
    """Remove a class: prototype, exemplars, counters, logit. If it comes again, it is a new class."""
    (label,) = as_labels([label])
    if label not in learner.labels:
        raise ValueError(
            f"{type(learner).__name__}.forget got the label {shortened(label)}, which was never observed"
        )
    if not learner.can_forget:
        raise ValueError(
            f"{learner.name} can't forget a class, since all its weights depend on every class: "
            "create a new learner"
        )
    learner.settle()
    copy_before_writing(learner)
    learner.invalidate()
    learner.forget_class(learner.labels.slot(label))
    learner.labels.remove(label)


def drop_class(learner: Learner, slot: int) -> None:
    """Remove a class from memory, prototypes, head and averaged weights; the slots after it move down by one."""
    average, learner.average = learner.average, None
    for part in (learner.memory, learner.head, learner.prototype_memory, learner.calibration, learner.drift):
        if part is not None:
            part.forget(slot)
    learner.tensors_replaced()
    if average is not None:
        average = average.copy()
        average.forget(slot)
        learner.average = WeightAverage(learner.network, average)


def memory_edited(learner: Learner, kept: NDArray[np.int64]) -> None:
    """Called after samples of the memory were removed or relabelled; kept: which of those before are left."""


def copy_before_writing(learner: Learner) -> None:
    """Replace the memory's arrays by copies, so that a transaction can go back to the originals.

    For rare changes that write to most of the memory; learning from a batch makes no copies.
    """
    if learner.memory is not None:
        for name, part in vars(learner.memory).items():
            if isinstance(part, np.ndarray):
                setattr(learner.memory, name, part.copy())
            elif isinstance(part, Tensor):
                setattr(learner.memory, name, part.clone())
        learner.tensors_replaced()
