"""One thread at a time changes a learner."""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

__all__ = ["LearnerLock", "synchronized"]

Method = TypeVar("Method", bound=Callable[..., Any])

_locks: weakref.WeakSet[LearnerLock] = weakref.WeakSet()


class LearnerLock:
    """A lock that one thread holds while it changes a learner. A copy of it is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._half_changed = False
        _locks.add(self)

    def is_held(self) -> bool:
        """Whether this thread has the lock."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def acquire(self) -> None:
        """Wait for the lock, which this thread does not have yet."""
        if self._half_changed:
            raise RuntimeError(
                "another thread was changing this learner when the process forked, so this copy of it is half "
                "changed: load it from a file, or fork while no thread learns"
            )
        self._lock.acquire()

    def release(self) -> None:
        """Let others have the lock, if this thread has it. It may be called more than once."""
        if self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock.release()

    def __reduce__(self) -> tuple[type[LearnerLock], tuple[()]]:
        return LearnerLock, ()

    def after_fork(self) -> None:
        """In a forked process: what another thread was changing is half changed here, for good."""
        if self._lock.acquire(blocking=False):
            self._lock.release()
        else:
            self._lock, self._half_changed = threading.RLock(), True


def synchronized(method: Method) -> Method:
    """Let a method that reads a learner wait until no other thread changes it."""

    @functools.wraps(method)
    def waiting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.lock.is_held():
            return method(self, *args, **kwargs)
        # An interrupt may come just before the lock is released, so that stands twice.
        try:
            try:
                self.lock.acquire()
                return method(self, *args, **kwargs)
            finally:
                self.lock.release()
        finally:
            self.lock.release()

    return cast(Method, waiting)


def _after_fork() -> None:
    for lock in list(_locks):
        lock.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
