"""The file format of a recorded stream: checksummed chunks, each with a JSON header and raw bytes.

A file starts with `MAGIC`, followed by chunks. A chunk is the lengths and checksums of its two parts, a header in
JSON and a body of raw bytes. `pack` encodes a batch as a header and a body, `unpack` decodes it: every type, shape
and label is kept. Nothing in a file can be executed.

Why not safetensors: it has one header, at the front of the file. A file could not grow batch by batch, a crash would
lose the whole recording, and there is no place for labels of mixed types.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
import zlib
from typing import Any, BinaryIO

import numpy as np
import torch

from everlearn.label_json import decode_label, encode_label
from everlearn.messages import is_whole

__all__ = [
    "MAGIC",
    "RecordingError",
    "TruncatedError",
    "pack",
    "read_chunk",
    "row_count",
    "skip_chunk",
    "to_chunk",
    "unpack",
    "unpack_labels",
]

MAGIC = b"everlearn stream 1\n"
LENGTHS = struct.Struct("<IIQI")  # bytes of the header, its crc32, bytes of the body, its crc32
LENGTHS_CHECKSUM = struct.Struct("<I")  # crc32 of the lengths, so that a wrong length is never used
MAX_HEADER_BYTES = 1 << 28  # a hundred times what the labels of a large batch need

RAW_KINDS = "biufcSU"  # the numpy kinds whose values are plain bytes
MAX_DIMENSIONS = 32
# Quantised torch types are left out: creating such a tensor from bytes crashes the process.
TENSOR_TYPE = re.compile(r"bool|u?int(8|16|32|64)|bfloat16|float(8_\w+|16|32|64)|complex(32|64|128)")
ARRAY_TYPE = re.compile(rf"[<>|][{RAW_KINDS}][1-9][0-9]{{0,8}}")  # as in `numpy.dtype.str`
LABEL_TYPES = (str, int, float, bool, bytes, type(None))


class RecordingError(ValueError):
    """A recorded stream is missing, damaged, in another format, or can't be written."""


class TruncatedError(ValueError):
    """The file ends in the middle of a chunk."""


# Chunks


def to_chunk(header: dict[str, Any], body: bytes) -> bytes:
    """Encode a chunk as it is written to the file."""
    head = json.dumps(header).encode()
    if len(head) > MAX_HEADER_BYTES:
        raise ValueError(
            f"its labels take {len(head)} bytes, more than {MAX_HEADER_BYTES}; pass them as an array"
        )
    lengths = LENGTHS.pack(len(head), zlib.crc32(head), len(body), zlib.crc32(body))
    return b"".join([lengths, LENGTHS_CHECKSUM.pack(zlib.crc32(lengths)), head, body])


def read_chunk(file: BinaryIO) -> tuple[dict[str, Any], bytes]:
    """Read the header and the body of the next chunk."""
    header, size, checksum = _read_header(file)
    body = file.read(size)
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum differs")
    return header, body


def skip_chunk(file: BinaryIO) -> dict[str, Any]:
    """Read the header of the next chunk and move past its body without reading it."""
    header, size, _ = _read_header(file)
    file.seek(size, os.SEEK_CUR)
    return header


def _read_header(file: BinaryIO) -> tuple[dict[str, Any], int, int]:
    """Read the header of the next chunk, and the length and checksum of the body that follows."""
    start = file.read(LENGTHS.size + LENGTHS_CHECKSUM.size)
    if len(start) < LENGTHS.size + LENGTHS_CHECKSUM.size:
        raise TruncatedError("the file ends in it")
    lengths, checksum = start[: LENGTHS.size], start[LENGTHS.size :]
    if LENGTHS_CHECKSUM.pack(zlib.crc32(lengths)) != checksum:
        raise ValueError("its checksum differs")
    head_size, head_checksum, body_size, body_checksum = LENGTHS.unpack(lengths)
    if file.tell() + head_size + body_size > os.fstat(file.fileno()).st_size:
        raise TruncatedError("the file ends in it")
    if head_size > MAX_HEADER_BYTES:
        raise ValueError(f"its header has {head_size} bytes, more than {MAX_HEADER_BYTES}")
    head = file.read(head_size)
    if zlib.crc32(head) != head_checksum:
        raise ValueError("its checksum differs")
    try:
        header = json.loads(head)
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header, body_size, body_checksum


# Batches


def pack(kind: str, x: Any, y: Any, t: Any = None) -> tuple[dict[str, Any], bytes]:
    """Encode a batch as a header and raw bytes; raise a ValueError if a part of it can't be stored.

    >>> pack("batch", np.zeros((2, 3), np.uint8), ["cat", 1.5], 0)[0]["y"]
    {'labels': ['cat', {'float': '0x1.8000000000000p+0'}]}
    """
    header: dict[str, Any] = {"kind": kind, "t": encode_label(_checked_label(t))}
    header["x"], samples = _pack_array(x if isinstance(x, torch.Tensor) else np.asarray(x))
    if isinstance(y, torch.Tensor) or (isinstance(y, np.ndarray) and y.dtype.kind in RAW_KINDS):
        header["y"], labels = _pack_array(y)
        return header, samples + labels
    header["y"] = {"labels": [encode_label(_checked_label(label)) for label in y]}
    return header, samples


