"""Sets torch's number of threads while a learner computes.

The number of threads changes the order of sums, and so their last bits. To get the same results everywhere, a learner
computes with the number of threads in its settings. Afterwards the number of the process is restored.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["ThreadCount", "computing_with"]

# torch's number of threads is per thread, but that of its matrix products is per process. So it is restored when no
# learner computes any more, and learners with different numbers wait for each other.
_lock = threading.Lock()
_active: dict[ThreadCount, int] = {}

WAIT = 0.001  # seconds between two checks whether learners with another number are done


class ThreadCount:
    """Sets the number of threads between `enter` and `leave`; `leave` may be called more than once."""

    __slots__ = ("_before", "_owner", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._before = torch.get_num_threads()
        self._owner = threading.get_ident()

    def enter(self) -> None:
        """Set this number of threads; waits while another thread computes with a different one."""
        while True:
            with _lock:
                if not _active or not self._must_wait():
                    _active[self] = self.threads
                    if torch.get_num_threads() != self.threads:
                        torch.set_num_threads(self.threads)
                    return
            time.sleep(WAIT)

    def _must_wait(self) -> bool:
        others = (count for count in _active if count._owner != self._owner)
        return any(count.threads != self.threads for count in others)

    def leave(self) -> None:
        """Restore the number of threads from before."""
        with _lock:
            _active.pop(self, None)
            mine = [count.threads for count in _active if count._owner == self._owner] if _active else []
            if mine or not _active:
                threads = mine[-1] if mine else self._before
                if threads != self.threads:
                    torch.set_num_threads(threads)


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """A context that computes with this number of threads."""
    count = ThreadCount(threads)
    # An interrupt may come just before the count is removed, so `leave` is called twice.
    try:
        try:
            count.enter()
            yield
        finally:
            count.leave()
    finally:
        count.leave()


def _after_fork() -> None:
    """Drop the counts of other threads: a forked process does not have them."""
    global _lock
    _lock = threading.Lock()
    for count in [count for count in _active if count._owner != threading.get_ident()]:
        del _active[count]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
