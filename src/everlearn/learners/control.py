"""Control over what a learner knows: forget a class, take in what another learner keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.learners.foundation import Foundation
from everlearn.learners.snapshot import in_turn
from everlearn.memory.labels import Label, as_labels, shortened
from everlearn.messages import differing
from everlearn.transaction import atomic

__all__ = ["Controlled"]


class Controlled(Foundation):
    """The part of a learner that others have a say in.

    can_forget: whether what it knows of a class lies where it can be removed.
    """

    can_forget = True

    @atomic
    def forget(self, label: Label) -> None:
        """Remove a class at once and for good: prototype, exemplars, counters, logit. It may come again, as new."""
        (label,) = as_labels([label])
        if label not in self.labels:
            raise ValueError(
                f"{type(self).__name__}.forget got the label {shortened(label)}, which was never observed"
            )
        if not self.can_forget:
            raise ValueError(
                f"{self.name} keeps what it knows of a class in all its weights, so that it can't forget one: "
                "make it anew"
            )
        self._copy_before_writing()
        self._forget_class(self.labels.slot(label))
        self.labels.remove(label)
        self._least = None

    def _forget_class(self, slot: int) -> None:
        """Drop what is kept of a class; those after it move down by one."""
        if self.memory is not None:
            self.memory.forget(slot)

    def merge(self, other: Self) -> None:
        """Take in what another learner keeps, which saw another part of the stream and stays as it is.

        Memories combine by their own rule; prototypes are taken anew from memory. The weights stay this one's.
        """
        self._check_kind(other)
        # Two threads that merge two learners into each other take both locks in the same order.
        if id(self) < id(other):
            self._merge_with(other)
        else:
            other._while_unchanged(lambda: self._merge_with(other))

    @atomic
    def _merge_with(self, other: Self) -> None:
        other._while_unchanged(lambda: self._take_in(other))

    @in_turn
    def _while_unchanged(self, function: Callable[[], None]) -> None:
        """Call a function while no other thread changes this learner."""
        function()

    def _take_in(self, other: Self) -> None:
        self._check_other(other)
        self._copy_before_writing()
        new = self.labels.new(other.classes)
        if new:
            self.labels.extend(new)
            self._open_classes(len(self.labels))
        self._merge(other, np.array(self.labels.slots(other.classes), np.int64))
        self.batches += other.batches
        self.samples += other.samples
        self._least = None

    def _copy_before_writing(self) -> None:
        """Work on copies of what is kept from now on, so that a transaction has the originals.

        For changes that are rare and touch much; a batch is learnt without copies.
        """
        if self.memory is not None:
            for name, part in vars(self.memory).items():
                if isinstance(part, np.ndarray):
                    setattr(self.memory, name, part.copy())
                elif isinstance(part, Tensor):
                    setattr(self.memory, name, part.clone())
            self._replaced()

    def _check_kind(self, other: Any) -> None:
        name = type(self).__name__
        if type(other) is not type(self) or other is self:
            kind = "itself" if other is self else type(other).__name__
            raise ValueError(f"{name}.merge takes another {name}, not {kind}")

    def _check_other(self, other: Self) -> None:
        """Refuse a learner that can't be taken in, before anything changes."""
        name = type(self).__name__
        if self.memory is None:
            raise ValueError(f"{self.name} has no memory, so that there is nothing to merge")
        mine, theirs = self._identity(), other._identity()
        for part in mine:
            if mine[part] != theirs[part]:
                here, there = differing(mine[part], theirs[part])
                raise ValueError(
                    f"{name}.merge takes a learner with the same {part}: {here!r} here, {there!r} there"
                )
        for each in (self, other):
            if not each.labels:
                raise ValueError(f"{name}.merge takes learners that have both learnt something")
        if (self.sample_shape, self.sample_type) != (other.sample_shape, other.sample_type):
            shapes = [f"{list(each.sample_shape or ())} of {each.sample_type}" for each in (self, other)]
            raise ValueError(
                f"{name}.merge takes a learner of the same samples: {shapes[0]} here, {shapes[1]} there"
            )
        self._check_room(len(self.labels) + len(self.labels.new(other.classes)))
        self._check_merge(other)

    def _check_merge(self, other: Any) -> None:
        """Refuse a learner that can't be taken in, where that is for the method to say."""

    def _merge(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Take in what the other keeps. slots: where each of its classes lies here; all of them are open."""
        assert self.memory is not None
        self.memory.merge(other.memory, slots)
