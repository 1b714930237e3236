"""The makers' file formats: IDX for MNIST, python batches for CIFAR, and what is wrong with a broken file."""

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

from everlearn.streams.pickles import NotDataError, load_batch
from everlearn.streams.sizes import idx_bytes

__all__ = [
    "Bytes",
    "DataError",
    "archive_files",
    "broken",
    "file_bytes",
    "listed",
    "read_batch",
    "read_idx",
    "too_large",
]

Bytes = NDArray[np.uint8]


class DataError(ValueError):
    """A dataset is missing, broken or unknown; the message is one sentence that ends in the remedy."""

    flaw = ""  # where a file is broken: what is wrong with it, without the remedy


def read_idx(name: str, path: Path, shape: Sequence[int]) -> Bytes:
    """The array of unsigned bytes in an IDX file, gzipped or not; shape: the one that the dataset has."""
    content = file_bytes(name, path, idx_bytes(shape))
    header = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != b"\x00\x00\x08" or len(content) < header:
        raise broken(name, path, f"is not an IDX file of unsigned bytes (it starts with {content[:4]!r})")
    found = struct.unpack(f">{content[3]}I", content[4:header])
    if len(content) - header != math.prod(found):
        size = math.prod(found)
        said = str(size) if size < 2**64 else "far more"
        raise broken(name, path, f"holds {len(content) - header} bytes where its header says {said}")
    if list(found) != list(shape):
        said = f"shape {list(found)}" if len(found) < 5 else f"{len(found)} dimensions"
        raise broken(name, path, f"holds an array of {said} where {list(shape)} is expected")
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return array.copy()  # one that can be written to, so that torch takes it without a warning


def file_bytes(name: str, path: Path, limit: int) -> bytes:
    """What is in a file, decompressed if it is gzipped, whatever its name says; no more than `limit` bytes."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source = gzip.GzipFile(fileobj=file) if packed else file
            content = source.read(limit + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise broken(name, path, f"cannot be decompressed ({error})") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    if len(content) > limit:
        raise too_large(name, path, limit)
    return content


def archive_files(name: str, path: Path, names: Iterable[str], limit: int) -> Iterator[tuple[str, bytes]]:
    """Those files of a tar archive whose last name is among `names`, whatever folder they are in.

    limit: bytes of the whole archive, unpacked; what lies beyond is never read.
    """
    awaited = set(names)
    try:
        with gzip.open(path) as packed, _tar(_Bounded(packed, limit)) as archive:
            for member in archive:
                file = member.name.rpartition("/")[2]
                wanted = file in awaited and member.isfile() and not member.issparse()
                stream = archive.extractfile(member) if wanted else None
                if stream is not None:
                    if member.size > limit:
                        raise too_large(name, path, limit)
                    yield file, stream.read()
                    awaited.discard(file)
    except _TooMuchError:
        raise too_large(name, path, limit) from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise broken(name, path, f"is not a whole archive ({error})") from error
    if awaited:
        raise broken(name, path, f"lacks {listed(sorted(awaited))}")


def _tar(file: Any) -> tarfile.TarFile:
    """An archive that is read from beginning to end, once."""
    return tarfile.open(fileobj=file, mode="r|")


class _TooMuchError(Exception):
    """A file goes on after the bytes that may be read of it."""


class _Bounded:
    """A file of which only so many bytes can be read."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file, self._left = file, limit

    def read(self, size: int) -> bytes:
        part = self._file.read(size)
        self._left -= len(part)
        if self._left < 0:
            raise _TooMuchError
        return part


def broken(name: str, path: Path, flaw: str) -> DataError:
    """The error for a file that is there but is not what its maker published."""
    again = f"delete it and run `everlearn data fetch {name}`"
    remedy = "reinstall scikit-learn" if name == "digits" else again
    flaw = " ".join(flaw.split())  # the words of another library may run over several lines
    error = DataError(f"{path} {flaw}; {remedy}")
    error.flaw = flaw
    return error


def too_large(name: str, path: Path, limit: int) -> DataError:
    """The error for a file that holds more than the dataset's own can."""
    return broken(name, path, f"holds more than the {limit} bytes that are expected of it")


def read_batch(name: str, path: Path, content: bytes, images: int) -> tuple[Bytes, Bytes]:
    """The rows [n, 3072] and labels [n] of one CIFAR batch of so many images; CIFAR100's fine labels."""
    try:
        rows, batch = load_batch(content, images)
        listed_labels = batch["fine_labels" if name == "cifar100" else "labels"]
        if not isinstance(listed_labels, list):
            raise NotDataError("has labels that are not a list")
        labels = np.frombuffer(bytes(listed_labels), np.uint8)
    except Exception as error:  # a damaged pickle can fail in any way at all
        reason = (
            str(error)
            if isinstance(error, NotDataError)
            else f"is not a CIFAR batch ({error or 'cut short'})"
        )
        raise broken(name, path, reason) from error
    return rows, labels


def listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
