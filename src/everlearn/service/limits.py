"""Limits of a service: what a request may hold, and how much may wait."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Limits"]


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may hold, and how much may wait; beyond it, requests are refused."""

    body: int = 32 * 2**20
    """bytes in the body of a request"""
    batch: int = 10_000
    """samples in a request"""
    sample: int = 10_000_000
    """values in a sample, or characters of a text"""
    classes: int = 10_000
    """classes that a model may have"""
    label: int = 1000
    """characters of a label or an id"""
    queue: int = 256
    """changes that wait for a model; beyond it, the answer is 429 with Retry-After"""
    predictions: int = 64
    """predictions at the same time; beyond it, the answer is 429 with Retry-After"""
    dashboards: int = 50
    """open connections for events"""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")


def size_of(label: Any) -> int:
    """The length of a label or id, as a limit counts it.

    >>> size_of("word"), size_of(("a", "bc")), size_of(7)
    (4, 3, 1)
    """
    if isinstance(label, (str, bytes)):
        return len(label)
    if isinstance(label, tuple):
        return sum(map(size_of, label))
    return 1


def is_longer(code: Any, most: int) -> bool:
    """Whether a label or id, as it is in JSON, is longer than a limit by far; it counts no further than that.

    >>> is_longer("word", 4), is_longer(["a", ["b", "c"]], 1), is_longer({"bytes": "ff00"}, 2)
    (False, True, False)
    """
    parts, size, far = [code], 0, 3 * most  # bytes have two characters each, and lists count, too
    while parts and size <= far:
        part = parts.pop()
        size += max(len(part), 1) if isinstance(part, str) else 1
        if isinstance(part, (list, dict)):
            parts.extend(part.values() if isinstance(part, dict) else part)
    return size > far
