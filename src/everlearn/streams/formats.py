"""The makers' file formats: IDX for MNIST, python batches for CIFAR, and what is wrong with a broken file."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bytes", "DataError", "archive_files", "broken", "file_bytes", "listed", "read_batch", "read_idx"]

Bytes = NDArray[np.uint8]


class DataError(ValueError):
    """A dataset is missing, broken or unknown; the message is one sentence that ends in the remedy."""

    flaw = ""  # where a file is broken: what is wrong with it, without the remedy


def read_idx(name: str, path: Path) -> Bytes:
    """The array of unsigned bytes in an IDX file, gzipped or not."""
    content = file_bytes(name, path)
    header = 4 + 4 * content[3] if len(content) > 3 else 4
    if content[:3] != b"\x00\x00\x08" or len(content) < header:
        raise broken(name, path, f"is not an IDX file of unsigned bytes (it starts with {content[:4]!r})")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    if len(content) - header != math.prod(shape):
        raise broken(
            name, path, f"holds {len(content) - header} bytes where its header says {math.prod(shape)}"
        )
    array = np.frombuffer(content, np.uint8, offset=header).reshape(shape)
    return array.copy()  # one that can be written to, so that torch takes it without a warning


def file_bytes(name: str, path: Path) -> bytes:
    """What is in a file, decompressed if it is gzipped, whatever its name says."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise broken(name, path, f"cannot be decompressed ({error})") from error


def archive_files(name: str, path: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Those files of a tar archive whose last name is among `names`, whatever folder they are in."""
    awaited = set(names)
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                file = member.name.rpartition("/")[2]
                stream = archive.extractfile(member) if file in awaited and member.isfile() else None
                if stream is not None:
                    yield file, stream.read()
                    awaited.discard(file)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise broken(name, path, f"is not a whole archive ({error})") from error
    if awaited:
        raise broken(name, path, f"lacks {listed(sorted(awaited))}")


def broken(name: str, path: Path, flaw: str) -> DataError:
    """The error for a file that is there but is not what its maker published."""
    again = f"delete it and run `everlearn data fetch {name}`"
    remedy = "reinstall scikit-learn" if name == "digits" else again
    flaw = " ".join(flaw.split())  # the words of another library may run over several lines
    error = DataError(f"{path} {flaw}; {remedy}")
    error.flaw = flaw
    return error


def read_batch(name: str, path: Path, content: bytes) -> tuple[Bytes, Bytes]:
    """The rows [n, 3072] and labels [n] of one CIFAR batch; CIFAR100's fine ones."""
    try:
        batch = _DataUnpickler(io.BytesIO(content), encoding="bytes").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        rows = np.asarray(batch["data"], dtype=np.uint8).reshape(-1, 3072)
        labels = np.array(batch["fine_labels" if name == "cifar100" else "labels"], dtype=np.uint8)
    except Exception as error:  # a damaged pickle can fail in any way at all
        reason = (
            str(error)
            if isinstance(error, _NotDataError)
            else f"is not a CIFAR batch ({error or 'cut short'})"
        )
        raise broken(name, path, reason) from error
    return rows, labels


class _NotDataError(Exception):
    """A pickle asks for something that is not data."""


class _DataUnpickler(pickle.Unpickler):
    """Builds uint8 arrays, lists, dicts, strings and numbers; a pickle that asks for more is refused.

    Numpy's own constructors are named in every batch but never handed out: they would make an array of
    objects from an address in the file. A few harmless stand-ins answer to their names.
    """

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        if (module, name) not in _STAND_INS:
            raise _NotDataError(f"holds {module}.{name}, which is not data")
        return _STAND_INS[module, name]


def _empty_array(*arguments: Any) -> Bytes:
    return np.empty(0, np.uint8)  # the unpickler then sets its shape and bytes


def _uint8(kind: str | bytes, *options: Any) -> np.dtype[np.uint8]:
    if kind not in ("u1", b"u1"):
        raise _NotDataError(f"holds an array of {kind!r}, which is not of unsigned bytes")
    return np.dtype(np.uint8)


def _latin1(text: str, encoding: str) -> bytes:
    return text.encode("latin1")  # how Python 3 writes bytes in a pickle that Python 2 can read


_STAND_INS = {
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _uint8,
    ("_codecs", "encode"): _latin1,
}


def listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
