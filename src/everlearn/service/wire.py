"""How labels, ids and samples travel over HTTP: JSON, npy and safetensors. No pickle anywhere."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.label_json import UNKNOWN, Label
from everlearn.messages import nearest
from everlearn.service.json_text import read_json
from everlearn.service.limits import Limits, is_longer

__all__ = [
    "JSON",
    "NPY",
    "SAFETENSORS",
    "WireError",
    "as_samples",
    "decode",
    "decode_labels",
    "encode_arrays",
    "encode_labels",
    "samples_in",
    "wrong_size",
]

JSON, NPY, SAFETENSORS = "application/json", "application/x-npy", "application/x-safetensors"
KINDS = "biuf"  # numpy's kinds of types that samples may have
LARGEST_HEADER = 10_000  # of an npy file
LONGEST_NAME = 60  # characters of a field's name in a message
DEEPEST = 8
NO_SAMPLES = (
    "x must be samples of one shape, as nested lists of numbers; objects with the names of columns; or texts"
)
# The types of safetensors that numpy has.
TYPES = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "U16": "<u2",
    "U32": "<u4",
    "U64": "<u8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


class WireError(ValueError):
    """A body that can't be read; the message is for the caller."""


def encode_labels(labels: Iterable[Label]) -> list[Any]:
    """Labels as JSON: strings, numbers, booleans and null as they are, a tuple as a list, other types as an object.

    >>> encode_labels(["cat", 3, ("left", 2), b"\\xff", UNKNOWN])
    ['cat', 3, ['left', 2], {'bytes': 'ff'}, {'unknown': True}]
    """
    return [_encode(label) for label in labels]


def _encode(label: Label) -> Any:
    if isinstance(label, tuple):
        return [_encode(part) for part in label]
    if isinstance(label, bytes):
        return {"bytes": label.hex()}
    if isinstance(label, float) and not math.isfinite(label):
        return {"float": label.hex()}
    return {"unknown": True} if label is UNKNOWN else label


def decode_labels(codes: Any, what: str = "labels", longest: int | None = None) -> list[Label]:
    """The labels that `encode_labels` encoded. longest: characters that a label may have.

    >>> decode_labels(["cat", ["left", 2], {"bytes": "ff"}])
    ['cat', ('left', 2), b'\\xff']
    """
    if not isinstance(codes, list):
        raise WireError(f"{what} must be a list, not {_named(codes)}")
    if longest is not None and any(is_longer(code, longest) for code in codes):
        raise WireError(f"{what} has an entry of more than {longest:,} characters")
    return [_decode(code, what, 0) for code in codes]


def _decode(code: Any, what: str, depth: int) -> Label:
    if isinstance(code, list) and depth < DEEPEST:
        return tuple(_decode(part, what, depth + 1) for part in code)
    if isinstance(code, dict):
        try:
            ((kind, value),) = code.items()
            if kind == "bytes":
                return bytes.fromhex(value)
            if kind == "float":
                return float.fromhex(value)
            if kind == "unknown" and value is True:
                return UNKNOWN
        except (ValueError, TypeError, OverflowError):
            pass
    elif code in (math.inf, -math.inf):
        raise WireError(f'{what} has a number beyond those of 64 bits; an infinite one is {{"float": "inf"}}')
    elif not isinstance(code, list):
        return code  # type: ignore[no-any-return]
    shown = "".join(islice(json.JSONEncoder().iterencode(code), 80))[:80]
    raise WireError(f"{what} has {shown}, which is not a label")


