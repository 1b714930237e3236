"""Predictions of a live learner: from the learner itself where nobody changes it, else from a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everlearn.live.published import LiveSnapshot, Publisher
from everlearn.live.writer import Writer

__all__ = ["PATIENCE", "Reader"]

PATIENCE = 60.0  # seconds that a prediction waits for a position


class Reader:
    """Reads a live learner in any thread."""

    def __init__(self, writer: Writer, publisher: Publisher) -> None:
        self._writer, self._publisher = writer, publisher

    def read(self, min_position: int | None, function: Callable[[LiveSnapshot], Any]) -> Any:
        """Call a function of the learner as it is at a position or later; None for where it is now."""
        if min_position is None:
            return self.held(function, lambda: self.snapshot(self._writer.model.position))
        return function(self.snapshot(min_position))

    def held(self, function: Callable[[LiveSnapshot], Any], otherwise: Callable[[], LiveSnapshot]) -> Any:
        """Call a function of the learner, or of a copy if another thread changes it now."""
        if not self._writer.hold():
            return function(otherwise())
        try:
            model = self._writer.model
            return function(LiveSnapshot(model.learner, model.position))
        finally:
            self._writer.release()

    def newest_copy(self) -> LiveSnapshot:
        """The newest copy at hand, which may be some milliseconds old."""
        return self._publisher.latest(self._writer.model.position)

    def snapshot(self, min_position: int = 0, timeout: float = PATIENCE) -> LiveSnapshot:
        """The newest copy, if it includes this position and can predict; else wait for one that does."""
        latest = self.newest_copy()
        if not latest.classes and latest.position < self._writer.model.position:
            min_position = max(min_position, latest.position + 1)
        return latest if latest.position >= min_position else self._publisher.at_least(min_position, timeout)
