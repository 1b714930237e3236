"""A lock, so that only one thread at a time changes a learner."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

from everlearn.torch_modes import TorchModes

__all__ = ["LearnerLock", "synchronized"]

Method = TypeVar("Method", bound=Callable[..., Any])

_locks: weakref.WeakSet[LearnerLock] = weakref.WeakSet()


class LearnerLock:
    """A lock that a thread holds while it changes a learner. A copy of it is a new lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._half_changed = False
        _locks.add(self)

    def is_held(self) -> bool:
        """Whether this thread holds the lock."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def acquire(self) -> None:
        """Wait for the lock, which this thread does not hold yet."""
        if self._half_changed:
            raise RuntimeError(
                "another thread was changing this learner when the process forked, so this copy is not valid: "
                "load it from a file, or fork while no thread learns"
            )
        self._lock.acquire()

    def release(self) -> None:
        """Release the lock, if this thread holds it. It may be called more than once."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def __reduce__(self) -> tuple[type[LearnerLock], tuple[()]]:
        return LearnerLock, ()

    def after_fork(self) -> None:
        """In a forked process: mark the learner as half changed if another thread was changing it."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock, self._half_changed = threading.RLock(), True


def synchronized(method: Method) -> Method:
    """A decorator: the method waits until no other thread changes the learner."""

    @functools.wraps(method)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.lock.is_held():
            return method(self, *args, **kwargs)
        modes = TorchModes()
        # An interrupt may come just before the lock is released, so it is released twice.
        try:
            try:
                self.lock.acquire()
                return method(self, *args, **kwargs)
            finally:
                modes.restore()
                self.lock.release()
        finally:
            modes.restore()
            self.lock.release()

    return cast(Method, waiting)


def _after_fork() -> None:
    for lock in list(_locks):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
