"""How many threads torch computes with: a learner's own number, whatever the process has.

Sums over several threads are taken in another order and differ in the last bit. So that a learner gives the same
numbers everywhere, its work is done with the number of threads in its settings, and then the process has its own
again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["ThreadCount", "computing_with"]

# torch's number is each thread's own, but that of its matrix products is the process's: it is given back when
# nobody computes any more, and learners that want different numbers wait for each other.
_lock = threading.Lock()
_active: dict[ThreadCount, int] = {}

WAIT = 0.001  # seconds between two looks at whether others are done, where they want another number


class ThreadCount:
    """So many threads between `enter` and `leave`, which may be called more than once."""

    __slots__ = ("_before", "_owner", "threads")

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._before = torch.get_num_threads()
        self._owner = threading.get_ident()

    def enter(self) -> None:
        """Compute with this number of threads."""
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
        """Give the process its own number of threads back."""
        with _lock:
            _active.pop(self, None)
            mine = [count.threads for count in _active if count._owner == self._owner]
            if mine or not _active:
                threads = mine[-1] if mine else self._before
                if threads != self.threads:
                    torch.set_num_threads(threads)


@contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with so many threads inside, and then with as many as before."""
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
    """In a forked process no other thread computes."""
    global _lock
    _lock = threading.Lock()
    for count in [count for count in _active if count._owner != threading.get_ident()]:
        del _active[count]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
