"""The actor that owns a learner on a Ray cluster."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from everlearn.core.learner import Learner
from everlearn.live import LiveError, holds_learner, open_live
from everlearn.live.statistics import DriftDetector
from everlearn.service.consumer import Consumer
from everlearn.service.sources import open_source

__all__ = ["PATIENCE", "ActorOptions", "LearnerActor"]

PATIENCE = 120.0  # seconds in which an actor that died must be back


@dataclasses.dataclass(frozen=True)
class ActorOptions:
    """How an actor opens its learner.

    journal, act: see `open_live`. drift: makes a drift detector. source: a stream of messages to learn from, in
    batches of `batch_size`.
    """

    journal: str | None = None
    drift: Callable[[], DriftDetector] | None = None
    source: str | None = None
    batch_size: int = 10
    act: bool = False


class LearnerActor:
    """Owns a live learner; all replicas call it."""

    def __init__(self, folder: str, learner: Learner | None, options: ActorOptions) -> None:
        end = time.monotonic() + PATIENCE
        journal, drift = options.journal, options.drift
        while True:  # the lock of an actor that died may last a moment longer
            try:
                given = None if holds_learner(folder, journal) else learner
                detector = None if drift is None else drift()
                self._live = open_live(folder, given, journal=journal, drift=detector, act=options.act)
                break
            except LiveError as error:
                if "in use by another process" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.2)
        self._stored: tuple[int, Any] = (-1, None)
        self._consumer: Consumer | None = None
        if options.source is not None:  # it goes on from the position in the journal
            self._consumer = Consumer(self._live, open_source(options.source), options.batch_size)
            self._consumer.start()

    def change(self, method: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, int]:
        """Make a change; returns its result and the position after it."""
        return getattr(self._live, method)(*args, **kwargs), self._live.position

    def read(self, method: str, *args: Any) -> Any:
        """The result of a method that changes nothing."""
        return getattr(self._live, method)(*args)

    def consumed(self) -> dict[str, Any] | None:
        """What became of the messages of its source, if it has one."""
        return None if self._consumer is None else self._consumer.status()

    def snapshot(self, min_position: int, timeout: float) -> tuple[list[Any], int, SimpleNamespace]:
        """The newest snapshot as a reference to Ray's object store, its position, and facts about the learner."""
        import ray

        snapshot = self._live.snapshot(min_position, timeout)
        if snapshot.position > self._stored[0]:
            self._stored = snapshot.position, ray.put(snapshot)
        position, reference = self._stored
        learner = self._live.learner
        facts = SimpleNamespace(
            name=learner.name,
            settings=learner.settings,
            sample_type=learner.sample_type,
            sample_shape=learner.sample_shape,
            columns=learner.columns,
            encoder=None if learner.encoder is None else SimpleNamespace(name=learner.encoder.name),
            memory_bytes=sum(learner.footprint().values()),
        )
        return [reference], position, facts

    def process(self) -> int:
        """The process that runs it."""
        return os.getpid()

    def close(self) -> None:
        """Write a snapshot, and release the folder."""
        if self._consumer is not None:
            self._consumer.close()
        self._live.close()
