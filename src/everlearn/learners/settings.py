"""What every learner can be told."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from types import NoneType
from typing import Any, get_args, get_type_hints

from everlearn.memory.labels import shortened

__all__ = ["Settings"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every learner can be told."""

    learning_rate: float = 0.01
    """step size of plain SGD"""
    iterations: int = 1
    """gradient steps per batch, each with fresh replay"""
    hidden: int = 400
    """units in each hidden layer, where the network is the MLP"""
    unknown: float | None = None
    """share of its own samples it may lose by answering "none of these" to what is too unlike; None never does"""
    waiting: int = 1000
    """samples that `ask` keeps until their labels are told; the oldest go first"""
    clip: float | None = None
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""
    threads: int = 1
    """threads that it computes with, whatever the process has; more than one pays for large networks"""

    def __post_init__(self) -> None:
        for name, kinds in _kinds(type(self)).items():  # type: ignore[arg-type]
            value = _of_kind(name, getattr(self, name), kinds)
            object.__setattr__(self, name, value)
            if isinstance(value, float):
                self._check(name, abs(value) <= LARGEST_FLOAT, "a finite number, at most 1e30")
            elif isinstance(value, int):
                self._check(name, abs(value) <= LARGEST, f"at most {LARGEST:,}")
        self._check("learning_rate", self.learning_rate > 0, "above 0")
        self._check("iterations", self.iterations >= 1, "at least 1")
        self._check("hidden", self.hidden >= 1, "at least 1")
        self._check(
            "unknown", self.unknown is None or 0 <= self.unknown < 1, "None, or at least 0 and below 1"
        )
        self._check("waiting", self.waiting >= 1, "at least 1")
        self._check("clip", self.clip is None or self.clip > 0, "None, or above 0")
        self._check("threads", 1 <= self.threads <= MOST_THREADS, f"between 1 and {MOST_THREADS}")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {expected}, not {shortened(getattr(self, name))}")


# No setting counts more than this: it would only be found out when memory has run out.
LARGEST = 2**31
LARGEST_FLOAT = 1e30
MOST_THREADS = 1024

# What a setting may be, in words, and of numpy's numbers which are meant.
WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a word", NoneType: "None"}
ABSTRACT = {int: numbers.Integral, float: numbers.Real}


@functools.cache
def _kinds(settings: type[Settings]) -> dict[str, tuple[type, ...]]:
    """Of which kinds each setting may be, where its hint is made of plain kinds."""
    hints = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(settings).items()}
    return {name: kinds for name, kinds in hints.items() if set(kinds) <= set(WORDS)}


def _of_kind(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    """The value as one of these kinds, or a sentence; a function of the user's may stand for a word."""
    for kind in kinds:
        is_bool = isinstance(value, bool)
        if is_bool == (kind is bool) and isinstance(value, ABSTRACT.get(kind, kind)):
            try:
                return value if kind is NoneType else kind(value)
            except OverflowError:
                raise ValueError(f"{name} must be a number that a float can hold") from None
    if str in kinds and callable(value):
        return value
    expected = " or ".join(WORDS[kind] for kind in kinds)
    raise ValueError(f"{name} must be {expected}, not {shortened(value)}")
