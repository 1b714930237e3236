"""Let a change finish before Ctrl-C is raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["interrupts_wait"]


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """A context in which an interrupt waits until its end. Outside of the main thread there are none."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    waiting: list[tuple[Any, ...]] = []

    def wait(number: int, frame: FrameType | None) -> None:
        waiting.append((number, frame))

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if waiting:
            handler(*waiting[0])
