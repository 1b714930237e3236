"""The loop that runs a learner on a stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

from everlearn.core.learner import Learner
from everlearn.core.row_selection import counts, labels_of
from everlearn.engine.arrivals import Arrival, Arrivals
from everlearn.engine.checkpoints import RunCheckpoint
from everlearn.engine.clock import Clock
from everlearn.engine.horizon import HorizonMemory
from everlearn.engine.monitor import Monitor
from everlearn.engine.options import Progress, RunOptions
from everlearn.engine.preconditions import (
    StreamError,
    as_detector,
    check_classes,
    check_needs,
    in_order,
    is_transition,
)
from everlearn.engine.result import Result
from everlearn.engine.task_inference import Novelty
from everlearn.engine.timing import Stopwatch
from everlearn.engine.tracking import Tracking, as_trackers
from everlearn.evaluation.evaluator import Evaluator
from everlearn.memory.labels import Label
from everlearn.streams import as_stream
from everlearn.streams.base import Batch, sample_count
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm
from everlearn.streams.paradigms import paradigm as paradigm_by_name

__all__ = ["Result", "Run", "RunOptions", "StreamError", "run"]


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
    act: bool = False,
    samples: int | None = None,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    track: Any = None,
) -> Result:
    """Let a learner learn from a stream, one pass, while an evaluator measures it.

    stream: what `stream` returns, or your own: an iterable of (x, y) or (x, y, t), a DataLoader, a pair of arrays.
    evaluator: what to measure and when; by default the accuracy at task transitions and at the end.
    horizon: what the learner may revisit; by default what it asks for, usually the batch alone.
    paradigm: what learner and evaluator know of the tasks, by name or value; by default all that the stream tells.
    infer: "novelty" infers t from new labels and rising errors, for a stream that hides it.
    clock: makes the stream one that does not wait for the learner.
    detector: "adwin", or any of River's drift detectors; it gets every prediction error.
    act: let the detector act: each change that it reports is a `learner.alarm()`, which halves the exemplars.
    samples: stop after this number, for a stream that does not end.
    progress: called with the number of samples after every batch.
    checkpoint: a file that holds the run, written after every `every` batches of the evaluator and at the end. If
        it exists, the run resumes from there; the stream must start from its beginning again.
    track: what watches the run: "tensorboard", "mlflow" or "wandb" (also "tensorboard:FOLDER"), a `Tracker` of your
        own, or a list of these.

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
    options = RunOptions(
        evaluator, horizon, paradigm, infer, clock, detector, act, samples, progress, checkpoint, track
    )
    return Run(learner, stream, options).finish()


