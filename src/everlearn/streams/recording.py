"""Streams on file: recorded as they come, and replayed exactly.

One file: a line that says what it is, then chunks. The first one is about the stream; then come its tests,
one chunk for each concept, and its batches. Nothing in it can be executed.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from everlearn.label_json import encode_label
from everlearn.messages import is_whole
from everlearn.streams.base import Batch, Stream, Tests
from everlearn.streams.record_chunks import CutOffError, read_chunk, skip_chunk, to_chunk
from everlearn.streams.record_format import pack, rows, unpack, unpack_labels
from everlearn.streams.user_stream import as_stream

__all__ = ["RecordingError", "Replay", "record", "recording", "replay"]

MAGIC = b"everlearn stream 1\n"
TOLD = ("t", "tasks", "classes")

Place = str | os.PathLike[str]


class RecordingError(ValueError):
    """A recorded stream is missing, damaged or no such thing, or can't be written; in one sentence."""


def record(stream: Any, path: Place, samples: int | None = None) -> Replay:
    """Write a whole stream, or so many samples of it, to a new file, and return what `replay` gives.

    stream: a stream, or anything that `as_stream` takes.
    samples: stop after the batch with which so many have come; an endless stream needs it.

    >>> import tempfile
    >>> from everlearn import stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     yesterday = record(stream("split-digits"), folder + "/yesterday.stream", samples=200)
    ...     len(yesterday), yesterday.samples
    (20, 200)
    """
    for _ in recording(stream, path, samples):
        pass
    return replay(path)


