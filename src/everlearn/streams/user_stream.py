"""Make a stream from your own data: arrays, a DataLoader or any iterable of batches, finite or endless."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from everlearn.encoders import as_encoder
from everlearn.messages import is_whole
from everlearn.streams.base import Batch, Stream, Tests, sample_count
from everlearn.streams.encoded import encoded

__all__ = ["UserStream", "as_stream", "as_tests"]


def as_stream(
    source: Any,
    *,
    name: str = "own",
    tests: Sequence[Any] = (),
    batch_size: int = 10,
    tasks: int | None = None,
    classes: Sequence[Any] | None = None,
    encoder: Any = None,
) -> Stream:
    """Make a stream; a `Stream` is returned as it is.

    source: an iterable of batches `(x, y)` or `(x, y, t)`, such as a list, a generator (which may be endless) or a
        torch DataLoader; or a pair of arrays `(x, y)` or a torch Dataset, which are split into batches.
    name: the name in results and messages.
    tests: held-out samples and labels, `(x, y)`, or a sequence of such pairs, one for each concept.
    batch_size: |B_n|, if the source is not in batches yet.
    tasks, classes: the number of tasks and all labels, if the stream should tell them to a learner.
    encoder: a frozen model that turns each sample into a vector, as of `stream`; then samples may also be texts.

    >>> s = as_stream((np.eye(4), ["a", "b", "a", "b"]), batch_size=3)
    >>> [y for x, y, t in s]
    [['a', 'b', 'a'], ['b']]
    """
    found = as_encoder(encoder)
    if found is not None:
        if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], list):
            source = np.array(source[0], object), source[1]  # so that a list of texts counts as samples
        options: Any = {"batch_size": batch_size, "tasks": tasks, "classes": classes}
        return encoded(as_stream(source, name=name, tests=tests, **options), found)
    if isinstance(source, Stream):
        return source
    if not is_whole(batch_size, least=1):
        raise ValueError(f"batch_size must be at least 1, not {batch_size!r}; give a whole number")
    size = samples = None
    if _is_pair(source):
        x, y = source
        source, size, samples = _BatchedArrays(x, y, batch_size), batch_size, sample_count(x)
    elif isinstance(source, Dataset):
        samples = len(source) if hasattr(source, "__len__") else None
        source, size = DataLoader(source, batch_size), batch_size
    if not isinstance(source, Iterable) or isinstance(source, str | Mapping):
        raise ValueError(
            "a stream is made from batches, a DataLoader, a Dataset or a pair of arrays, "
            f"not from {_kind(source)}; pass an iterable of (x, y)"
        )
    return UserStream(source, name, as_tests(tests), size, samples, tasks, classes)


class UserStream(Stream):
    """Batches from an iterable; each is requested when it is needed, and none is kept.

    The first batch shows whether the stream has a t: `tells` requests that batch, which is then sent first.

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
        self._started: Iterator[Batch] | None = None  # the first batch was requested, but not sent
        self._tells_t: bool | None = None
        self._exhausted = False

    def __iter__(self) -> Iterator[Batch]:
        """The batches, in order; an error if the source can be iterated only once and has been."""
        if self._started is not None:
            batches, self._started = self._started, None
            return batches
        return self._batches(self._open())

    def __len__(self) -> int:
        """How many batches the source has; a TypeError if it does not say."""
        return len(self._source)  # type: ignore[arg-type]

    def _open(self) -> Iterator[Any]:
        if self._exhausted:
            raise ValueError(
                f"the stream {self.name!r} comes from {_kind(self._source)}, which can be iterated only "
                "once, and it has been; create it again, or record it to a file and play that back"
            )
        items = iter(self._source)
        self._exhausted = items is self._source
        return items

    def _batches(self, items: Iterator[Any]) -> Iterator[Batch]:
        for number, item in enumerate(items, 1):
            batch = self._batch(item, number)
            if self._tells_t is None:
                self._tells_t = batch.t is not None
            yield batch
        self._tells_t = bool(self._tells_t)  # an empty stream tells nothing

    def _batch(self, item: Any, number: int) -> Batch:
        if isinstance(item, Mapping):
            x, y, *_ = [*map(repr, item), "'x'", "'y'"]
            raise ValueError(
                f"batch {number} of the stream {self.name!r} is a dict, but a tuple (x, y) or (x, y, t) was "
                f"expected: give ((batch[{x}], batch[{y}]) for batch in batches)"
            )
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise ValueError(
                f"batch {number} of the stream {self.name!r} is {_kind(item)}, "
                "but a tuple (x, y) or (x, y, t) was expected"
            )
        batch = Batch(*item)
        return batch if batch.t is None else batch._replace(t=self._task(batch.t, number))

    def _task(self, t: Any, number: int) -> int:
        """The task of a batch, which may also be given once for each sample."""
        tasks = np.unique(t.tolist() if hasattr(t, "tolist") else t)
        if len(tasks) != 1 or tasks.dtype.kind not in "iu":
            raise ValueError(
                f"batch {number} of the stream {self.name!r} has t = {', '.join(map(repr, tasks.tolist()))}, "
                "but one integer was expected: the task that all of its samples belong to"
            )
        return int(tasks[0])

    @property
    def tells(self) -> frozenset[str]:
        """The information for learners: t if the first batch has one; tasks and classes if they were passed."""
        if self._tells_t is None:
            self._request_first()
        tells = {"t": self._tells_t, "tasks": self._tasks is not None, "classes": self._classes is not None}
        return frozenset(name for name, is_told in tells.items() if is_told)

    def _request_first(self) -> None:
        """Request the first batch, which shows whether there is a t; it is kept and sent first."""
        batches = self._batches(self._open())
        first = next(batches, None)
        self._started = iter(()) if first is None else _put_back(first, batches)

    @property
    def samples(self) -> int | None:
        """How many samples it sends, if the source is arrays or a Dataset with a length; else None."""
        return self._samples

    @property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept."""
        return self._tests

    @property
    def tasks(self) -> int | None:
        """The number of tasks, if it was passed."""
        return self._tasks

    @property
    def classes(self) -> list[Any] | None:
        """All labels of the stream, if they were passed."""
        return None if self._classes is None else list(self._classes)


class _BatchedArrays:
    """A pair of arrays, split into batches."""

    def __init__(self, x: Any, y: Any, batch_size: int) -> None:
        self.samples = sample_count(x)
        if self.samples != len(y):
            raise ValueError(
                f"x has {self.samples} samples but y has {len(y)} labels; pass one label for each sample"
            )
        self.x = x.tocsr() if hasattr(x, "tocsr") else x  # the sparse rows that can be sliced
        self.y, self.batch_size = y, batch_size

    def __len__(self) -> int:
        return math.ceil(self.samples / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        for start in range(0, self.samples, self.batch_size):
            part = slice(start, start + self.batch_size)
            yield self.x[part], self.y[part]


def _put_back(first: Batch, rest: Iterator[Batch]) -> Iterator[Batch]:
    yield first
    del first  # else it would stay in memory as long as the stream runs
    yield from rest


def _is_pair(value: Any) -> bool:
    """Whether it is a pair of samples and labels, rather than batches.

    >>> _is_pair(([[1.0, 2.0], [3.0, 4.0]], ["a", "b"])), _is_pair([([[1.0]], ["a"]), ([[2.0]], ["b"])])
    (True, False)
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    x, y = value
    if not isinstance(x, list | tuple):
        return hasattr(type(x), "shape")  # an array, a tensor, a frame, sparse rows, lazy samples
    # Of two batches, the second is a pair of samples and labels, not plain labels.
    labels = getattr(y, "ndim", 0) == 1 or (isinstance(y, list | tuple) and all(map(_is_plain, y)))
    return isinstance(value, tuple) and labels and len(x) == len(y)


def _is_plain(label: Any) -> bool:
    return label is None or isinstance(label, str | bytes | int | float | np.generic)


def as_tests(tests: Sequence[Any]) -> Tests:
    """Held-out samples and labels of each concept, from a pair `(x, y)` or a sequence of such pairs."""
    concepts = [tests] if _is_pair(tests) else list(tests)
    for concept in concepts:
        try:
            x, y = concept
            valid = sample_count(x) == len(y)
        except (TypeError, ValueError, AttributeError):
            valid = False
        if not valid or not isinstance(concept, tuple | list):
            raise ValueError("tests must be held-out samples and labels, (x, y), or a sequence of such pairs")
    return tuple((x, y) for x, y in concepts)


def _kind(value: Any) -> str:
    """A value's type with an article, for messages; of a tuple or list also its length."""
    size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__}{size}"
