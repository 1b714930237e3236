"""The contract that all streams share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from everlearn.notebook import card

__all__ = ["Batch", "Stream", "Tests", "native"]

Tests = tuple[tuple[Any, Any], ...]
"""For each concept, its held-out samples and their labels."""


def native(x: Any) -> Any:
    """Convert an array to one that torch accepts: native byte order and no negative strides.

    Anything else is returned as it is.

    >>> native(np.arange(3, dtype=">i4")[::-1]).tolist()
    [2, 1, 0]
    """
    if isinstance(x, np.ndarray) and (not x.dtype.isnative or any(step < 0 for step in x.strides)):
        return np.ascontiguousarray(x, x.dtype.newbyteorder("="))
    return x


def sample_count(x: Any) -> int:
    """The number of samples; sparse rows have no length, but a shape.

    >>> sample_count(["a text", "another"]), sample_count(np.zeros((3, 2)))
    (2, 3)
    """
    try:
        return len(x)
    except TypeError:
        return int(x.shape[0])


class Batch(NamedTuple):
    """The samples that arrive together.

    x: the samples, `[batch, ...]`. y: one label for each of them.
    t: the number of the task they belong to; None if the stream hides it.
    """

    x: Any
    y: Any
    t: Any = None


class Stream(ABC):
    """S: a sequence of batches. A finite stream sends the same batches each time it is iterated.

    name: the name in results; the name of a benchmark selects the benchmark's settings.
    seed: determines the order of the samples. batch_size: |B_n|; None if it varies.
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
        """How many samples it sends; None if that is unknown or the stream is endless."""
        return None

    @property
    def tells(self) -> frozenset[str]:
        """The information for learners: a subset of `{"t", "tasks", "classes"}`."""
        return frozenset()

    @property
    def tasks(self) -> int | None:
        """How many tasks there are; None if it does not tell."""
        return None

    @property
    def classes(self) -> list[Any] | None:
        """All labels it will send; None if it does not tell."""
        return None

    @property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept; empty if there are none."""
        return ()

    def _repr_html_(self) -> str:
        facts = {
            "samples": self.samples,
            "batch size": self.batch_size,
            "tasks": self.tasks,
            "classes": None if self.classes is None else len(self.classes),
            "imbalance": self.imbalance,
            "seed": self.seed,
        }
        known = {name: value for name, value in facts.items() if value is not None}
        return card(f"stream {self.name}", known)

    def tests_at(self, samples: int) -> Tests:
        """The test sets for the distribution after this many samples: `tests`, unless the stream drifts."""
        return self.tests

    def current(self, samples: int) -> tuple[int, ...]:
        """The indices in `tests` of the concepts that are active after this many samples; all if unknown."""
        return tuple(range(len(self.tests)))
