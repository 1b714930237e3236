"""A stream that does not wait: a slow learner misses what arrives while it is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeVar

__all__ = ["Clock"]

T = TypeVar("T")


class Clock:
    """Decides how many batches pass by while the learner is busy with one.

    cost: how long a batch takes to learn, in intervals between two batches. A learner of cost C misses the next
        C − 1 batches; with a fractional cost sometimes more, sometimes fewer, so that the mean is right.
    interval: or the time between two batches in seconds; the cost is then measured, batch by batch.

    >>> clock = Clock(cost=2.5)
    >>> [clock.missed() for _ in range(4)]
    [1, 2, 1, 2]
    """

    def __init__(self, cost: float | None = None, interval: float | None = None) -> None:
        if (cost is None) == (interval is None):
            raise ValueError("a clock takes a cost per batch or an interval in seconds, one of the two")
        given = cost if cost is not None else interval
        if given is None or not 0 < given < float("inf"):
            raise ValueError(f"a clock's cost or interval must be a number above 0, not {given}")
        self.cost, self.interval = cost, interval
        self.delay = 0.0  # how far behind the stream the learner is, in intervals; below 1

    def missed(self, seconds: float = 0.0) -> int:
        """How many batches pass by while the learner is busy with the one it starts now.

        seconds: how long the learner worked since it started the last one. A clock with an interval uses that,
        because the time for this one is known only afterwards.
        """
        spent = self.cost if self.cost is not None else seconds / (self.interval or 1)
        self.delay = max(self.delay + spent - 1, 0.0)  # a learner that is early waits
        whole = int(self.delay + 1e-9)
        self.delay = max(self.delay - whole, 0.0)
        return whole

    def turns(
        self, arrivals: Iterator[T], seconds: Callable[[], float] = lambda: 0.0
    ) -> Iterator[tuple[T, Iterator[T]]]:
        """Each batch that the learner starts, with the batches that it misses meanwhile.

        The missed batches come from the same iterator, so read them before the next turn.
        seconds: returns how long the learner worked since the last turn.

        >>> [(batch, list(missed)) for batch, missed in Clock(cost=2.5).turns(iter("abcdefg"))]
        [('a', ['b']), ('c', ['d', 'e']), ('f', ['g'])]
        """
        for arrival in arrivals:
            yield arrival, islice(arrivals, self.missed(seconds()))
