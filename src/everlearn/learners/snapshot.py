"""A learner at one moment, for predictions alone."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label

if TYPE_CHECKING:
    from everlearn.learners.foundation import Foundation
    from everlearn.learners.predicting import Predicting

__all__ = ["Snapshot", "Turn", "in_turn"]

Method = TypeVar("Method", bound=Callable[..., Any])


class Turn:
    """A lock that one thread holds at a time while it changes a learner. A copy of it is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._half_changed = False
        _turns.add(self)

    def is_mine(self) -> bool:
        """Whether this thread has the lock."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def take(self) -> None:
        """Wait for the lock, which this thread does not have yet."""
        if self._half_changed:
            raise RuntimeError(
                "another thread was changing this learner when the process forked, so this copy of it is half "
                "changed: load it from a file, or fork while no thread learns"
            )
        self._lock.acquire()

    def give_back(self) -> None:
        """Let others have the lock, if this thread has it. It may be called more than once."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def __reduce__(self) -> tuple[type[Turn], tuple[()]]:
        return Turn, ()

    def after_fork(self) -> None:
        """In a forked process: what another thread was changing is half changed here, for good."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock, self._half_changed = threading.RLock(), True


_turns: weakref.WeakSet[Turn] = weakref.WeakSet()


def _after_fork() -> None:
    for turn in list(_turns):
        turn.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_turn(method: Method) -> Method:
    """Let a method that reads a learner wait until no thread changes it."""

    @functools.wraps(method)
    def waiting(self: Foundation, *args: Any, **kwargs: Any) -> Any:
        if self._turn.is_mine():
            return method(self, *args, **kwargs)
        try:
            try:
                self._turn.take()
                return method(self, *args, **kwargs)
            finally:
                self._turn.give_back()
        finally:
            self._turn.give_back()

    return cast(Method, waiting)


class Snapshot:
    """A learner at one moment: immutable, and safe to ask from other threads while the learner goes on.

    batches, samples: how much the learner had observed.
    """

    def __init__(self, still: Predicting, exemplars: dict[Label, int]) -> None:
        self._still = still
        self._exemplars = exemplars
        self.batches, self.samples = still.batches, still.samples
        self.settings = still.settings

    @property
    def classes(self) -> list[Label]:
        """The labels seen by then, in the order first seen."""
        return self._still.classes

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The prototype of each class, where the learner has any."""
        return dict(getattr(self._still, "prototypes", {}))

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory held."""
        return dict(self._exemplars)

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen by then."""
        return self._still.predict(x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return self._still.predict_proba(x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made."""
        return self._still.embed(x)
