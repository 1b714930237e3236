"""A seeded forger: takes a JSON value that a file holds, and changes something in it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 3, 2**31, 2**64, 10**30, 1e308, float("inf"), "", "a", "x" * 50, "uint8", "O", "i4,i4", "U0",
    "qint8", "Tensor", "<M8[s]", [], [1], [[]], [-1, 2], [2**62, 2**62, 0], [None], {}, {"float": "x"}, {"float": 3},
    {"tuple": 3}, {"tuple": [[1]]}, {"unknown": True}, {"bytes": "zz"}, {"a": 1, "b": 2}, {"labels": None},
    {"labels": [[1]]},
)  # fmt: skip


def forged(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one part of it removed, repeated, renamed or replaced by junk."""
    value = json.loads(json.dumps(value))
    *way, last = rng.choice([place for place in _places(value) if place])
    inside = value
    for step in way:
        inside = inside[step]
    chance = rng.random()
    if chance < 0.25:
        del inside[last]
    elif chance < 0.35 and isinstance(inside, list):
        inside.insert(last, inside[last])
    elif chance < 0.45 and isinstance(inside, dict):
        inside[f"{last}?"] = inside.pop(last)
    else:
        inside[last] = rng.choice(JUNK)
    return value


def _places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield way
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inside:
        yield from _places(part, (*way, step))
