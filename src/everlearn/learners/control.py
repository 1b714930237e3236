"""Control over what a learner knows: forget a class, take in what another learner keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from everlearn.memory.labels import Label, as_labels
from everlearn.words import differing

if TYPE_CHECKING:
    from everlearn.learners.base import Learner

__all__ = ["forget", "merge"]


def forget(learner: Learner, label: Label) -> None:
    """Remove a class with all that is kept of it; the slots of the classes after it move down by one."""
    (label,) = as_labels([label])
    if label not in learner.labels:
        raise ValueError(f"{type(learner).__name__}.forget got the label {label!r}, which was never observed")
    learner._forget_class(learner.labels.slot(label))
    learner.labels.remove(label)


def merge(learner: Learner, other: Learner) -> None:
    """Take in the classes and the memory of another learner, which stays as it is."""
    _check(learner, other)
    for label in other.classes:
        learner.labels.add(label)
    learner._open_classes(len(learner.labels))
    learner._merge(other, np.array(learner.labels.slots(other.classes), np.int64))
    learner.batches += other.batches
    learner.samples += other.samples


def _check(learner: Learner, other: Learner) -> None:
    """Refuse a learner that can't be taken in, before anything changes."""
    name = type(learner).__name__
    if type(other) is not type(learner) or other is learner:
        kind = "itself" if other is learner else type(other).__name__
        raise ValueError(f"{name}.merge takes another {name}, not {kind}")
    if learner.memory is None:
        raise ValueError(f"{learner.name} has no memory, so that there is nothing to merge")
    mine, theirs = learner._identity(), other._identity()
    for part in mine:
        if mine[part] != theirs[part]:
            here, there = differing(mine[part], theirs[part])
            raise ValueError(
                f"{name}.merge takes a learner with the same {part}: {here!r} here, {there!r} there"
            )
    for each in (learner, other):
        if not each.labels:
            raise ValueError(f"{name}.merge takes learners that have both learnt something")
    if (learner.sample_shape, learner.sample_type) != (other.sample_shape, other.sample_type):
        shapes = [f"{list(each.sample_shape or ())} of {each.sample_type}" for each in (learner, other)]
        raise ValueError(
            f"{name}.merge takes a learner of the same samples: {shapes[0]} here, {shapes[1]} there"
        )
    learner._check_room(len(learner.labels) + len(learner.labels.new(other.classes)))
    learner._check_merge(other)
