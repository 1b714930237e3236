"""The contract that all streams share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Batch", "Stream", "Tests", "native"]

Tests = tuple[tuple[Any, Any], ...]
"""For each concept, held-out samples and their labels."""


def native(x: Any) -> Any:
    """An array as torch takes it: in this machine's byte order, and not stepping backwards; anything else as it is.

    >>> native(np.arange(3, dtype=">i4")[::-1]).tolist()
    [2, 1, 0]
    """
    if isinstance(x, np.ndarray) and (not x.dtype.isnative or any(step < 0 for step in x.strides)):
        return np.ascontiguousarray(x, x.dtype.newbyteorder("="))
    return x


class Batch(NamedTuple):
    """What arrives at once.

    x: the samples, `[batch, ...]`. y: their labels, one each.
    t: the identifier of the task they belong to, an int; None where the stream hides it.
    """

    x: Any
    y: Any
    t: Any = None


class Stream(ABC):
    """S: batches, one after another. A finite stream sends the same ones whenever it is iterated.

    name: what it is called; a benchmark's name brings the benchmark's settings.
    seed: what fixes it. batch_size: |B_n|; None where batches come as they come.
    imbalance: i in the imbalanced variant S(T_i), else None.

    >>> from everlearn import stream
    >>> s = stream("split-digits")
    >>> s.samples, len(s), s.tasks, s.classes, sorted(s.tells)
    (1442, 146, 5, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], ['classes', 't', 'tasks'])
    """

    name: str
    seed: int
    batch_size: int | None
    imbalance: int | None

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """The batches, in order."""

    @property
    def samples(self) -> int | None:
        """How many samples it sends; None where that is unknown, or there is no end."""
        return None

    @property
    def tells(self) -> frozenset[str]:
        """What it tells a learner: of "t", "tasks" and "classes", those it does."""
        return frozenset()

    @property
    def tasks(self) -> int | None:
        """How many tasks there are, where it tells."""
        return None

    @property
    def classes(self) -> list[Any] | None:
        """All labels it will send, where it tells."""
        return None

    @property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept; empty where there are none."""
        return ()

    def tests_at(self, samples: int) -> Tests:
        """Held-out samples as the stream is distributed after so many samples: `tests`, unless it drifts."""
        return self.tests

    def current(self, samples: int) -> tuple[int, ...]:
        """Which of the concepts in `tests` are in force when it has sent so many: all, if it can't say."""
        return tuple(range(len(self.tests)))
