"""One model of a service: changes wait in a bounded queue, predictions use the latest snapshot in memory."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from numpy.typing import NDArray

from everlearn.core.table import Table
from everlearn.label_json import Label
from everlearn.live import Live, LiveSnapshot
from everlearn.service.consumer import Consumer
from everlearn.service.limits import Limits
from everlearn.service.monitor import Monitor
from everlearn.service.sources import Source

__all__ = ["ServedModel", "TooBusy"]

Result = TypeVar("Result")

PATIENCE = 30.0  # seconds that a prediction waits for `min_position`
MOMENT = 0.05  # seconds that a prediction waits for a newer snapshot while nothing is learnt
TESTED = 100  # samples of a batch that are predicted before they are learnt
CHANGING = 32  # threads that wait for a change
WAITING = 8  # threads that wait for `min_position`, or suggest samples
PREDICTING = 2  # threads that predict
REMEMBERED = 1000  # request ids, so that a retry is not counted twice


class TooBusy(RuntimeError):
    """Too much waits already. retry_after: seconds after which a retry makes sense."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Consuming(Protocol):
    """What applies messages from elsewhere, in this process or in another one."""

    def status(self) -> dict[str, Any]:
        """The source and what became of its messages."""

    def close(self) -> None:
        """End it, if it is in this process."""


class ServedModel:
    """A live learner for asynchronous callers: what waits is bounded, and what it does is measured."""

    def __init__(self, name: str, live: Live, limits: Limits) -> None:
        self.name, self.live, self.limits = name, live, limits
        self.monitor = Monitor()
        self.consumer: Consuming | None = None  # of messages from elsewhere
        self.rejected = self.predictions = self.changing = self.predicting = 0
        self.change_seconds = self.prediction_seconds = 0.0  # in total
        self.changes = 0
        self._requests: deque[str] = deque(maxlen=REMEMBERED)
        self._changers = ThreadPoolExecutor(CHANGING, f"change-{name}")
        self._waiters = ThreadPoolExecutor(WAITING, f"wait-{name}")
        self._predictors = ThreadPoolExecutor(PREDICTING, f"predict-{name}")

    async def change(self, change: Callable[[], Result]) -> tuple[Result, int]:
        """The result of a change, made in its turn, and the position after it; raises TooBusy if too many wait."""
        if self.changing >= self.limits.queue:
            usual = self.change_seconds / max(self.changes, 1)
            self._reject(f"{self.changing} changes of {self.name} wait already", max(1, round(usual)))
        self.changing += 1
        begun = time.perf_counter()
        try:
            result = await asyncio.get_running_loop().run_in_executor(self._changers, change)
        finally:
            self.changing -= 1
        self.changes += 1
        self.change_seconds += time.perf_counter() - begun
        return result, self.live.position

    async def predict(
        self, function: Callable[[LiveSnapshot], Result], min_position: int = 0
    ) -> tuple[Result, int]:
        """The result of a function of the latest snapshot, and the position of that snapshot."""
        begun, loop = time.perf_counter(), asyncio.get_running_loop()
        with self._admitted():
            snapshot = await self._snapshot(min_position)
            result = await loop.run_in_executor(self._predictors, function, snapshot)
        self.predictions += 1
        self.prediction_seconds += time.perf_counter() - begun
        return result, snapshot.position

    async def suggest(self, n: int) -> tuple[list[Label], int]:
        """The ids of the waiting samples to label next, and a position that they include.

        It may wait for learning and compares many samples, so predictions do not wait for it.
        """
        position, loop = self.live.position, asyncio.get_running_loop()
        with self._admitted():
            return await loop.run_in_executor(self._waiters, self.live.suggest, n), position

    @contextmanager
    def _admitted(self) -> Iterator[None]:
        """Count a prediction while it is made; raises TooBusy if too many wait."""
        if self.predicting >= self.limits.predictions:
            self._reject(f"{self.predicting} predictions of {self.name} wait already", 1)
        self.predicting += 1
        try:
            yield
        finally:
            self.predicting -= 1

    async def _snapshot(self, min_position: int) -> LiveSnapshot:
        """The snapshot for a prediction: the latest one, unless that is older than `min_position`.

        While nothing is learnt, a new copy takes a moment only, so that a caller sees its own last change.
        """
        self._check_reachable(min_position)
        live, snapshot = self.live, self.live.snapshot()
        idle = not self.changing and self.consumer is None
        wanted = max(min_position, live.position if idle or not snapshot.classes else 0)
        if wanted <= snapshot.position:
            return snapshot
        loop = asyncio.get_running_loop()
        # In threads that nobody needs meanwhile: changes and predictions have their own.
        if min_position > snapshot.position or not snapshot.classes:
            return await loop.run_in_executor(self._waiters, live.snapshot, wanted, PATIENCE)
        try:
            return await loop.run_in_executor(self._changers, live.snapshot, wanted, MOMENT)
        except TimeoutError:
            return snapshot

    def _check_reachable(self, position: int) -> None:
        """Raise an error for a position that the changes that wait do not reach.

        Where others make changes, too (a consumer, or the actor of another process), nobody knows.
        """
        if self.consumer is not None or not isinstance(self.live, Live):
            return
        if position > self.live.position + 2 * self.changing:  # an alarm may follow a change
            raise TimeoutError(
                f"{self.name} is at position {self.live.position:,}, and no change that waits reaches the "
                f"min_position {position:,}"
            )

    def _reject(self, reason: str, retry_after: int) -> None:
        self.rejected += 1
        raise TooBusy(f"{reason}: try again in {retry_after} s", retry_after)

    def consume(self, source: Source, batch_size: int) -> None:
        """Start to apply the messages of a source."""
        consumer = Consumer(self.live, source, batch_size)
        self.consumer = consumer
        consumer.start()

    def observe(
        self,
        x: NDArray[Any] | Table | list[str],
        y: Sequence[Label],
        ids: Any,
        t: int | None,
        sample_weight: list[float] | None = None,
        request_id: str | None = None,
    ) -> None:
        """Predict a batch, then learn from it."""
        predicted = self._tested(x[:TESTED])
        self.live.observe(x, y, ids, t=t, sample_weight=sample_weight, request_id=request_id)
        if request_id is None or request_id not in self._requests:
            if request_id is not None:
                self._requests.append(request_id)
            self.monitor.arrived(len(y))
            if len(predicted) == len(y[:TESTED]):
                self.monitor.record(_samples(x[:TESTED]), y[:TESTED], predicted, self.live.position)

    def _tested(self, x: NDArray[Any] | Table | list[str]) -> list[Label]:
        """The predictions of samples that are about to be learnt; none before the first label, or for a mistake."""
        snapshot = self.live.snapshot()
        if not snapshot.classes and self.live.classes:  # taken before the first label
            snapshot = self.live.snapshot(self.live.position)
        try:
            return list(snapshot.predict(x)) if snapshot.classes else []
        except (ValueError, TypeError):  # `observe` says what is wrong, in its own name
            return []

    def close(self) -> None:
        """Make the changes that wait, then close the live learner."""
        if self.consumer is not None:
            self.consumer.close()
        self._changers.shutdown()
        self._predictors.shutdown()
        self._waiters.shutdown(wait=False, cancel_futures=True)
        self.live.close()  # it lets nobody wait any longer


def _samples(x: NDArray[Any] | Table | list[str]) -> Sequence[Any]:
    """The samples one by one; those of a table by the names of their columns."""
    if not isinstance(x, Table):
        return list(x)
    rows = zip(*x.columns, strict=True)
    return [dict(zip(x.names, row, strict=True)) for row in rows]
