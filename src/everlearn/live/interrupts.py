"""Let a change finish before Ctrl-C is raised."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["InterruptsWait"]


class InterruptsWait:
    """A context in which an interrupt waits until its end. Outside of the main thread there are none."""

    __slots__ = ("_handler", "_waiting")

    def __enter__(self) -> None:
        self._handler: Any = None
        self._waiting: tuple[int, FrameType | None] | None = None
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGINT, self._wait)

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting = number, frame

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)
            if self._waiting is not None and callable(self._handler):
                self._handler(*self._waiting)
