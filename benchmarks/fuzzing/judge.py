"""One call at a time: whether it is accepted or refused, and the state afterwards."""

from __future__ import annotations

import collections
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from fuzzing.verdicts import digest, is_clear, not_finite, where

__all__ = ["Judge", "too_slow"]

SECONDS = 60  # the longest that a call may take


class TooSlow(BaseException):
    """An attack kept the learner busy for too long."""


def too_slow(number: int, frame: FrameType | None) -> None:
    """The handler of the alarm."""
    raise TooSlow


class Judge:
    """Makes calls of one learner, and counts the outcomes.

    drop: what to do with a learner whose state is broken.
    """

    def __init__(self, drop: Callable[[Any], None]) -> None:
        self.drop = drop
        self.counts: collections.Counter[str] = collections.Counter()
        self.findings: dict[str, tuple[int, str]] = {}

    def accepts(self, what: str, learner: Any, call: Callable[[], Any]) -> bool:
        """Make a call; whether it was accepted, and left a valid state."""
        before = digest(learner)
        self.counts["tried"] += 1
        signal.alarm(SECONDS)
        try:
            call()
            learner.settle()  # else a GPU would report a refused batch at the next call
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            signal.alarm(0)
            self.refused(what, error)
            self._compare(what, learner, before, error)
            return False
        finally:
            signal.alarm(0)
        self.counts["accepted"] += 1
        return self.is_finite(what, learner)

    def refused(self, what: str, error: BaseException) -> None:
        """Count an error as a refusal, or as a raw one."""
        if is_clear(error):
            self.counts["refused"] += 1
        else:
            self.counts["raw"] += 1
            self.note(f"{type(error).__name__} at {where(error)}", f"{what}: {str(error)[:200]}")

    def _compare(self, what: str, learner: Any, before: bytes, error: BaseException) -> None:
        try:
            same = digest(learner) == before
        except Exception as problem:
            same = False
            self.note(f"state_dict fails: {type(problem).__name__} at {where(problem)}", what)
        if not same:
            self.counts["changed"] += 1
            self.note(
                f"CHANGED after {type(error).__name__} at {where(error)}", f"{what}: {str(error)[:120]}"
            )
            self.drop(learner)

    def is_finite(self, what: str, learner: Any) -> bool:
        """Whether a state can be read, and holds numbers alone."""
        try:
            parts = not_finite(learner)
        except Exception as problem:
            self.counts["raw"] += 1
            self.note(f"state_dict fails: {type(problem).__name__} at {where(problem)}", what)
            self.drop(learner)
            return False
        if parts:
            self.counts["nan"] += 1
            self.note(f"NaN in {', '.join(sorted({part.split('.')[0] for part in parts}))}", what)
            self.drop(learner)
        return not parts

    def note(self, key: str, example: str) -> None:
        """Something that must not happen, and an example of it."""
        count, first = self.findings.get(key, (0, example))
        self.findings[key] = count + 1, first
