"""Time and threads of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["Stopwatch", "one_thread"]


class Stopwatch:
    """Counts the seconds inside a `with`, less those inside `stopped`; waits for the device at both ends."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self.device = device

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __enter__(self) -> Stopwatch:
        self._since = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._now() - self._since

    def lap(self) -> float:
        """The seconds counted since the last lap."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time in here is not counted."""
        self.__exit__()
        yield
        self.__enter__()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, which is fastest for networks of this size; then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
