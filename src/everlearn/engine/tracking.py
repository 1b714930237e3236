"""Watch a run while it goes on: one small protocol, and trackers by name."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from everlearn.evaluation.history import Evaluation
from everlearn.import_names import import_named, is_import_name
from everlearn.memory.labels import Label, as_labels
from everlearn.messages import nearest
from everlearn.streams.base import Batch

if TYPE_CHECKING:
    from everlearn.engine.loop import Run
    from everlearn.engine.result import Result

__all__ = ["BatchReport", "RunStart", "Tracker", "Tracking", "as_trackers"]


@dataclasses.dataclass(frozen=True)
class RunStart:
    """What a tracker gets at the start of a run."""

    learner: str
    stream: str
    seed: int
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """A name for the run, such as `cope-split-digits-0`."""
        return f"{self.learner}-{self.stream}-{self.seed}"


@dataclasses.dataclass(frozen=True)
class BatchReport:
    """What a tracker gets after a batch.

    samples: how many had arrived. loss: the mean cross-entropy of the batch, as it is predicted after it was learnt.
    learning_rate: of the learner's settings. labels: how many samples of each label the batch had.
    replayed: how many exemplars are drawn for each step. exemplars: how many of each label the memory holds.
    """

    batch: int
    samples: int
    loss: float
    learning_rate: float
    labels: dict[Label, int]
    replayed: int
    exemplars: dict[Label, int]


class Tracker:
    """Watches a run. Derive from it, and define what is needed.

    per_batch: whether `batch` is called; each call predicts the batch once more, which takes time.

    >>> from everlearn import CoPE, run, stream
    >>> class Printed(Tracker):
    ...     def evaluation(self, evaluation, metrics):
    ...         print(evaluation.samples, "samples")
    >>> _ = run(CoPE(hidden=16), stream("split-digits"), track=Printed())
    289 samples
    578 samples
    869 samples
    1158 samples
    1442 samples
    """

    per_batch: bool = False

    def start(self, run: RunStart) -> None:
        """A run starts, or goes on from a checkpoint."""

    def evaluation(self, evaluation: Evaluation, metrics: Mapping[str, float]) -> None:
        """The evaluator has measured the learner. metrics: all that are defined for the history so far."""

    def batch(self, report: BatchReport) -> None:
        """A batch was learnt."""

    def end(self, result: Result | None) -> None:
        """The run has ended; result is None if it failed."""


class Tracking:
    """The trackers of one run, and what they have been told."""

    def __init__(self, run: Run, trackers: Sequence[Tracker]) -> None:
        self._run, self._trackers = run, list(trackers)
        self._per_batch = [tracker for tracker in trackers if tracker.per_batch]
        self._started: list[Tracker] | None = None
        self._told = 0  # evaluations

    def batch_learnt(self, batch: Batch) -> None:
        """Tell the trackers of a batch, and of evaluations since the last one."""
        if not self._trackers:
            return
        with self._run.watch.stopped():
            self._start()
            if self._per_batch:
                report = self._report(batch)
                for tracker in self._per_batch:
                    tracker.batch(report)
            self._tell_evaluations()

    def end(self, result: Result | None) -> None:
        """Tell the trackers that the run has ended. Further calls do nothing."""
        if result is not None and self._trackers:
            self._start()
            self._tell_evaluations()
        self._trackers = []
        started, self._started = self._started or [], []
        for tracker in started:
            tracker.end(result)

    def _start(self) -> None:
        if self._started is not None:
            return
        self._started = []
        learner, stream = self._run.learner, self._run.stream
        settings = {"network": learner.network_name, **vars(learner.settings)}
        for tracker in self._trackers:
            tracker.start(RunStart(learner.name, stream.name, learner.seed, settings))
            self._started.append(tracker)

    def _tell_evaluations(self) -> None:
        history = self._run.monitor.history
        for place in range(self._told, len(history)):
            metrics = self._run.evaluator.measure(history[: place + 1])
            known = {name: value for name, value in metrics.items() if not math.isnan(value)}
            for tracker in self._trackers:
                tracker.evaluation(history[place], known)
        self._told = len(history)

    def _report(self, batch: Batch) -> BatchReport:
        learner, labels = self._run.learner, as_labels(batch.y)
        places = {label: place for place, label in enumerate(learner.classes)}
        likely = learner.predict_proba(batch.x)[range(len(labels)), [places[label] for label in labels]]
        return BatchReport(
            batch=learner.batches,
            samples=self._run.arrived,
            loss=float(-np.log(np.maximum(likely, 1e-12)).mean()),
            learning_rate=learner.settings.learning_rate,
            labels=dict(Counter(labels)),
            replayed=0 if learner.memory is None else learner.replay_size(len(labels)),
            exemplars=learner.exemplars(),
        )


NAMES = ("tensorboard", "mlflow", "wandb")

Tracked = str | Tracker | Callable[[], Tracker]


def as_trackers(given: Tracked | Sequence[Tracked] | None) -> list[Tracker]:
    """Trackers from what a user gives: objects, names such as `tensorboard:FOLDER`, `module:Class`, or functions."""
    if given is None:
        return []
    several = list(given) if isinstance(given, list | tuple) else [given]
    return [_tracker(each) for each in several]


def check_tracker_name(given: str) -> None:
    """Raise a ValueError if no tracker has this name; nothing is made."""
    if given.partition(":")[0] not in NAMES and not is_import_name(given):
        raise ValueError(
            f"there is no tracker {given!r}{nearest(given, NAMES)}; or give NAME:FOLDER, or module:Class"
        )


def _tracker(given: Any) -> Tracker:
    if isinstance(given, str):
        check_tracker_name(given)
        name, _, where = given.partition(":")
        if name in NAMES:
            from everlearn.engine import trackers

            made: Any = trackers.make(name, where or None)
        else:
            made = import_named(given, "tracker")()
    else:
        made = given if isinstance(given, Tracker) or not callable(given) else given()
    if not isinstance(made, Tracker):
        raise ValueError(
            f"a tracker derives from everlearn.Tracker, or is one of {', '.join(NAMES)}, not {made!r}"
        )
    return made
