"""A batch as a header for JSON and raw bytes, and back: types, shapes and every label kept."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from everlearn.labelcode import decode_label, encode_label

__all__ = ["pack", "unpack"]

RAW = "biufcSU"  # kinds of numpy types whose bytes are all there is to them
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

    >>> unpack(*pack("batch", np.ones((1, 2)), [None], 3))
    (array([[1., 1.]]), [None], 3)
    """
    rest = memoryview(body)
    x, rest = _unpack_array(header["x"], rest)
    if "labels" in header["y"]:
        y: Any = [decode_label(code) for code in header["y"]["labels"]]
    else:
        y, rest = _unpack_array(header["y"], rest)
    if len(rest):
        raise ValueError(f"{len(rest)} bytes are left over")
    return x, y, decode_label(header["t"])


def _pack_array(array: Any) -> tuple[dict[str, Any], bytes]:
    shape = list(array.shape)
    if isinstance(array, torch.Tensor):
        flat = array.detach().cpu().contiguous().flatten()
        name = str(array.dtype).removeprefix("torch.")
        return {"tensor": name, "shape": shape}, flat.view(torch.uint8).numpy().tobytes()
    if array.dtype.kind not in RAW:
        raise ValueError(f"an array of {array.dtype} has no plain bytes; make x an array of numbers")
    return {"array": array.dtype.str, "shape": shape}, array.tobytes()


def _unpack_array(about: dict[str, Any], body: memoryview) -> tuple[Any, memoryview]:
    """The array at the beginning of these bytes, and the bytes after it."""
    count = math.prod(about["shape"])
    if "tensor" in about:
        dtype = getattr(torch, about["tensor"])
        size = count * dtype.itemsize
        own = bytearray(body[:size])  # its own bytes, which may be written to
        array = torch.frombuffer(own, dtype=dtype) if size else torch.empty(0, dtype=dtype)
        return array.reshape(about["shape"]), body[size:]
    kind = np.dtype(about["array"])
    size = count * kind.itemsize
    return np.frombuffer(bytearray(body[:size]), kind).reshape(about["shape"]), body[size:]


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
