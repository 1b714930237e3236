"""Labels as JSON and back, with their types kept: what checkpoints and recorded streams write."""

from __future__ import annotations

from typing import Any

__all__ = ["Label", "decode_label", "encode_label"]

Label = str | int | float | bool | bytes | tuple[Any, ...] | None


def encode_label(label: Label) -> Any:
    """A label as JSON, with its type kept.

    >>> encode_label(("left", 0.5))
    {'tuple': ['left', {'float': '0x1.0000000000000p-1'}]}
    """
    if type(label) is float:
        return {"float": label.hex()}
    if type(label) is bytes:
        return {"bytes": label.hex()}
    if type(label) is tuple:
        return {"tuple": [encode_label(part) for part in label]}
    return label


def decode_label(code: Any) -> Label:
    """The label that `encode_label` wrote.

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
    return tuple(decode_label(part) for part in value)
