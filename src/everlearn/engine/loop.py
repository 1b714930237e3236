"""How a learner meets a stream: the loop."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple

from everlearn.checkpoint import CheckpointError
from everlearn.core.learner import Learner
from everlearn.engine.checkpoints import Kept
from everlearn.engine.clock import Clock
from everlearn.engine.horizon import HorizonMemory
from everlearn.engine.monitor import Lookout
from everlearn.engine.preconditions import StreamError, as_detector, changes, check_told, failed, in_order
from everlearn.engine.result import Result
from everlearn.engine.task_inference import Novelty
from everlearn.engine.timing import Stopwatch, one_thread
from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.worker import EvaluationWorker
from everlearn.memory.labels import as_labels
from everlearn.streams import as_stream
from everlearn.streams.base import Batch
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm, paradigm

__all__ = ["Result", "StreamError", "run"]

Progress = Callable[[int], None]


class Arrival(NamedTuple):
    """A batch as it came: its number, how many samples had come with it, and the t that the learner is told."""

    number: int
    until: int
    batch: Batch
    told: Any


def run(
    learner: Learner,
    stream: Any,
    evaluator: Evaluator | None = None,
    *,
    horizon: Horizon | None = None,
    paradigm: str | Paradigm | None = None,
    infer: Literal["novelty"] | None = None,
    clock: Clock | None = None,
    detector: Any = None,
    samples: int | None = None,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Result:
    """Let a learner learn from a stream, once, with an evaluator that watches.

    stream: what `stream` gives, or a user's own: an iterable of (x, y) or (x, y, t), a DataLoader, a pair of arrays.
    horizon: what the learner may revisit; by default what it asks for, mostly the batch alone.
    paradigm: what learner and evaluator are told, by name or value; by default all that the stream tells.
    infer: "novelty" tells a learner a t inferred from new labels and rising errors, where the stream hides it.
    clock: makes the stream one that does not wait.
    detector: "adwin", or any of River's drift detectors, which is shown every prediction error.
    samples: stop after so many, for a stream that does not end.
    progress: called with the number of samples after every batch.
    checkpoint: a file that holds the run, written whenever the evaluator's `every` batches were learnt, and at the
        end. If it is there already, the run is taken up where it was; the stream must begin where it began.

    >>> from everlearn import CoPE, stream
    >>> s = stream("split-digits", seed=0)
    >>> run(CoPE(memory_size=200, iterations=3), s).accuracy > 0.8
    True
    """
    if not isinstance(learner, Learner):
        raise ValueError(
            f"run takes a learner, such as CoPE() or learner('cope', stream=s), not {learner!r} itself"
        )
    if isinstance(stream, str):
        raise ValueError(f"run takes a stream, such as stream({stream!r}), not its name alone")
    return Run(
        learner, stream, evaluator, horizon, paradigm, infer, clock, detector, samples, progress, checkpoint
    ).finish()


class Run:
    """One run, from the first batch to the result."""

    def __init__(
        self,
        learner: Learner,
        stream: Any,
        evaluator: Evaluator | None = None,
        horizon: Horizon | None = None,
        told: str | Paradigm | None = None,
        infer: Literal["novelty"] | None = None,
        clock: Clock | None = None,
        detector: Any = None,
        samples: int | None = None,
        progress: Progress | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.learner = learner
        self.stream = in_order(as_stream(stream), learner)
        self.paradigm = paradigm(told) if isinstance(told, str) else told
        if self.paradigm is not None and horizon is None and learner.horizon == Horizon():
            horizon = self.paradigm.horizon
        self.horizon = HorizonMemory(horizon or learner.horizon, learner.seed)
        self.novelty = Novelty() if infer == "novelty" else None
        check_told(learner, self.stream, self.paradigm, self.horizon.horizon, infer)
        self.clock = clock
        if samples is not None and samples < 1:
            raise ValueError(f"samples must be at least 1, or None for the whole stream, not {samples}")
        self.limit = samples
        self.progress = progress or (lambda samples: None)
        self.evaluator = evaluator or Evaluator()
        if self.paradigm is not None and self.paradigm.evaluator_told_t:
            self.evaluator = dataclasses.replace(self.evaluator, confined=True)
        self.lookout = Lookout(self.evaluator, self.stream, as_detector(detector))
        self.arrived = self.missed = 0
        self.told: Any = None  # what the learner was told last
        self.watch = Stopwatch(learner.device)
        self.work = Stopwatch(learner.device)
        self.failure: StreamError | None = None
        self.taken = 0  # how many batches of the stream are done with
        self.done = False
        self.kept = None if checkpoint is None else Kept(self, checkpoint)

    def finish(self) -> Result:
        """Go through the stream, from where a checkpoint says it is."""
        if self.kept is not None and self.kept.resume():
            return self.result()
        worker = EvaluationWorker(self.evaluator) if self.evaluator.asynchronous else None
        try:
            with one_thread(), self.watch:
                self._go(worker)
                self.end(worker)
            if worker is not None:
                self.lookout.history += worker.collect(wait=True)
            if self.kept is not None:
                self.kept.end()
        finally:
            if worker is not None:
                worker.close()
        return self.result()

    def end(self, worker: EvaluationWorker | None = None) -> None:
        """What follows when the stream has ended."""
        self._end_horizon()
        self._look(worker)

    def result(self) -> Result:
        """What it came to."""
        return Result(
            self.learner.name,
            self.stream.name,
            self.learner.seed,
            {"network": self.learner.network_name, **vars(self.learner.settings)},
            self.lookout.history,
            self.arrived,
            self.watch.seconds,
            self.learner.footprint(),
            self.missed,
            self.lookout.correct,
            self.lookout.sizes,
            self.lookout.changes,
            self.lookout.embedding(self.learner),
        )

    def _go(self, worker: EvaluationWorker | None) -> None:
        """Every batch is predicted as it arrives if need be; then learnt, unless the learner is still busy.

        A batch that is being learnt is learnt when its time is over, so that until then predictions come from
        the last finished model.
        """
        in_work: Arrival | None = None
        busy = 0
        for arrival in self.arrivals():
            if in_work is not None and busy == 0:
                self._learn(in_work, worker)
                in_work = None
            self.arrived = arrival.until
            size = len(arrival.batch.x)
            self.taken = arrival.number
            if self.kept is not None:
                self.kept.latest = arrival.batch
            with self._named(arrival.number):
                right = self._predicted(arrival.batch)
            if in_work is not None:
                busy -= 1
                self.missed += size
                self.progress(size)
                continue
            if self.novelty is not None:
                arrival = arrival._replace(told=self.novelty.identify(as_labels(arrival.batch.y), right))
            in_work, busy = arrival, 0 if self.clock is None else self.clock.missed(self.work.lap())
            if busy == 0:
                self._learn(in_work, worker)
                in_work = None
        if in_work is not None:
            self._learn(in_work, worker)
        if self.failure is not None:
            raise self.failure

    def arrivals(self) -> Iterator[Arrival]:
        """The batches of the stream as they come, up to the limit; what goes wrong names the batch."""
        number = until = 0
        skipped = self.taken
        tells = self.paradigm is None or self.paradigm.learner_told_t
        batches = iter(self.stream) if self.kept is None else self.kept.recognised(iter(self.stream))
        while self.limit is None or until < self.limit:
            try:
                batch = next(batches)
                until += len(batch.x)
            except StopIteration:
                break
            except CheckpointError:
                raise
            except Exception as error:
                self.failure = failed(self.stream, number + 1, error)
                return
            number += 1
            if number <= skipped:
                continue
            yield Arrival(number, until, batch, batch.t if tells else None)
        if number == 0:
            raise StreamError(f"the stream {self.stream.name!r} ended before its first batch")

    def _learn(self, arrival: Arrival, worker: EvaluationWorker | None) -> None:
        x, y, _ = arrival.batch
        if changes(self.told, arrival.told) and self.horizon.over(transition=True):
            self._end_horizon()
        self.told = arrival.told
        self.before(arrival.batch, worker)
        with self._named(arrival.number), self._working():
            self.learner.observe(x, y, arrival.told)
        self.after(arrival.batch, worker, arrival.until)

    def before(self, batch: Batch, worker: EvaluationWorker | None = None) -> None:
        """What comes before a batch is learnt: if it is of another task, the last one has ended."""
        if changes(self.lookout.task, batch.t) and self.evaluator.due(self.learner.batches, transition=True):
            self._look(worker)
        if batch.t is not None:
            self.lookout.task = batch.t

    def after(self, batch: Batch, worker: EvaluationWorker | None = None, until: int | None = None) -> None:
        """What follows when a batch was learnt; `until`: how many samples had come with it, by default all."""
        self.lookout.learnt(until or self.arrived, self.arrived)
        self.horizon.add(batch.x, batch.y, self.told)
        if self.horizon.over():
            self._end_horizon()
        self.progress(len(batch.x))
        if self.evaluator.due(self.learner.batches, transition=False):
            self._look(worker)
        if worker is not None:
            self.lookout.history += worker.collect()
        if self.kept is not None and self.evaluator.due(self.learner.batches, transition=False):
            self.kept.save(worker)

    def _end_horizon(self) -> None:
        with self._working():
            if self.horizon.close(self.learner, self.progress):
                self.lookout.looked = -1  # what the evaluator saw last is no longer so

    def _working(self) -> AbstractContextManager[object]:
        """What the learner does in here takes its time, if a clock measures that."""
        return nullcontext() if self.clock is None or self.clock.interval is None else self.work

    @contextmanager
    def _named(self, number: int) -> Iterator[None]:
        """Let a sentence about a bad batch say which one it is."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"batch {number} of the stream {self.stream.name!r}: {error}") from error

    def _predicted(self, batch: Batch) -> list[bool] | None:
        """Which samples of a batch are predicted rightly before it is learnt, if anybody wants to know."""
        wanted = self.evaluator.prequential or self.lookout.detector is not None
        if not (wanted or self.clock or self.novelty is not None):
            return None
        with self.watch.stopped():
            return self.lookout.predict(self.learner, batch, self.arrived)

    def _look(self, worker: EvaluationWorker | None) -> None:
        self.lookout.look(self.learner, self.watch, worker)
