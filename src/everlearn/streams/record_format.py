"""A batch as a header for JSON and raw bytes, and back: types, shapes and every label kept."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import torch

from everlearn.label_json import decode_label, encode_label
from everlearn.messages import is_whole

__all__ = ["pack", "rows", "unpack", "unpack_labels"]

RAW = "biufcSU"  # kinds of numpy types whose bytes are all there is to them
MOST_SIDES = 32
# Not torch's quantised types: making a tensor of one from bytes crashes the process.
TENSOR = re.compile(r"bool|u?int(8|16|32|64)|bfloat16|float(8_\w+|16|32|64)|complex(32|64|128)")
ARRAY = re.compile(rf"[<>|][{RAW}][1-9][0-9]{{0,8}}")  # how numpy names such a type
PLAIN = (str, int, float, bool, bytes, type(None))


def pack(kind: str, x: Any, y: Any, t: Any = None) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of a batch; a ValueError if something in it can't be kept.

    >>> pack("batch", np.zeros((2, 3), np.uint8), ["cat", 1.5], 0)[0]["y"]
    {'labels': ['cat', {'float': '0x1.8000000000000p+0'}]}
    """
    header: dict[str, Any] = {"kind": kind, "t": encode_label(_plain(t))}
    header["x"], samples = _pack_array(x if isinstance(x, torch.Tensor) else np.asarray(x))
    if isinstance(y, torch.Tensor) or (isinstance(y, np.ndarray) and y.dtype.kind in RAW):
        header["y"], labels = _pack_array(y)
        return header, samples + labels
    header["y"] = {"labels": [encode_label(_plain(label)) for label in y]}
    return header, samples


def unpack(header: dict[str, Any], body: bytes) -> tuple[Any, Any, Any]:
    """The batch that `pack` wrote, as x, y and t; labels that were no array are a list.

    A header that `pack` can't have written is a ValueError, whatever it claims, before memory is taken for it.

    >>> unpack(*pack("batch", np.ones((1, 2)), [None], 3))
    (array([[1., 1.]]), [None], 3)
    """
    about_x, about_y = _described(header, "x"), _described(header, "y")
    x, rest = _unpack_array(about_x, memoryview(body))
    if "labels" in about_y:
        y: Any = unpack_labels(about_y["labels"])
    else:
        y, rest = _unpack_array(about_y, rest)
    if len(rest):
        raise ValueError(f"{len(rest)} bytes are left over")
    return x, y, _label(header.get("t"))


def unpack_labels(codes: Any) -> list[Any]:
    """The labels of these codes, or a ValueError if one of them is not what `encode_label` writes."""
    return [_label(code) for code in _listed(codes, "labels")]


def rows(header: dict[str, Any]) -> int:
    """How many samples a batch has, by its header alone."""
    shape = _shape(_described(header, "x"))
    if not shape:
        raise ValueError("its x is a single number, not a batch of samples")
    return shape[0]


def _pack_array(array: Any) -> tuple[dict[str, Any], bytes]:
    shape = list(array.shape)
    if isinstance(array, torch.Tensor):
        if array.layout != torch.strided or not TENSOR.fullmatch(str(array.dtype).removeprefix("torch.")):
            raise ValueError(
                f"a tensor of {array.dtype}, {array.layout}, has no plain bytes; make it a dense one"
            )
        flat = array.detach().cpu().contiguous().flatten()
        name = str(array.dtype).removeprefix("torch.")
        return {"tensor": name, "shape": shape}, flat.view(torch.uint8).numpy().tobytes()
    if array.dtype.kind not in RAW:
        raise ValueError(f"an array of {array.dtype} has no plain bytes; make x an array of numbers")
    return {"array": array.dtype.str, "shape": shape}, array.tobytes()


def _unpack_array(about: dict[str, Any], body: memoryview) -> tuple[Any, memoryview]:
    """The array at the beginning of these bytes, and the bytes after it."""
    shape, kind = _shape(about), _kind(about)
    size = math.prod(shape) * kind.itemsize
    if size > len(body):
        raise ValueError(f"an array of {size} bytes is announced, and {len(body)} are there")
    own = bytearray(body[:size])  # its own bytes, which may be written to
    if isinstance(kind, np.dtype):
        return np.frombuffer(own, kind).reshape(shape), body[size:]
    try:
        tensor = torch.frombuffer(own, dtype=kind) if size else torch.empty(0, dtype=kind)
        return tensor.reshape(shape), body[size:]
    except RuntimeError:
        raise ValueError(f"a tensor of {kind} and shape {shape} can't be made") from None


def _described(header: dict[str, Any], name: str) -> dict[str, Any]:
    about = header.get(name)
    if not isinstance(about, dict):
        raise ValueError(f"it does not say what its {name} is")
    return about


def _shape(about: dict[str, Any]) -> list[int]:
    shape = _listed(about.get("shape"), "sides of an array")
    if len(shape) > MOST_SIDES or not all(is_whole(side, least=0) and side < 2**63 for side in shape):
        raise ValueError("the shape of an array is not a list of a few whole numbers")
    return shape


def _kind(about: dict[str, Any]) -> np.dtype[Any] | torch.dtype:
    """The type of an array by its name; only types whose bytes are all there is to them."""
    name = about.get("tensor", about.get("array"))
    if not isinstance(name, str):
        raise ValueError("the type of an array is not named")
    if "tensor" in about:
        kind = getattr(torch, name, None) if TENSOR.fullmatch(name) else None
        if not isinstance(kind, torch.dtype):
            raise ValueError(f"there are no tensors of {name[:20]!r}")
        return kind
    try:
        return np.dtype(ARRAY.fullmatch(name)[0])  # type: ignore[index]
    except TypeError:
        raise ValueError(f"an array of {name[:20]!r} has no plain bytes") from None


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"its {what} are not a list")
    return value


def _label(code: Any) -> Any:
    """The label of this code, if `pack` can have written it."""
    try:
        return _plain(decode_label(code))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("a label of it can't be read") from None


def _plain(label: Any) -> Any:
    """The label, if it is one that everlearn allows."""
    if isinstance(label, np.generic):
        label = label.item()
    if type(label) is tuple:
        return tuple(_plain(part) for part in label)
    if type(label) not in PLAIN:
        raise ValueError(
            "a label is a str, int, float, bool, bytes, None or a tuple of these, "
            f"not {label!r} of type {type(label).__name__}"
        )
    return label
