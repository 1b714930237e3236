"""The options of a run, as one value."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, Literal

from everlearn.engine.clock import Clock
from everlearn.evaluation.evaluator import Evaluator
from everlearn.messages import is_whole
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm

__all__ = ["Progress", "RunOptions"]

Progress = Callable[[int], None]

# The options that people give as a plain word or number, and how they are written.
KINDS: dict[str, tuple[type, str]] = {
    "evaluator": (Evaluator, "Evaluator(every=50)"),
    "horizon": (Horizon, 'Horizon("task", epochs=5)'),
    "clock": (Clock, "Clock(cost=2.5)"),
}


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run a learner on a stream; the fields are the keyword arguments of `run`.

    >>> RunOptions(samples=0)
    Traceback (most recent call last):
    ValueError: samples must be at least 1, or None for the whole stream, not 0
    """

    evaluator: Evaluator | None = None
    horizon: Horizon | None = None
    paradigm: str | Paradigm | None = None
    infer: Literal["novelty"] | None = None
    clock: Clock | None = None
    detector: Any = None
    act: bool = False
    samples: int | None = None
    progress: Progress | None = None
    checkpoint: str | os.PathLike[str] | None = None
    track: Any = None

    def __post_init__(self) -> None:
        for name, (kind, example) in KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name} is a value such as {example}, not {value!r}")
        if self.samples is not None and not is_whole(self.samples, least=1):
            raise ValueError(
                f"samples must be at least 1, or None for the whole stream, not {self.samples!r}"
            )
