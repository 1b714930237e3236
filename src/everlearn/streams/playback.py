"""Play back a recorded stream: the same batches, read from the file one by one."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from everlearn.messages import is_whole
from everlearn.streams.base import Batch, Stream, Tests
from everlearn.streams.record_format import (
    MAGIC,
    RecordingError,
    TruncatedError,
    read_chunk,
    row_count,
    skip_chunk,
    unpack,
    unpack_labels,
)

__all__ = ["Playback", "playback"]

TELLS = ("t", "tasks", "classes")


def playback(path: str | os.PathLike[str]) -> Playback:
    """Open a stream that `record` or `recording` wrote to this file.

    If a crash cut off the last batch, the complete batches before it are played back, with a warning.

    >>> playback("missing.stream")
    Traceback (most recent call last):
    everlearn.streams.record_format.RecordingError: missing.stream can't be read: No such file or directory
    """
    return Playback(path)


class Playback(Stream):
    """A recorded stream, with the name, seed and test sets of the original.

    Only one batch is in memory at a time. Of a stream that drifts, the recording has `tests` but not `tests_at`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._test_offsets: list[int] = []
        self._batches_offset = 0
        self._batches = 0
        self._samples = 0
        self._about = self._scan()
        self.name: str = self._about["name"]
        self.seed: int = self._about["seed"]
        self.batch_size: int | None = self._about["batch_size"]
        self.imbalance: int | None = self._about["imbalance"]

    def __iter__(self) -> Iterator[Batch]:
        """The batches, as they were recorded."""
        with self._open() as file:
            file.seek(self._batches_offset)
            for number in range(1, self._batches + 1):
                with self._errors_in(f"batch {number}"):
                    batch = _batch(*unpack(*read_chunk(file)))
                yield batch

    def __len__(self) -> int:
        """How many batches were recorded."""
        return self._batches

    @property
    def samples(self) -> int:
        """How many samples were recorded."""
        return self._samples

    @property
    def tells(self) -> frozenset[str]:
        """The information for learners of the recorded stream."""
        return frozenset(self._about["tells"])

    @property
    def tasks(self) -> int | None:
        """How many tasks the stream has, if it tells."""
        tasks: int | None = self._about["tasks"]
        return tasks

    @property
    def classes(self) -> list[Any] | None:
        """All labels of the stream, if it tells."""
        codes = self._about["classes"]
        return None if codes is None else unpack_labels(codes)

    @functools.cached_property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept."""
        found = []
        with self._open() as file:
            for concept, start in enumerate(self._test_offsets):
                file.seek(start)
                with self._errors_in(f"test set {concept}"):
                    found.append(_test_set(*unpack(*read_chunk(file))))
        return tuple(found)

    def _scan(self) -> dict[str, Any]:
        """Read all headers: the description of the stream, where the test sets are, how many batches there are."""
        with self._open() as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise RecordingError(f"{self.path} is not a recorded stream; pass a file that `record` wrote")
            with self._errors_in("the description of the stream"):
                about = read_chunk(file)[0]
                _check_description(about)
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                start = file.tell()
                with self._errors_in(f"batch {self._batches + 1}"):
                    try:
                        header = skip_chunk(file)
                    except TruncatedError:
                        self._warn_truncated()
                        break
                    self._register(header.get("kind"), row_count(header), start)
        return about

    def _register(self, kind: Any, samples: int, start: int) -> None:
        if kind == "test" and not self._batches:
            self._test_offsets.append(start)
            return
        if kind != "batch":
            raise ValueError(f"there is a chunk of the kind {str(kind)[:20]!r} where a batch is expected")
        self._batches_offset = self._batches_offset or start
        self._batches += 1
        self._samples += samples

    def _warn_truncated(self) -> None:
        warnings.warn(
            f"{self.path} was cut off in the middle of batch {self._batches + 1}; "
            "only the complete batches before it are played back",
            stacklevel=5,
        )

    def _open(self) -> BinaryIO:
        try:
            return open(self.path, "rb")
        except OSError as error:
            raise RecordingError(f"{self.path} can't be read: {error.strerror}") from None

    @contextmanager
    def _errors_in(self, what: str) -> Iterator[None]:
        """Turn an error into a RecordingError that names the file and the damaged part."""
        try:
            yield
        except (ValueError, TypeError, OverflowError, RuntimeError, OSError, MemoryError) as error:
            reason = " ".join(str(error).split()) or "out of memory"
            raise RecordingError(
                f"{self.path} is damaged in {what} ({reason}); use an intact copy, or record the stream again"
            ) from None


def _batch(x: Any, y: Any, t: Any) -> Batch:
    if not _is_whole_or_none(t):
        raise ValueError("its t is not a whole number")
    return Batch(x, y, t)


def _test_set(x: Any, y: Any, t: Any) -> tuple[Any, Any]:
    """Held-out samples and labels; a ValueError unless there is one label for each sample."""
    if getattr(y, "ndim", 1) != 1 or len(x) != len(y):
        raise ValueError(f"it has {len(x)} samples, but not one label for each")
    return x, y


def _check_description(about: dict[str, Any]) -> None:
    """Raise a ValueError if a field of the description is missing or has an impossible value."""
    classes = about.get("classes")
    valid = {
        "kind": about.get("kind") == "stream",
        "name": isinstance(about.get("name"), str),
        "seed": _is_whole_or_none(about.get("seed")),
        "batch_size": _is_whole_or_none(about.get("batch_size"), least=1),
        "imbalance": _is_whole_or_none(about.get("imbalance")),
        "tasks": _is_whole_or_none(about.get("tasks"), least=1),
        "tells": isinstance(about.get("tells"), list) and all(name in TELLS for name in about["tells"]),
        "classes": classes is None or isinstance(classes, list),
    }
    for field, is_valid in valid.items():
        if field not in about or not is_valid:
            raise ValueError(f"its {field} is missing or can't be read")
    unpack_labels(classes or [])


def _is_whole_or_none(value: Any, least: int | None = None) -> bool:
    return value is None or is_whole(value, least)