def decode(
    content: bytes,
    kind: str,
    query: dict[str, str],
    known: Collection[str] | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """The fields of a body: a JSON object; a safetensors file; or an npy file, which is `x`.

    The other fields of an npy body are in the query, as JSON; those of safetensors are in its metadata or tensors.
    `x` is an array; a table if its columns have names; or a list of texts.
    known: the names that fields may have. limits: what is larger is refused before it is converted.
    """
    limits = limits or Limits()
    if kind == JSON:
        fields = _from_json(content, known)
    else:
        _check_names(query, known)
        fields = {name: _json(value, f"the query parameter {name}") for name, value in query.items()}
        held = {"x": _from_npy(content)} if kind == NPY else _from_safetensors(content, known, limits)
        fields = _together(fields, held)
    if "x" in fields:
        x = fields["x"]
        if isinstance(x, list) and len(x) > limits.batch:
            raise WireError(wrong_size(f"{len(x):,} samples", limits.batch))
        fields["x"] = samples_in(x, fields.get("columns"), fields.get("categories"))
    return fields


def wrong_size(size: str, most: int) -> str:
    """The message about samples that are too many, or none."""
    return f"x has {size}; a request takes 1 to {most:,} samples"


def _together(fields: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """The fields of two parts of a request; raises an error for one that is in both."""
    for name in others:
        if name in fields:
            raise WireError(f"the field {name!r} is given twice")
    return fields | others


def _check_names(names: Iterable[str], known: Collection[str] | None) -> None:
    """Raise an error for a field that the operation does not have."""
    for name in names:
        if known is not None and name not in known:
            shown = name[:LONGEST_NAME]
            raise WireError(f"there is no field {shown!r}{nearest(shown, known)}")


def samples_in(x: Any, columns: Any = None, categories: Any = None) -> Any:
    """Samples as an array; as a table if they are objects or there are names of columns; texts as they are."""
    if columns is not None or (isinstance(x, list) and x and isinstance(x[0], dict)):
        from everlearn.service.tables import read_table

        return read_table(x, columns, categories)
    if categories is not None:
        raise WireError("categories belongs to columns: give their names, too")
    if isinstance(x, list) and x and all(isinstance(each, str) for each in x):
        return x
    if not isinstance(x, np.ndarray):
        try:
            x = _array(x)
        except (ValueError, OverflowError, TypeError):
            raise WireError(NO_SAMPLES) from None
    _check_kind(x)
    return x


def _array(x: Any) -> NDArray[Any]:
    """Samples in lists as an array; one by one, so that other threads have their turn."""
    if isinstance(x, list) and x and isinstance(x[0], list):
        return np.stack([np.asarray(sample) for sample in x])
    return np.asarray(x)


def _json(text: str | bytes, what: str) -> Any:
    try:
        return read_json(text)
    except (ValueError, RecursionError) as error:
        raise WireError(f"{what} is not valid JSON: {error}") from None


def _from_json(content: bytes, known: Collection[str] | None) -> dict[str, Any]:
    fields = _json(content, "the body")
    if not isinstance(fields, dict):
        raise WireError(f"the body must be a JSON object, not {_named(fields)}")
    _check_names(fields, known)
    return fields


def _check_kind(x: NDArray[Any]) -> None:
    if x.dtype.kind not in KINDS:
        has_null = x.dtype.kind == "O" and any(value is None for value in x.flat)
        raise WireError("x has a null: fill it in, or leave the sample out" if has_null else NO_SAMPLES)


def as_samples(x: NDArray[Any], takes_bytes: bool) -> NDArray[Any]:
    """Samples that came as JSON, in the type that a learner takes. takes_bytes: whether that is uint8.

    >>> as_samples(np.array([[0, 255]]), takes_bytes=True).dtype, as_samples(np.array([[0.5]]), False).dtype
    (dtype('uint8'), dtype('float32'))
    """
    _check_kind(x)
    if takes_bytes and x.dtype.kind in "iu":
        if x.size and not 0 <= int(x.min()) <= int(x.max()) <= 255:
            raise WireError("this model takes bytes: x must be between 0 and 255")
        return x.astype(np.uint8)
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def _from_npy(content: bytes) -> NDArray[Any]:
    """An array; the sizes in the header must match the size of the body."""
    file = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(file, max_header_size=LARGEST_HEADER)
    except (ValueError, KeyError, TypeError, SyntaxError, RecursionError, MemoryError, EOFError):
        raise WireError("the body is not a valid npy file of version 1 or 2") from None
    if dtype.kind not in KINDS or dtype.hasobject:
        raise WireError(f"an npy body holds numbers, not {dtype}")
    values = _view(content, file.tell(), dtype, shape)
    return values.reshape(shape, order="F" if fortran else "C")


def _view(content: bytes, start: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    size = math.prod(shape) * dtype.itemsize
    if any(side < 0 for side in shape) or size != len(content) - start:
        raise WireError(
            f"the array {list(shape)} of {dtype} does not have the {len(content) - start} bytes given"
        )
    return np.frombuffer(content, dtype, offset=start)


def _from_safetensors(content: bytes, known: Collection[str] | None, limits: Limits) -> dict[str, Any]:
    """All tensors, and the fields in the metadata, each as JSON; the header is checked before tensors are read."""
    from safetensors import SafetensorError, deserialize

    try:
        length = int.from_bytes(content[:8], "little")
        header = read_json(content[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        _check_names([*metadata, *header], known)
        tensors = dict(deserialize(content))  # type: ignore[no-untyped-call]
    except WireError:
        raise
    except (SafetensorError, ValueError, RecursionError, AttributeError, TypeError):
        raise WireError("the body is not a valid safetensors file") from None
    fields: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if tensor["dtype"] not in TYPES:
            raise WireError(f"{name} is of type {tensor['dtype']}; possible are {', '.join(TYPES)}")
        values = np.frombuffer(tensor["data"], TYPES[tensor["dtype"]]).reshape(tensor["shape"])
        if name != "x" and values.size > limits.batch:
            raise WireError(f"{name} has {values.size:,} entries, above {limits.batch:,}")
        fields[name] = values if name == "x" else values.tolist()
    return _together({name: _json(text, f"the metadata {name}") for name, text in metadata.items()}, fields)


def encode_arrays(x: NDArray[Any], fields: dict[str, Any]) -> bytes:
    """A safetensors body with samples and other fields."""
    from safetensors.numpy import save

    metadata = {name: json.dumps(value) for name, value in fields.items()}
    return save({"x": np.ascontiguousarray(x)}, metadata)


def _named(value: Any) -> str:
    """A JSON value's type in JSON's words."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
