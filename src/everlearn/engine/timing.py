"""How long a learner works."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["Stopwatch"]


class Stopwatch:
    """Counts the seconds inside a `with` block, except those inside `stopped`. It waits for the device at both ends.

    >>> watch = Stopwatch(torch.device("cpu"))
    >>> with watch:
    ...     _ = sum(range(1000))
    >>> watch.seconds > 0
    True
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self.device = device

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()

    def __enter__(self) -> Stopwatch:
        self._since = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._now() - self._since

    def lap(self) -> float:
        """The seconds since the last lap."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time in here does not count."""
        self.__exit__()
        yield
        self.__enter__()
