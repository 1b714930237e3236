"""Record a stream to a file while it is used, so that the same batches can be played back later.

A file holds a description of the stream, then its test sets, then its batches, one chunk each (see `record_format`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

from everlearn.label_json import encode_label
from everlearn.streams.base import Batch, Stream
from everlearn.streams.playback import Playback, playback
from everlearn.streams.record_format import MAGIC, RecordingError, pack, to_chunk
from everlearn.streams.user_stream import as_stream

__all__ = ["RecordingError", "record", "recording", "replay"]


def record(stream: Any, path: str | os.PathLike[str], samples: int | None = None) -> Playback:
    """Write a stream to a new file, and return its playback.

    stream: a stream, or anything that `as_stream` accepts.
    path: the file to create. An existing file is never overwritten.
    samples: stop after the batch that reaches this many samples; required for an endless stream.

    >>> import tempfile
    >>> from everlearn import stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     yesterday = record(stream("split-digits"), folder + "/yesterday.stream", samples=200)
    ...     len(yesterday), yesterday.samples
    (20, 200)
    """
    for _ in recording(stream, path, samples):
        pass
    return playback(path)


def recording(stream: Any, path: str | os.PathLike[str], samples: int | None = None) -> Iterator[Batch]:
    """Iterate over a stream and write each batch to a new file before it is yielded.

    If the process is interrupted, the batches written so far can be played back. The arguments are those of `record`.

    >>> import tempfile
    >>> from everlearn import CoPE, playback, stream
    >>> learner = CoPE(hidden=50, memory_size=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for x, y, t in recording(stream("split-digits"), folder + "/today.stream", samples=50):
    ...         learner.observe(x, y)
    ...     playback(folder + "/today.stream").samples
    50
    """
    if samples is not None and samples < 1:
        raise ValueError(f"samples must be at least 1, or None for the whole stream, not {samples}")
    stream = as_stream(stream)
    try:
        with open(path, "xb") as file:
            file.write(MAGIC + to_chunk(_description(stream), b""))
            for concept, (x, y) in enumerate(stream.tests):
                file.write(_to_chunk(f"test set {concept}", "test", x, y))
    except FileExistsError:
        raise RecordingError(f"{path} already exists; delete it or choose another name") from None
    except OSError as error:
        raise _write_error(path, error) from None
    return _write_batches(stream, path, samples)


def _description(stream: Stream) -> dict[str, Any]:
    classes = stream.classes
    return {
        "kind": "stream",
        "name": stream.name,
        "seed": stream.seed,
        "batch_size": stream.batch_size,
        "imbalance": stream.imbalance,
        "tells": sorted(stream.tells),
        "tasks": stream.tasks,
        "classes": None if classes is None else [encode_label(label) for label in classes],
    }


def _write_batches(stream: Stream, path: str | os.PathLike[str], samples: int | None) -> Iterator[Batch]:
    written = 0
    with open(path, "ab") as file:
        for number, batch in enumerate(stream, 1):
            chunk = _to_chunk(f"batch {number}", "batch", *batch)
            try:
                file.write(chunk)
                file.flush()  # from here on, the batch survives a crash of this process
            except OSError as error:
                raise _write_error(path, error) from None
            written += len(batch.x)
            yield batch
            if samples is not None and written >= samples:
                return


def _to_chunk(what: str, kind: str, x: Any, y: Any, t: Any = None) -> bytes:
    try:
        return to_chunk(*pack(kind, x, y, t))
    except (ValueError, TypeError) as error:
        raise RecordingError(f"{what} can't be recorded: {error}") from None


def _write_error(path: str | os.PathLike[str], error: OSError) -> RecordingError:
    return RecordingError(f"{path} can't be written: {error.strerror or error}")


def replay(path: str | os.PathLike[str]) -> Playback:
    """Deprecated name of `playback`; it will be removed in the next release."""
    warnings.warn(
        "everlearn.replay is deprecated and will be removed in the next release; use everlearn.playback",
        DeprecationWarning,
        stacklevel=2,
    )
    return playback(path)
