"""Encode labels as JSON with their types, for checkpoints and recorded streams."""

from __future__ import annotations

import enum
from typing import Any

__all__ = ["UNKNOWN", "Label", "Unknown", "decode_label", "encode_label"]


class Unknown(enum.Enum):
    """The answer of a learner for a sample that is unlike all classes; see the setting `unknown`."""

    UNKNOWN = "none of these"

    def __repr__(self) -> str:
        return self.name


UNKNOWN = Unknown.UNKNOWN
"""The prediction "none of these". It is not `None`, because `None` can be a label."""

Label = str | int | float | bool | bytes | tuple[Any, ...] | Unknown | None


def encode_label(label: Label) -> Any:
    """Encode a label as JSON with its type.

    >>> encode_label(("left", 0.5))
    {'tuple': ['left', {'float': '0x1.0000000000000p-1'}]}
    """
    if type(label) is float:
        return {"float": label.hex()}
    if type(label) is bytes:
        return {"bytes": label.hex()}
    if type(label) is tuple:
        return {"tuple": [encode_label(part) for part in label]}
    if label is UNKNOWN:
        return {"unknown": True}
    return label


def decode_label(code: Any) -> Label:
    """Decode a label that `encode_label` encoded.

    >>> decode_label({"bytes": "ff00"})
    b'\\xff\\x00'
    """
    if not isinstance(code, dict):
        return code  # type: ignore[no-any-return]
    ((kind, value),) = code.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "unknown":
        return UNKNOWN
    return tuple(decode_label(part) for part in value)
