"""The published file formats: IDX for MNIST, pickled batches for CIFAR; and the errors for invalid files."""

from __future__ import annotations

import gzip
import math
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.streams.safe_pickle import NotDataError, load_batch
from everlearn.streams.size_limits import idx_bytes

__all__ = [
    "Bytes",
    "DataError",
    "archive_files",
    "archive_members",
    "file_bytes",
    "invalid_file",
    "join_words",
    "read_batch",
    "read_idx",
    "too_large",
]

Bytes = NDArray[np.uint8]


class DataError(ValueError):
    """A dataset is missing, invalid or unknown; the message is one sentence that ends with what to do."""

    problem = ""  # what is wrong with an invalid file, without what to do about it


def read_idx(name: str, path: Path, shape: Sequence[int]) -> Bytes:
    """Read the array of unsigned bytes in an IDX file, gzipped or not.

    shape: the expected shape of the array.
    """
    content = file_bytes(name, path, idx_bytes(shape))
    header = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != b"\x00\x00\x08" or len(content) < header:
        raise invalid_file(
            name, path, f"is not an IDX file of unsigned bytes (it starts with {content[:4]!r})"
        )
    found = struct.unpack(f">{content[3]}I", content[4:header])
    if len(content) - header != math.prod(found):
        size = math.prod(found)
        expected = str(size) if size < 2**64 else "far more"
        raise invalid_file(
            name, path, f"holds {len(content) - header} bytes where its header says {expected}"
        )
    if list(found) != list(shape):
        actual = f"shape {list(found)}" if len(found) < 5 else f"{len(found)} dimensions"
        raise invalid_file(name, path, f"holds an array of {actual} where {list(shape)} is expected")
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return array.copy()  # a writable copy, because torch warns about read-only arrays


def file_bytes(name: str, path: Path, limit: int) -> bytes:
    """The content of a file, decompressed if it is gzipped whatever its name says; at most `limit` bytes."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source = gzip.GzipFile(fileobj=file) if packed else file
            content = source.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise invalid_file(name, path, f"can't be decompressed ({error})") from error
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}); check its permissions") from error
    if len(content) > limit:
        raise too_large(name, path, limit)
    return content


def archive_files(name: str, path: Path, names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a gzipped tar archive that have these names, in whatever folder they are.

    limit: the largest size of the unpacked archive in bytes; nothing beyond it is read.
    """
    missing = set(names)
    try:
        with gzip.open(path) as packed, _tar(_LimitedFile(packed, limit)) as archive:
            for member in archive:
                file = member.name.rpartition("/")[2]
                is_wanted = file in missing and member.isfile() and not member.issparse()
                stream = archive.extractfile(member) if is_wanted else None
                if stream is not None:
                    if member.size > limit:
                        raise too_large(name, path, limit)
                    yield file, stream.read()
                    missing.discard(file)
    except _LimitError:
        raise too_large(name, path, limit) from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise invalid_file(name, path, f"is not a complete archive ({error})") from error
    if missing:
        raise invalid_file(name, path, f"lacks {join_words(sorted(missing))}")


def archive_members(name: str, path: Path, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield every file of a gzipped tar archive with its path; at most `limit` bytes are unpacked."""
    try:
        with gzip.open(path) as packed, _tar(_LimitedFile(packed, limit)) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() and not member.issparse() else None
                if stream is not None:
                    yield member.name, stream.read()
    except _LimitError:
        raise too_large(name, path, limit) from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise invalid_file(name, path, f"is not a complete archive ({error})") from error


def _tar(file: Any) -> tarfile.TarFile:
    """Open an archive that is read once, from beginning to end."""
    return tarfile.open(fileobj=file, mode="r|")


class _LimitError(Exception):
    """A file is longer than the bytes that may be read from it."""


class _LimitedFile:
    """A file from which at most `limit` bytes can be read."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._left = file, limit

    def read(self, size: int) -> bytes:
        part = self._file.read(size)
        self._left -= len(part)
        if self._left < 0:
            raise _LimitError
        return part


def invalid_file(name: str, path: Path, problem: str) -> DataError:
    """The error for a file that differs from the published one."""
    again = f"delete it and run `everlearn data fetch {name}`"
    remedy = "reinstall scikit-learn" if name == "digits" else again
    problem = " ".join(problem.split())  # messages of other libraries may have several lines
    error = DataError(f"{path} {problem}; {remedy}")
    error.problem = problem
    return error


def too_large(name: str, path: Path, limit: int) -> DataError:
    """The error for a file that is larger than the published one can be."""
    return invalid_file(name, path, f"holds more than the {limit} bytes that are expected")


def read_batch(name: str, path: Path, content: bytes, images: int) -> tuple[Bytes, Bytes]:
    """Read one CIFAR batch of this many images: its rows [n, 3072] and labels [n]; of CIFAR100, the fine labels."""
    try:
        rows, batch = load_batch(content, images)
        label_list = batch["fine_labels" if name == "cifar100" else "labels"]
        if not isinstance(label_list, list):
            raise NotDataError("has labels that are not a list")
        labels = np.frombuffer(bytes(label_list), np.uint8)
    except Exception as error:  # a damaged pickle can fail in any way
        reason = (
            str(error)
            if isinstance(error, NotDataError)
            else f"is not a CIFAR batch ({error or 'cut short'})"
        )
        raise invalid_file(name, path, reason) from error
    return rows, labels


def join_words(words: Iterable[str]) -> str:
    """Join words for a sentence.

    >>> join_words(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
