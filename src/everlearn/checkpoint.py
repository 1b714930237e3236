"""Write a flat state (name → tensor, and one JSON string "meta") to a safetensors file and read it back.

No pickle, so a file holds numbers and can't run code. A file is replaced atomically, read through one open file, and
protected by a checksum. Nothing is allocated before the header is known to match the size of the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import torch

from everlearn.atomic_write import replace_file

__all__ = ["CheckpointError", "State", "read", "write"]

ENTRY = "everlearn"
# The largest header that safetensors accepts.
LARGEST_HEADER = 100_000_000
# The types of tensors by their names in a file.
TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "C64": torch.complex64,
}

State = dict[str, Any]
"""Tensors by name, and under "meta" a JSON string."""


class CheckpointError(ValueError):
    """A file or state that can't be loaded; nothing was changed."""


class _Invalid(Exception):
    """Why a file is not valid."""


def write(state: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state to one file, atomically."""
    from safetensors.torch import save

    tensors = {name: part.detach().cpu().contiguous() for name, part in state.items() if name != "meta"}
    for name, part in tensors.items():
        if part.dtype not in TYPES.values():
            raise CheckpointError(f"{name} is of type {part.dtype}, which a checkpoint can't hold")
    meta = str(state["meta"])
    # One entry, since safetensors writes several in any order: equal states make equal files.
    content = save(tensors, {ENTRY: json.dumps({"checksum": _checksum(tensors, meta), "meta": meta})})
    if int.from_bytes(content[:8], "little") > LARGEST_HEADER:
        raise CheckpointError(
            f"the labels, ids and settings of this state take more than {LARGEST_HEADER:,} bytes, which is the "
            "most a checkpoint can hold"
        )
    try:
        replace_file(path, content)
    except OSError as error:  # which may name a temporary file
        raise OSError(error.errno, f"can't be written ({error.strerror or error})", os.fspath(path)) from None


def read(path: str | os.PathLike[str]) -> State:
    """Read the state in a file, or raise a CheckpointError that says why it can't be read."""
    if Path(path).is_dir():
        inside = sorted(each.name for each in Path(path).glob("*.safetensors"))
        such = f", such as {inside[0]}" if inside else ""
        raise CheckpointError(f"{os.fspath(path)} is a folder: give a file in it{such}")
    if not Path(path).is_file():
        raise CheckpointError(f"there is no checkpoint at {os.fspath(path)}")
    try:
        # One open file, so that all of it is from one write, even if another file is renamed over it meanwhile.
        with FileIO(os.fspath(path)) as file:
            header = _read_header(file)
            metadata = header.pop("__metadata__", {})
            _check_sizes(header, os.fstat(file.fileno()).st_size - file.tell())
            entry = _read_entry(metadata)
            tensors = {name: _read_tensor(file, header[name]) for name in _in_order(header)}
    except _Invalid as error:
        raise CheckpointError(f"{os.fspath(path)} is not a valid checkpoint: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)} can't be read: {error.strerror or error}") from None
    if entry is None:
        raise CheckpointError(f"{os.fspath(path)} is a safetensors file, but not one that everlearn wrote")
    if _checksum(tensors, entry["meta"]) != entry["checksum"]:
        raise CheckpointError(f"{os.fspath(path)} was altered after it was written: its checksum differs")
    return {**tensors, "meta": entry["meta"]}


def _read_header(file: FileIO) -> dict[str, Any]:
    """Read the JSON object at the beginning of the file."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(_read_bytes(file, 8), "little")
    if length > max(size, LARGEST_HEADER):  # text, for example
        raise _Invalid("it does not begin with the size of its header, as a safetensors file does")
    if length > size - 8:
        raise _Invalid(f"its header should have {length:,} bytes, but the file ends after {size:,}")
    if length > LARGEST_HEADER:
        raise _Invalid(f"its header has {length:,} bytes, and at most {LARGEST_HEADER:,} are allowed")
    try:
        header = json.loads(_read_bytes(file, length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"its header can't be read ({error})") from None
    if not isinstance(header, dict):
        raise _Invalid("its header is not a JSON object")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found


def _in_order(header: Mapping[str, Any]) -> list[str]:
    """The names of the tensors in the order of their bytes."""
    return sorted(header, key=lambda name: tuple(header[name]["data_offsets"]))


def _check_sizes(header: Mapping[str, Any], size: int) -> None:
    """Refuse a header unless its tensors fill all of these bytes, one after the other, without gaps or overlaps."""
    for name, part in header.items():
        if not isinstance(part, dict) or part.keys() != {"dtype", "shape", "data_offsets"}:
            raise _Invalid(f"its header does not describe the tensor {name[:100]!r}")
        kind, shape, offsets = part["dtype"], part["shape"], part["data_offsets"]
        known = isinstance(kind, str) and kind in TYPES
        if not (known and _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
            raise _Invalid(f"its header does not describe the tensor {name[:100]!r}")
    end = 0
    for name in _in_order(header):
        part = header[name]
        begin, stop = part["data_offsets"]
        # Without the zeros, so that no shape has more elements than a tensor can count.
        items, volume = 0 if 0 in part["shape"] else 1, 1
        for count in part["shape"]:
            volume *= count or 1
            if volume >= 2**63:
                raise _Invalid(f"the tensor {name[:100]!r} is larger than any tensor can be")
        if begin != end or stop - begin != items * volume * TYPES[part["dtype"]].itemsize:
            raise _Invalid(f"the bytes of the tensor {name[:100]!r} are not where its header says")
        end = stop
    if end != size:
        raise _Invalid(f"its tensors should have {end:,} bytes, but {size:,} follow the header")


def _are_counts(values: object) -> bool:
    """Whether these are integers from zero on, and few enough to be a shape."""
    return (
        isinstance(values, list)
        and len(values) <= 64
        and all(type(value) is int and value >= 0 for value in values)
    )


def _read_entry(metadata: object) -> dict[str, str] | None:
    """What everlearn wrote into the header: the checksum and "meta"; None if another program wrote the file."""
    if not isinstance(metadata, dict) or not isinstance(metadata.get(ENTRY, ""), str):
        raise _Invalid("its metadata are not strings")
    try:
        entry = json.loads(metadata.get(ENTRY, "null"))
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"its metadata can't be read ({error})") from None
    if not isinstance(entry, dict):
        return None
    if not isinstance(entry.get("meta"), str) or not isinstance(entry.get("checksum"), str):
        return None
    return entry


def _read_tensor(file: FileIO, part: Mapping[str, Any]) -> torch.Tensor:
    """Read the next bytes of the file into a new tensor, which owns its memory."""
    begin, end = part["data_offsets"]
    try:
        raw = torch.empty(end - begin, dtype=torch.uint8)
    except (RuntimeError, MemoryError):
        raise _Invalid(f"there is not enough memory for a tensor of {end - begin:,} bytes") from None
    _read_into(file, memoryview(raw.numpy()))  # type: ignore[arg-type]
    return raw.view(TYPES[part["dtype"]]).reshape(part["shape"])


def _read_bytes(file: FileIO, count: int) -> bytearray:
    content = bytearray(count)
    _read_into(file, memoryview(content))
    return content


def _read_into(file: FileIO, place: memoryview) -> None:
    while len(place):
        count = file.readinto(place)
        if not count:
            raise _Invalid("it is truncated")
        place = place[count:]


def _checksum(tensors: Mapping[str, torch.Tensor], meta: str) -> str:
    digest = hashlib.sha256(meta.encode(errors="surrogatepass"))
    for name in sorted(tensors):
        part = tensors[name]
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}".encode(errors="surrogatepass"))
        if part.numel():  # an empty tensor may have strides that can't be viewed as bytes
            digest.update(part.flatten().view(torch.uint8).numpy())  # type: ignore[arg-type]
    return digest.hexdigest()
