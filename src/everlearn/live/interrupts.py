"""Let a change finish before a signal is handled, such as Ctrl-C, or SIGTERM where the program has a handler."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["InterruptsWait"]

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class InterruptsWait:
    """A context in which signals that end a program wait until its end. Outside of the main thread there are none.

    Their handlers may raise an error in the middle of a change, or close the live learner.
    """

    __slots__ = ("_handlers", "_waiting")

    def __enter__(self) -> None:
        self._handlers: dict[int, Any] = {}
        self._waiting: dict[int, FrameType | None] = {}
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if callable(signal.getsignal(number)):  # others end the process, or are ignored
                    self._handlers[number] = signal.signal(number, self._wait)

    def _wait(self, number: int, frame: FrameType | None) -> None:
        self._waiting[number] = frame

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number, frame in self._waiting.items():
            self._handlers[number](number, frame)
