"""Points at which a call is interrupted, and by what."""

from __future__ import annotations

import dataclasses
import dis
import functools
import itertools
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

import everlearn
from interrupting.calls import CALLS, at_start, can_call, done, users_calls
from interrupting.subjects import TROUBLE, USERS_CODE, VARIANTS, has_variant

__all__ = [
    "KINDS",
    "TRACED",
    "Point",
    "Tracer",
    "ctrl_c",
    "every_point",
    "places",
    "points",
    "refuse",
    "variants",
]

PACKAGE = str(Path(everlearn.__file__).parent) + os.sep


class Tracer:
    """Counts the events in the frames of the package and of the user's code, and raises at one of them."""

    def __init__(self, kind: str, at: int = 0, error: Callable[[], object] = lambda: None) -> None:
        self.kind, self.at, self.error = kind, at, error
        self.places: list[tuple[str, int]] = []  # of each event so far
        self._ours: dict[CodeType, bool] = {}

    def __enter__(self) -> Tracer:
        self._before = sys.gettrace()
        if self.kind:
            sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code not in self._ours:
            self._ours[code] = code.co_filename.startswith(PACKAGE) or code in USERS_CODE
        if not self._ours[code]:
            return None
        frame.f_trace_opcodes = self.kind == "opcode"
        return self._event

    def _event(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == self.kind and frame.f_lasti not in _leaving(frame.f_code):
            place = frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_lineno
            self.places.append(place)
            if len(self.places) == self.at:
                self.error()
        return self._event


@functools.cache
def _leaving(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions that leave a `with` block.

    CPython delivers no exception between the end of the block and the call of `__exit__`. A trace function can, which
    would show locks as leaked that never are.
    """
    steps = list(dis.get_instructions(code))
    found: set[int] = set()
    for i in range(len(steps) - 3):
        if all(step.opname == "LOAD_CONST" and step.argval is None for step in steps[i : i + 3]):
            end = i + 3
            while steps[end].opname in ("PRECALL", "CALL") and end + 1 < len(steps):
                end += 1
            if end > i + 3:
                first = i
                while first and steps[first - 1].opname in ("SWAP", "NOP"):
                    first -= 1
                found |= {step.offset for step in steps[first:end]}
    return frozenset(found)


TRACED = ("line", "opcode")
FAILING = {"forward": "own network", "backward": "own network", "augmentation": "additions"}
KINDS = (*TRACED, *FAILING)


def places(name: str, variant: str, call: str, kind: str = "line") -> list[tuple[str, int]]:
    """Where the events of one clean call are."""
    if kind not in TRACED:
        return [(kind, i) for i in range(1, users_calls(name, variant, call, kind) + 1)]
    done(name, variant, call)  # so that whatever loads when it is first used is there
    learner = at_start(name, variant, call)
    TROUBLE.expect()
    with Tracer(kind) as tracer:
        CALLS[call](learner)
    return tracer.places


def sampled(events: list[tuple[str, int]], count: int | None, seed: str) -> list[int]:
    """Which events to raise at, counted from 1: the first of every place, a sample of them, or all (`count` 0)."""
    if count == 0:
        return list(range(1, len(events) + 1))
    firsts = sorted({place: i for i, place in reversed(list(enumerate(events, 1)))}.values())
    if count is None:
        return firsts
    chance = random.Random(seed)
    some = [firsts[int((i + chance.random()) * len(firsts) / count)] for i in range(count)]
    return sorted({*some, chance.randint(1, len(events))})


def ctrl_c() -> None:
    """The user interrupts."""
    raise KeyboardInterrupt


def out_of_memory() -> None:
    """Python finds no memory."""
    raise MemoryError("no memory is left")


def refuse() -> None:
    """The user's code does not like what it is given."""
    raise RuntimeError("refused")


def allocate() -> None:
    """An allocation that really fails."""
    torch.empty(2**60)


ERRORS = {kind: (ctrl_c, out_of_memory) if kind in TRACED else (refuse, allocate, ctrl_c) for kind in KINDS}


@dataclasses.dataclass(frozen=True)
class Point:
    """One interruption: before the n-th event of this kind in a call, counted from 1."""

    learner: str
    variant: str
    call: str
    kind: str
    event: int

    @property
    def error(self) -> Callable[[], object]:
        """What raises there."""
        errors = ERRORS[self.kind]
        return errors[self.event % len(errors)]


def variants(name: str, call: str, kind: str) -> list[str]:
    """The variants of a learner in which there may be such a point in a call."""
    if not can_call(name, call):
        return []
    return [
        variant
        for variant in VARIANTS
        if has_variant(name, variant) and FAILING.get(kind, variant) == variant
    ]


def points(name: str, variant: str, call: str, kind: str, count: int | None) -> list[Point]:
    """Points in a call."""
    events = places(name, variant, call, kind)
    chosen = sampled(events, count, f"{name} {variant} {call} {kind}") if events else []
    return [Point(name, variant, call, kind, event) for event in chosen]


def every_point(names: list[str], calls: list[str], kinds: list[str], count: int | None) -> Iterator[Point]:
    """Points of these kinds in these calls of these learners, in every variant."""
    for name, call, kind in itertools.product(names, calls, kinds):
        for variant in variants(name, call, kind):
            yield from points(name, variant, call, kind, count)