class Run:
    """One run, from the first batch to the result.

    taken: how many batches of the stream are done with. arrived, missed: samples so far.
    t: the task identifier that the learner got last.
    """

    def __init__(self, learner: Learner, stream: Any, options: RunOptions | None = None) -> None:
        options = options or RunOptions()
        self.learner = learner
        self.stream = in_order(as_stream(stream), learner)
        named = options.paradigm
        self.paradigm = paradigm_by_name(named) if isinstance(named, str) else named
        self.horizon = HorizonMemory(self._horizon(options.horizon), learner.seed)
        check_needs(learner, self.stream, self.paradigm, self.horizon.horizon, options.infer)
        self.task_inference = Novelty() if options.infer == "novelty" else None
        self.clock = options.clock
        self.limit = options.samples
        if self.limit is None:
            check_classes(learner, self.stream)
        self.progress: Progress = options.progress or (lambda samples: None)
        self.evaluator = options.evaluator or Evaluator()
        if self.paradigm is not None and self.paradigm.evaluator_gets_t:
            self.evaluator = dataclasses.replace(self.evaluator, confined=True)
        self.monitor = Monitor(self.evaluator, self.stream, as_detector(options.detector))
        self.acts = options.act
        self.watch = Stopwatch(learner.device)  # all of the learner's time
        self.work = Stopwatch(learner.device)  # its time since its last batch, for a clock with an interval
        self.taken = self.arrived = self.missed = 0
        self.t: Any = None
        self.done = False
        self.checkpoint = None if options.checkpoint is None else RunCheckpoint(self, options.checkpoint)
        self.tracking = Tracking(self, as_trackers(options.track))

    def _horizon(self, given: Horizon | None) -> Horizon:
        """The horizon of the options, else the learner's, else the paradigm's."""
        if given is None and self.paradigm is not None and self.learner.horizon == Horizon():
            return self.paradigm.horizon
        return given or self.learner.horizon

    def finish(self) -> Result:
        """Learn from the whole stream, or from the rest of it if a checkpoint was found."""
        if self.checkpoint is not None and self.checkpoint.resume():
            return self.result()
        try:
            with self.monitor:
                with self.watch:
                    self._learn_stream()
                    self.end()
                self.monitor.collect(wait=True)
                if self.checkpoint is not None:
                    self.checkpoint.end()
            return self.result()
        finally:
            self.tracking.end(None)  # does nothing after a result

    def _learn_stream(self) -> None:
        """Predict every batch as it arrives, if the options say so, and learn it if there is time.

        Batches that are missed arrive while the learner is busy, so they are predicted by the model from before.
        """
        arrivals = self._arrivals()
        for arrival, missed in self._turns(iter(arrivals)):
            correct = self._arrive(arrival)
            for other in missed:
                self._arrive(other)
                samples = sample_count(other.batch.x)
                self.missed += samples
                self.progress(samples)
            self._learn(arrival, correct)
        if arrivals.failure is not None:
            raise arrivals.failure

    def _arrivals(self) -> Arrivals:
        reveal_t = self.paradigm is None or self.paradigm.learner_gets_t
        batches = None if self.checkpoint is None else self.checkpoint.verified(iter(self.stream))
        return Arrivals(self.stream, batches, self.taken, self.limit, reveal_t)

    def _turns(self, arrivals: Iterator[Arrival]) -> Iterator[tuple[Arrival, Iterator[Arrival]]]:
        """The batches that the learner has time for, each with those that it misses meanwhile."""
        if self.clock is None:
            return ((arrival, iter(())) for arrival in arrivals)
        return self.clock.turns(arrivals, self.work.lap)

    def _arrive(self, arrival: Arrival) -> list[bool] | None:
        """Count a batch; returns which of its samples are predicted correctly, if anything needs that."""
        self.taken, self.arrived = arrival.number, arrival.samples
        if self.checkpoint is not None:
            self.checkpoint.last_batch = arrival.batch
        if not (self.monitor.predicts or self.clock or self.task_inference is not None):
            return None
        with self._naming_batch(arrival.number), self.watch.stopped():
            changes = len(self.monitor.changes)
            correct = self.monitor.predict(self.learner, arrival.batch, self.arrived)
            if self.acts and len(self.monitor.changes) > changes:
                self.learner.alarm()
            return correct

    def _learn(self, arrival: Arrival, correct: list[bool] | None) -> None:
        x, y, _ = arrival.batch
        t = arrival.t
        if self.task_inference is not None:
            t = self.task_inference.identify(self._labels(y), correct)
        if is_transition(self.t, t) and self.horizon.over(transition=True):
            self._end_horizon()
        self.t = t
        self.before_batch(arrival.batch)
        with self._naming_batch(arrival.number), self._working():
            self.learner.observe(x, y, t)
        self.after_batch(arrival.batch, arrival.samples)

    def _labels(self, y: Any) -> list[Label]:
        """The labels of a batch, without those that are missing and skipped."""
        labels = labels_of(self.learner, y, f"{type(self.learner).__name__}.observe")
        return [label for label in labels if counts(self.learner, label)]

    def before_batch(self, batch: Batch) -> None:
        """Evaluate if this batch belongs to another task than the last one."""
        ended = is_transition(self.monitor.task, batch.t)
        if ended and self.evaluator.due(self.learner.batches, transition=True):
            self._evaluate()
        if batch.t is not None:
            self.monitor.task = batch.t

    def after_batch(self, batch: Batch, samples: int | None = None) -> None:
        """Revisit, evaluate and save, as far as this is due after a batch.

        samples: how many had arrived with the batch; by default all that have arrived.
        """
        self.monitor.batch_learnt(samples or self.arrived, self.arrived)
        self.horizon.add(self.learner, batch.x, batch.y, self.t)
        if self.horizon.over():
            self._end_horizon()
        self.progress(sample_count(batch.x))
        due = self.evaluator.due(self.learner.batches, transition=False)
        if due:
            self._evaluate()
        self.monitor.collect()
        if due and self.checkpoint is not None:
            self.checkpoint.save()
        self.tracking.batch_learnt(batch)

    def end(self) -> None:
        """Revisit the last horizon and evaluate, when the stream has ended."""
        self._end_horizon()
        self._evaluate()

    def result(self) -> Result:
        """The result of the run so far."""
        learner, monitor = self.learner, self.monitor
        moments = [monitor.history[: place + 1] for place in range(len(monitor.history))]
        own = [self.evaluator.measure_own(history) for history in moments] if self.evaluator.metrics else []
        result = Result(
            learner=learner.name,
            stream=self.stream.name,
            seed=learner.seed,
            settings={"network": learner.network_name, **vars(learner.settings)},
            history=monitor.history,
            samples=self.arrived,
            seconds=self.watch.seconds,
            memory=learner.footprint(),
            missed=self.missed,
            correct=monitor.correct,
            sizes=monitor.sizes,
            changes=monitor.changes,
            embedding=monitor.embedding(learner),
            metric_curves={name: [values[name] for values in own] for name in self.evaluator.metrics},
        )
        self.tracking.end(result)
        return result

    def _evaluate(self) -> None:
        self.monitor.evaluate(self.learner, self.watch)

    def _end_horizon(self) -> None:
        with self._working():
            if self.horizon.close(self.learner, self.progress):
                self.monitor.evaluated_at = -1

    def _working(self) -> AbstractContextManager[object]:
        """Time in here is the learner's, for a clock that measures it."""
        return nullcontext() if self.clock is None or self.clock.interval is None else self.work

    @contextmanager
    def _naming_batch(self, number: int) -> Iterator[None]:
        """Let the error about a bad batch say which one it is."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"batch {number} of the stream {self.stream.name!r}: {error}") from error
