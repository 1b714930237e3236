"""A thread that feeds a live learner from a source, each message exactly once."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from everlearn.live import Live, LiveError
from everlearn.memory.labels import shortened
from everlearn.service.sources import Message, Source, SourceError
from everlearn.service.wire import as_samples, decode_labels, samples_in

__all__ = ["Consumer"]

WAIT = 0.5  # seconds that a read waits for messages
PAUSE = 2.0  # seconds before what failed is tried again


class Consumer:
    """Applies the messages of a source in order.

    A message with x and y is observed, one with x and id is asked, one with id and y is told. Consecutive messages of
    one kind become batches of at most `batch_size`. A message that can't be applied is skipped and counted.

    applied, skipped: messages since the start. error: why messages can't be read or applied now, or None.
    """

    def __init__(self, live: Live, source: Source, batch_size: int = 10) -> None:
        self._live, self._source, self._size = live, source, batch_size
        self.applied = self.skipped = 0
        self.last_skipped: str | None = None  # why
        self.error: str | None = None
        self._position: Any = live.sources.get(source.name)  # after the messages that were applied or skipped
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="everlearn consumer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Finish the current batch, and end the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._source.close()

    def status(self) -> dict[str, Any]:
        """The source and what became of its messages."""
        return {
            "source": self._source.name,
            "position": self._position,
            "applied": self.applied,
            "skipped": self.skipped,
            "last_skipped": self.last_skipped,
            "error": self.error,
        }

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                messages = self._source.read(self._position, 10 * self._size, WAIT)
                for batch in _batches(messages, self._size):
                    self._apply(batch)
                    if self._stopped.is_set():
                        return
                self.error = None
            except Exception as error:  # such as a disk that is full, or no memory left; nothing was changed
                expected = isinstance(error, (SourceError, LiveError))
                self.error = str(error) if expected else f"{type(error).__name__}: {error}"
                self._stopped.wait(PAUSE)

    def _apply(self, batch: Sequence[Message]) -> None:
        """Apply messages of one kind as one batch; if that is refused, one by one, without those that are wrong."""
        try:
            self._call(batch)
        except (ValueError, TypeError) as error:
            if len(batch) > 1:
                for message in batch:
                    self._apply([message])
                return
            self.skipped += 1
            self.last_skipped = f"the message at {shortened(batch[0].position)}: {error}"
        else:
            self.applied += len(batch)
        self._position = batch[-1].position

    def _call(self, batch: Sequence[Message]) -> None:
        kind, source = _kind(batch[0]), (self._source.name, batch[-1].position)
        if kind is None:
            fields = batch[0].fields
            words = fields if isinstance(fields, str) else "it needs x and y, x and id, or id and y"
            raise ValueError(words)
        values = [message.fields for message in batch if isinstance(message.fields, dict)]
        named = all("id" in each for each in values)
        ids = decode_labels([each["id"] for each in values], "id") if named else None
        y = decode_labels([each["y"] for each in values], "y") if kind != "ask" else []
        if kind == "tell":
            self._live.tell(ids, y, source=source)
            return
        x = samples_in([each["x"] for each in values])
        if isinstance(x, np.ndarray):
            x = as_samples(x, self._live.learner.sample_type == torch.uint8)
        if kind == "ask":
            self._live.ask(ids, x, source=source)
        else:
            self._live.observe(x, y, ids, source=source)


def _kind(message: Message) -> str | None:
    """What is done with a message: observe, ask or tell; None if it can't be read."""
    if isinstance(message.fields, str):
        return None
    has = {name for name in ("x", "y", "id") if name in message.fields}
    if has >= {"x", "y"}:
        return "observe"
    return {frozenset({"x", "id"}): "ask", frozenset({"id", "y"}): "tell"}.get(frozenset(has))


def _batches(messages: Sequence[Message], size: int) -> Iterator[list[Message]]:
    """Consecutive messages of one kind, all with ids or all without, in batches."""
    for (kind, _), group in itertools.groupby(messages, lambda each: (_kind(each), "id" in each.fields)):
        same = list(group)
        step = 1 if kind is None else size
        for start in range(0, len(same), step):
            yield same[start : start + step]