def unpack(header: dict[str, Any], body: bytes) -> tuple[Any, Any, Any]:
    """Decode a batch into x, y and t; labels that were not an array become a list.

    A header that `pack` could not have written raises a ValueError before any memory is allocated for it.

    >>> unpack(*pack("batch", np.ones((1, 2)), [None], 3))
    (array([[1., 1.]]), [None], 3)
    """
    about_x, about_y = _description(header, "x"), _description(header, "y")
    x, rest = _unpack_array(about_x, memoryview(body))
    if "labels" in about_y:
        y: Any = unpack_labels(about_y["labels"])
    else:
        y, rest = _unpack_array(about_y, rest)
    if len(rest):
        raise ValueError(f"{len(rest)} bytes are left over")
    return x, y, _decoded_label(header.get("t"))


def unpack_labels(codes: Any) -> list[Any]:
    """Decode labels, or raise a ValueError if one is not what `encode_label` writes."""
    return [_decoded_label(code) for code in _checked_list(codes, "labels")]


def row_count(header: dict[str, Any]) -> int:
    """How many samples a batch has, from its header alone."""
    shape = _shape(_description(header, "x"))
    if not shape:
        raise ValueError("its x is a single number, not a batch of samples")
    return shape[0]


# Arrays


def _pack_array(array: Any) -> tuple[dict[str, Any], bytes]:
    shape = list(array.shape)
    if isinstance(array, torch.Tensor):
        name = str(array.dtype).removeprefix("torch.")
        if array.layout != torch.strided or not TENSOR_TYPE.fullmatch(name):
            raise ValueError(
                f"a tensor of {array.dtype}, {array.layout}, can't be stored as plain bytes; make it a dense one"
            )
        flat = array.detach().cpu().contiguous().flatten()
        return {"tensor": name, "shape": shape}, flat.view(torch.uint8).numpy().tobytes()
    if array.dtype.kind not in RAW_KINDS:
        raise ValueError(
            f"an array of {array.dtype} can't be stored as plain bytes; make x an array of numbers"
        )
    return {"array": array.dtype.str, "shape": shape}, array.tobytes()


def _unpack_array(about: dict[str, Any], body: memoryview) -> tuple[Any, memoryview]:
    """Decode the array at the start of these bytes; also return the bytes after it."""
    shape, dtype = _shape(about), _dtype(about)
    size = math.prod(shape) * dtype.itemsize
    if size > len(body):
        raise ValueError(f"an array of {size} bytes is announced, but there are {len(body)}")
    own = bytearray(body[:size])  # a copy, so that the array is writable
    if isinstance(dtype, np.dtype):
        return np.frombuffer(own, dtype).reshape(shape), body[size:]
    try:
        tensor = torch.frombuffer(own, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        return tensor.reshape(shape), body[size:]
    except RuntimeError:
        raise ValueError(f"a tensor of {dtype} and shape {shape} can't be created") from None


def _description(header: dict[str, Any], name: str) -> dict[str, Any]:
    about = header.get(name)
    if not isinstance(about, dict):
        raise ValueError(f"its header does not describe {name}")
    return about


def _shape(about: dict[str, Any]) -> list[int]:
    shape = _checked_list(about.get("shape"), "dimensions of an array")
    if len(shape) > MAX_DIMENSIONS or not all(is_whole(side, least=0) and side < 2**63 for side in shape):
        raise ValueError("the shape of an array is not a short list of whole numbers")
    return shape


def _dtype(about: dict[str, Any]) -> np.dtype[Any] | torch.dtype:
    """The type of an array by its name; only types that are stored as plain bytes are allowed."""
    name = about.get("tensor", about.get("array"))
    if not isinstance(name, str):
        raise ValueError("the type of an array is missing")
    if "tensor" in about:
        dtype = getattr(torch, name, None) if TENSOR_TYPE.fullmatch(name) else None
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"there are no tensors of {name[:20]!r}")
        return dtype
    try:
        return np.dtype(ARRAY_TYPE.fullmatch(name)[0])  # type: ignore[index]
    except TypeError:
        raise ValueError(f"an array of {name[:20]!r} can't be stored as plain bytes") from None


def _checked_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"its {what} are not a list")
    return value


# Labels


def _decoded_label(code: Any) -> Any:
    """Decode a label that `pack` could have written."""
    try:
        return _checked_label(decode_label(code))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("one of its labels can't be read") from None


def _checked_label(label: Any) -> Any:
    """The label, with numpy scalars converted; a ValueError unless it is of an allowed type."""
    if isinstance(label, np.generic):
        label = label.item()
    if type(label) is tuple:
        return tuple(_checked_label(part) for part in label)
    if type(label) not in LABEL_TYPES:
        raise ValueError(
            "a label is a str, int, float, bool, bytes, None or a tuple of these, "
            f"not {label!r} of type {type(label).__name__}"
        )
    return label
