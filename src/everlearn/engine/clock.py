"""A stream that does not wait: who learns slowly misses what arrives meanwhile."""

from __future__ import annotations

__all__ = ["Clock"]


class Clock:
    """Says how many batches pass by while one is learnt.

    cost: what a batch costs relative to the time between two batches. A learner of cost C misses the next
        C − 1; of a fractional cost, now more and now fewer, so that the mean is right.
    interval: or the time between two batches in seconds; the cost is then measured, batch by batch.

    >>> clock = Clock(cost=2.5)
    >>> [clock.missed() for _ in range(4)]
    [1, 2, 1, 2]
    """

    def __init__(self, cost: float | None = None, interval: float | None = None) -> None:
        if (cost is None) == (interval is None):
            raise ValueError("a clock has a cost per batch or an interval in seconds, one of the two")
        given = cost if cost is not None else interval
        if given is None or not 0 < given < float("inf"):
            raise ValueError(f"a clock's cost or interval must be a number above 0, not {given}")
        self.cost, self.interval = cost, interval
        self._late = 0.0

    def missed(self, seconds: float = 0.0) -> int:
        """How many batches pass by while the learner is busy with the one it takes now.

        seconds: what the learner has spent since it took the last one. A clock with an interval goes by that,
        since this one's time is known only when it is over.
        """
        spent = self.cost if self.cost is not None else seconds / (self.interval or 1)
        self._late = max(self._late + spent - 1, 0.0)  # who is early waits
        whole = int(self._late + 1e-9)
        self._late = max(self._late - whole, 0.0)
        return whole
