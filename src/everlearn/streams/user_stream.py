"""A user's own stream: batches from anywhere, with or without an end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from everlearn.streams.base import Batch, Stream, Tests

__all__ = ["OwnStream", "as_stream", "as_tests"]


def as_stream(
    source: Any,
    *,
    name: str = "own",
    tests: Sequence[Any] = (),
    batch_size: int = 10,
    tasks: int | None = None,
    classes: Sequence[Any] | None = None,
) -> Stream:
    """A stream from what a user has; one that is a stream already is returned as it is.

    source: batches `(x, y)` or `(x, y, t)` from any iterable, such as a list, a generator with or without
        an end, or a torch DataLoader; or a pair of arrays `(x, y)` or a torch Dataset, to cut into batches.
    name: what to call it in results and messages.
    tests: held-out samples and labels, `(x, y)`, or a sequence of such pairs, one for each concept.
    batch_size: |B_n|, where the source is not in batches yet.
    tasks, classes: how many tasks there will be, and which labels, if a learner shall be told.

    >>> s = as_stream((np.eye(4), ["a", "b", "a", "b"]), batch_size=3)
    >>> [y for x, y, t in s]
    [['a', 'b', 'a'], ['b']]
    """
    if isinstance(source, Stream):
        return source
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    size = samples = None
    if _is_pair(source):
        x, y = source
        source, size, samples = _Cut(x, y, batch_size), batch_size, len(x)
    elif isinstance(source, Dataset):
        samples = len(source) if hasattr(source, "__len__") else None
        source, size = DataLoader(source, batch_size), batch_size
    if not isinstance(source, Iterable):
        raise ValueError(
            "a stream is made from batches, a DataLoader, a Dataset or a pair of arrays, "
            f"not from {_kind(source)}; give an iterable of (x, y)"
        )
    return OwnStream(source, name, as_tests(tests), size, samples, tasks, classes)


class OwnStream(Stream):
    """Batches as a user's source gives them, each asked for when it is wanted, and none kept.

    Whether it tells t is known from its first batch: to ask for `tells` fetches that one, and no other.

    >>> def sensor():
    ...     while True:
    ...         yield np.zeros((2, 3)), ["cold", "warm"], 0
    >>> s = as_stream(sensor(), name="sensor")
    >>> sorted(s.tells), next(iter(s)).y
    (['t'], ['cold', 'warm'])
    """

    seed = 0
    imbalance = None

    def __init__(
        self,
        source: Iterable[Any],
        name: str = "own",
        tests: Tests = (),
        batch_size: int | None = None,
        samples: int | None = None,
        tasks: int | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.name = name
        self.batch_size = batch_size
        self._source = source
        self._tests = tests
        self._samples = samples
        self._tasks = tasks
        self._classes = classes
        self._begun: Iterator[Batch] | None = None  # batches of which the first was looked at, but not sent
        self._tells_t: bool | None = None
        self._spent = False

    def __iter__(self) -> Iterator[Batch]:
        """The batches, in order; an error if the source gives them only once and has."""
        if self._begun is not None:
            batches, self._begun = self._begun, None
            return batches
        return self._batches(self._open())

    def __len__(self) -> int:
        """How many batches the source has; a TypeError if it does not say."""
        return len(self._source)  # type: ignore[arg-type]

    def _open(self) -> Iterator[Any]:
        if self._spent:
            raise ValueError(
                f"the stream {self.name!r} comes from {_kind(self._source)}, which gives its batches only "
                "once, and it has been iterated; make it anew, or record it to a file and replay that"
            )
        items = iter(self._source)
        self._spent = items is self._source
        return items

    def _batches(self, items: Iterator[Any]) -> Iterator[Batch]:
        for number, item in enumerate(items, 1):
            batch = self._batch(item, number)
            if self._tells_t is None:
                self._tells_t = batch.t is not None
            yield batch
        self._tells_t = bool(self._tells_t)  # a stream without a batch tells nothing

    def _batch(self, item: Any, number: int) -> Batch:
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise ValueError(
                f"batch {number} of the stream {self.name!r} is {_kind(item)}, "
                "where a tuple (x, y) or (x, y, t) was expected"
            )
        batch = Batch(*item)
        return batch if batch.t is None else batch._replace(t=self._identifier(batch.t, number))

    def _identifier(self, t: Any, number: int) -> int:
        """The one task of a batch, also if it is named once for each sample."""
        named = np.unique(t.tolist() if hasattr(t, "tolist") else t)
        if len(named) != 1 or named.dtype.kind not in "iu":
            raise ValueError(
                f"batch {number} of the stream {self.name!r} has t = {', '.join(map(repr, named.tolist()))}, "
                "where one integer was expected: the task that all of its samples belong to"
            )
        return int(named[0])

    @property
    def tells(self) -> frozenset[str]:
        """What it tells a learner: t, if the first batch has one; tasks and classes, if they were given."""
        if self._tells_t is None:
            self._look_ahead()
        told = {"t": self._tells_t, "tasks": self._tasks is not None, "classes": self._classes is not None}
        return frozenset(what for what, is_told in told.items() if is_told)

    def _look_ahead(self) -> None:
        """Fetch the first batch, which says whether there is a t; it is kept, and sent first."""
        batches = self._batches(self._open())
        first = next(batches, None)
        self._begun = iter(()) if first is None else _put_back(first, batches)

    @property
    def samples(self) -> int | None:
        """How many samples it sends, where they lie in arrays or a Dataset; else None."""
        return self._samples

    @property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept that were given."""
        return self._tests

    @property
    def tasks(self) -> int | None:
        """How many tasks there are, if that was given."""
        return self._tasks

    @property
    def classes(self) -> list[Any] | None:
        """All labels it will send, if they were given."""
        return None if self._classes is None else list(self._classes)


class _Cut:
    """A pair of arrays, cut into batches."""

    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        if len(x) != len(y):
            raise ValueError(
                f"x has {len(x)} samples but y has {len(y)} labels; give one label for each sample"
            )
        self.x, self.y, self.batch_size = x, y, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.x) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(self.x), self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self.x[part], self.y[part]


def _put_back(first: Batch, rest: Iterator[Batch]) -> Iterator[Batch]:
    yield first
    del first  # else it would be held for as long as the stream runs
    yield from rest


def _is_pair(value: Any) -> bool:
    """Whether it is samples and their labels, rather than batches."""
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and isinstance(value[0], np.ndarray | torch.Tensor)
    )


def as_tests(tests: Sequence[Any]) -> Tests:
    """Held-out samples and labels of each concept, from a pair `(x, y)` or a sequence of such pairs."""
    concepts = [tests] if _is_pair(tests) else list(tests)
    for concept in concepts:
        if not isinstance(concept, tuple | list) or len(concept) != 2 or len(concept[0]) != len(concept[1]):
            raise ValueError("tests are held-out samples and labels, (x, y), or a sequence of such pairs")
    return tuple((x, y) for x, y in concepts)


def _kind(value: Any) -> str:
    """What a value is, in words: its type, and its size if it is a tuple or list."""
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__}{size}"
