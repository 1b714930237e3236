"""Read the pickled batches of CIFAR safely: no code is run, and no more memory is used than a batch needs."""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NotDataError", "load_batch"]

# The opcodes of a dict of arrays, lists, strings and numbers, written by any version of Python.
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
    """A pickle contains something other than data."""


def load_batch(content: bytes, images: int) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Read the pixels of a batch, `[n, 3072]`, and its whole dict.

    images: how many images the batch has; a pickle with many more operations is rejected before it is loaded.
    """
    _check_operations(content, OPERATIONS_PER_IMAGE * images + MORE_OPERATIONS)
    batch = _DataUnpickler(io.BytesIO(content), len(content)).load()
    named = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
    return named["data"].pixels(), named


def _check_operations(content: bytes, limit: int) -> None:
    """Reject a pickle that could use more memory than its data needs. Operations are only listed, not run.

    The size of the memo is checked because one operation could make it as large as memory allows.
    """
    for number, (operation, argument, _) in enumerate(pickletools.genops(content)):
        if operation.name not in OPCODES:
            raise NotDataError(f"holds the operation {operation.name}, which is not data")
        if number >= limit:
            raise NotDataError(f"has more than {limit} operations, more than its images need")
        if operation.name == "LONG_BINPUT" and int(argument or 0) > limit:
            raise NotDataError(f"needs a memo of {argument} entries, more than its images need")


class _DataUnpickler(pickle.Unpickler):
    """Builds uint8 arrays, lists, dicts, strings and numbers; any other class is rejected.

    Every batch names numpy's constructors, but these could turn an address in the file into an object. So they are
    replaced by a few harmless classes.
    """

    def __init__(self, file: io.BytesIO, size: int) -> None:
        super().__init__(file, encoding="bytes")
        self._bytes_left = size  # to encode: a pickle could encode the same text over and over

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")  # the module's name before numpy 2
        if (module, name) == ("_codecs", "encode"):
            return self._latin1
        if (module, name) not in _REPLACEMENTS:
            raise NotDataError(f"holds {module[:80]}.{name[:80]}, which is not data")
        return _REPLACEMENTS[module, name]

    def _latin1(self, text: str, encoding: str) -> bytes:
        """Decode bytes as Python 3 writes them in a pickle for Python 2."""
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise NotDataError("holds the same bytes over and over")
        return text.encode("latin1")


class _Array:
    """An array as the pickle describes it; its shape and bytes are checked later, in `pixels`."""

    def __init__(self, *arguments: Any) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        """The bytes as images, `[n, 3072]`."""
        _, _, kind, is_fortran, content = self.state
        if not isinstance(kind, _Bytes) or is_fortran:
            raise NotDataError("holds an array that is not of unsigned bytes, row by row")
        return np.frombuffer(content, np.uint8).reshape(-1, 3072)


class _Bytes:
    """The dtype of unsigned bytes; any other is rejected."""

    def __init__(self, kind: str | bytes, *options: Any) -> None:
        if kind not in ("u1", b"u1"):
            name = repr(kind[:20]) if isinstance(kind, str | bytes) else f"a {type(kind).__name__}"
            raise NotDataError(f"holds an array of {name}, which is not of unsigned bytes")

    def __setstate__(self, state: Any) -> None:
        """Ignore byte order and alignment, which do not apply to single bytes."""


_REPLACEMENTS = {
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): "numpy.ndarray",
    ("numpy", "dtype"): _Bytes,
}