def recording(stream: Any, path: Place, samples: int | None = None) -> Iterator[Batch]:
    """The batches of a stream, each written to a new file before it is handed on.

    Whatever interrupts this, the batches written so far can be replayed. Arguments are those of `record`.

    >>> import tempfile
    >>> from everlearn import CoPE, stream
    >>> learner = CoPE(hidden=50, memory_size=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for x, y, t in recording(stream("split-digits"), folder + "/today.stream", samples=50):
    ...         learner.observe(x, y)
    ...     replay(folder + "/today.stream").samples
    50
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, or None for the whole stream, not {samples}")
    stream = as_stream(stream)
    classes = stream.classes
    about = {
        "kind": "stream",
        "name": stream.name,
        "seed": stream.seed,
        "batch_size": stream.batch_size,
        "imbalance": stream.imbalance,
        "tells": sorted(stream.tells),
        "tasks": stream.tasks,
        "classes": None if classes is None else [encode_label(label) for label in classes],
    }
    try:
        with open(path, "xb") as file:
            file.write(MAGIC + to_chunk(about, b""))
            for concept, (x, y) in enumerate(stream.tests):
                file.write(_packed(f"test set {concept}", "test", x, y))
    except FileExistsError:
        raise RecordingError(f"{path} exists already; delete it or choose another name") from None
    except OSError as error:
        raise _unwritable(path, error) from None
    return _written(stream, path, samples)


def _written(stream: Stream, path: Place, samples: int | None) -> Iterator[Batch]:
    sent = 0
    with open(path, "ab") as file:
        for number, batch in enumerate(stream, 1):
            chunk = _packed(f"batch {number}", "batch", *batch)
            try:
                file.write(chunk)
                file.flush()  # from here on a crash of this process can't take it back
            except OSError as error:
                raise _unwritable(path, error) from None
            sent += len(batch.x)
            yield batch
            if samples is not None and sent >= samples:
                return


def _packed(what: str, kind: str, x: Any, y: Any, t: Any = None) -> bytes:
    try:
        return to_chunk(*pack(kind, x, y, t))
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{what} can't be recorded: {error}") from None


def _unwritable(path: Place, error: OSError) -> RecordingError:
    return RecordingError(f"{path} can't be written: {error.strerror or error}")


def replay(path: Place) -> Replay:
    """The stream that was recorded to this file: the same batches, read one by one.

    Where a crash cut the last batch off, the whole ones before it are replayed, and a warning says so.

    >>> replay("nowhere.stream")
    Traceback (most recent call last):
    everlearn.streams.recording.RecordingError: nowhere.stream can't be read: No such file or directory
    """
    return Replay(path)


class Replay(Stream):
    """A recorded stream: name, seed, what it tells and tests are those of the stream that was recorded.

    Only the batch that is asked for is in memory. A stream that drifted keeps its tests, not its `tests_at`.
    """

    def __init__(self, path: Place) -> None:
        self.path = Path(path)
        self._tests_from: list[int] = []  # where in the file each test set begins
        self._batches_from = 0
        self._batches = 0
        self._samples = 0
        self._about = self._survey()
        self.name: str = self._about["name"]
        self.seed: int = self._about["seed"]
        self.batch_size: int | None = self._about["batch_size"]
        self.imbalance: int | None = self._about["imbalance"]

    def __iter__(self) -> Iterator[Batch]:
        """The batches, as they were recorded."""
        with self._open() as file:
            file.seek(self._batches_from)
            for number in range(1, self._batches + 1):
                with self._named(f"batch {number}"):
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
        """What the stream told a learner."""
        return frozenset(self._about["tells"])

    @property
    def tasks(self) -> int | None:
        """How many tasks the stream had, if it told."""
        tasks: int | None = self._about["tasks"]
        return tasks

    @property
    def classes(self) -> list[Any] | None:
        """All labels of the stream, if it told."""
        codes = self._about["classes"]
        return None if codes is None else unpack_labels(codes)

    @functools.cached_property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept, as the stream had them."""
        found = []
        with self._open() as file:
            for concept, start in enumerate(self._tests_from):
                file.seek(start)
                with self._named(f"test set {concept}"):
                    found.append(_test_set(*unpack(*read_chunk(file))))
        return tuple(found)

    def _survey(self) -> dict[str, Any]:
        """Read the headers alone: what the stream was, where its tests are, how many batches it has."""
        with self._open() as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise RecordingError(f"{self.path} is no recorded stream; give a file that `record` wrote")
            with self._named("what it says about the stream"):
                about = read_chunk(file)[0]
                _check_about(about)
            size = os.fstat(file.fileno()).st_size
            while file.tell() < size:
                start = file.tell()
                with self._named(f"batch {self._batches + 1}"):
                    try:
                        header = skip_chunk(file)
                    except CutOffError:
                        self._warn()
                        break
                    self._note(header.get("kind"), rows(header), start)
        return about

    def _note(self, kind: Any, samples: int, start: int) -> None:
        if kind == "test" and not self._batches:
            self._tests_from.append(start)
            return
        if kind != "batch":
            raise ValueError(f"there is a chunk of the kind {str(kind)[:20]!r} where a batch is expected")
        self._batches_from = self._batches_from or start
        self._batches += 1
        self._samples += samples

    def _warn(self) -> None:
        warnings.warn(
            f"{self.path} was cut off in the middle of batch {self._batches + 1}; "
            f"only what came before, {self._batches} whole, is replayed",
            stacklevel=5,
        )

    def _open(self) -> BinaryIO:
        try:
            return open(self.path, "rb")
        except OSError as error:
            raise RecordingError(f"{self.path} can't be read: {error.strerror}") from None

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """Let an error in here say which file is damaged, and where."""
        try:
            yield
        except (ValueError, TypeError, OverflowError, RuntimeError, OSError, MemoryError) as error:
            reason = " ".join(str(error).split()) or "out of memory"
            raise RecordingError(
                f"{self.path} is damaged in {what} ({reason}); get a sound copy of it, or record anew"
            ) from None


def _batch(x: Any, y: Any, t: Any) -> Batch:
    if not _whole_or_none(t):
        raise ValueError("its t is not a whole number")
    return Batch(x, y, t)


def _test_set(x: Any, y: Any, t: Any) -> tuple[Any, Any]:
    """Held-out samples and labels, if there is one label for each sample."""
    if getattr(y, "ndim", 1) != 1 or len(x) != len(y):
        raise ValueError(f"it has {len(x)} samples, but not one label for each")
    return x, y


def _check_about(about: dict[str, Any]) -> None:
    """Refuse what says something about a stream that no stream has."""
    classes = about.get("classes")
    right = {
        "kind": about.get("kind") == "stream",
        "name": isinstance(about.get("name"), str),
        "seed": _whole_or_none(about.get("seed")),
        "batch_size": _whole_or_none(about.get("batch_size"), least=1),
        "imbalance": _whole_or_none(about.get("imbalance")),
        "tasks": _whole_or_none(about.get("tasks"), least=1),
        "tells": isinstance(about.get("tells"), list) and all(told in TOLD for told in about["tells"]),
        "classes": classes is None or isinstance(classes, list),
    }
    for what, is_right in right.items():
        if what not in about or not is_right:
            raise ValueError(f"its {what} is missing or can't be read")
    unpack_labels(classes or [])


def _whole_or_none(value: Any, least: int | None = None) -> bool:
    return value is None or is_whole(value, least)
