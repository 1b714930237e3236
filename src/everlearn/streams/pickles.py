"""CIFAR's batches are pickles: they are read as data alone, and in no more memory than a batch takes."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NotDataError", "load_batch"]

# Everything that a dict of arrays, lists, strings and numbers is made of, whichever Python wrote it.
OPCODES = frozenset({
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWFALSE", "NEWTRUE", "BININT", "BININT1", "BININT2",
    "BINSTRING", "SHORT_BINSTRING", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS",
    "EMPTY_DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "BINPUT",
    "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET",
})  # fmt: skip
OPERATIONS_PER_IMAGE = 12  # two labels and a file name, each kept in the pickle's memo
MORE_OPERATIONS = 1000


class NotDataError(ValueError):
    """A pickle asks for something that is not data."""


def load_batch(content: bytes, images: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """The pixels of a batch, `[n, 3072]`, and what else its dict holds by name.

    images: how many the batch has; a pickle of many more operations is refused before it is run.
    """
    _check_operations(content, OPERATIONS_PER_IMAGE * images + MORE_OPERATIONS)
    batch = _DataUnpickler(io.BytesIO(content), len(content)).load()
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    return named["data"].pixels(), named


def _check_operations(content: bytes, limit: int) -> None:
    """Refuse a pickle that could take more memory than its data: by its operations, none of which is run.

    Lengths are checked against the bytes that are there, and the memo grows by one place at a time.
    """
    for number, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if operation.name not in OPCODES:
            raise NotDataError(f"holds the operation {operation.name}, which is not data")
        if number >= limit:
            raise NotDataError(f"has more than {limit} operations, more than its images need")
        if operation.name == "LONG_BINPUT" and int(argument or 0) > limit:
            raise NotDataError(f"asks for a memo of {argument} places, more than its images need")


class _DataUnpickler(pickle.Unpickler):
    """Builds uint8 arrays, lists, dicts, strings and numbers; a pickle that asks for more is refused.

    Numpy's own constructors are named in every batch but never handed out: they would make an array of
    objects from an address in the file. A few harmless stand-ins answer to their names.
    """

    def __init__(self, file: io.BytesIO, room: int) -> None:
        super().__init__(file, encoding="bytes")
        self._room = room  # bytes that may still be encoded: the same text could be, again and again

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # its name before numpy 2
        if (module, name) == ("_codecs", "encode"):
            return self._latin1
        if (module, name) not in _STAND_INS:
            raise NotDataError(f"holds {module[:80]}.{name[:80]}, which is not data")
        return _STAND_INS[module, name]

    def _latin1(self, text: str, encoding: str) -> bytes:
        """How Python 3 writes bytes in a pickle that Python 2 can read."""
        self._room -= len(text)
        if self._room < 0:
            raise NotDataError("holds the same bytes over and over")
        return text.encode("latin1")


class _Array:
    """An array as a pickle describes it: its shape and its bytes, neither copied nor believed."""

    def __init__(self, *arguments: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        """Its bytes as images, `[n, 3072]`."""
        _, _, kind, is_fortran, content = self.state
        if not isinstance(kind, _Bytes) or is_fortran:
            raise NotDataError("holds an array that is not of unsigned bytes, row by row")
        return np.frombuffer(content, np.uint8).reshape(-1, 3072)


class _Bytes:
    """The type of an array of unsigned bytes; a pickle that names another is refused."""

    def __init__(self, kind: str | bytes, *options: Any) -> None:
        if kind not in ("u1", b"u1"):
            name = repr(kind[:20]) if isinstance(kind, str | bytes) else f"a {type(kind).__name__}"
            raise NotDataError(f"holds an array of {name}, which is not of unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, of which single bytes have none."""


_STAND_INS = {
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _Bytes,
}
