"""How a learner meets a stream: the loop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal

import torch

from everlearn.engine.clock import Clock
from everlearn.engine.horizon import HorizonMemory
from everlearn.engine.novelty import Novelty
from everlearn.engine.result import Embedding, Result
from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.worker import EvaluationWorker
from everlearn.learners.base import Learner
from everlearn.memory.labels import Label, as_labels
from everlearn.streams import as_stream
from everlearn.streams.base import Batch, Stream
from everlearn.streams.horizon import Horizon
from everlearn.streams.paradigms import Paradigm, paradigm
from everlearn.streams.scenarios import rearranged

__all__ = ["Result", "StreamError", "run"]

Progress = Callable[[int], None]

# So many held-out samples make a picture of the embedding, and stay few enough to keep with a result.
IN_A_PICTURE = 1000


class StreamError(RuntimeError):
    """The stream itself failed; the learner keeps all that came before."""


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
) -> Result:
    """Let a learner learn from a stream, once, with an evaluator that watches.

    stream: one by name, or a user's own: an iterable of (x, y) or (x, y, t), a DataLoader, a pair of arrays.
    horizon: what the learner may revisit; by default what it asks for, mostly the batch alone.
    paradigm: what learner and evaluator are told, by name or value; by default all that the stream tells.
    infer: "novelty" tells a learner a t inferred from new labels and rising errors, where the stream hides it.
    clock: makes the stream one that does not wait.
    detector: "adwin", or any of River's drift detectors, which is shown every prediction error.
    samples: stop after so many, for a stream that does not end.
    progress: called with the number of samples after every batch.

    >>> from everlearn import CoPE, stream
    >>> s = stream("split-digits", seed=0)
    >>> run(CoPE(memory_size=200, iterations=3), s).accuracy > 0.8
    True
    """
    return Run(
        learner, stream, evaluator, horizon, paradigm, infer, clock, detector, samples, progress
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
    ) -> None:
        self.learner = learner
        self.stream = _in_order(as_stream(stream), learner)
        self.paradigm = paradigm(told) if isinstance(told, str) else told
        if self.paradigm is not None and horizon is None and learner.horizon == Horizon():
            horizon = self.paradigm.horizon
        self.horizon = HorizonMemory(horizon or learner.horizon, learner.seed)
        self.novelty = Novelty() if infer == "novelty" else None
        _check_told(learner, self.stream, self.paradigm, infer)
        self.clock = clock
        self.limit = samples
        self.progress = progress or (lambda samples: None)
        self.evaluator = evaluator or Evaluator()
        if self.paradigm is not None and self.paradigm.evaluator_told_t:
            self.evaluator = dataclasses.replace(self.evaluator, confined=True)
        self.detector = _detector(detector)
        self.history: list[Evaluation] = []
        self.correct: list[int] = []
        self.sizes: list[int] = []
        self.changes: list[int] = []
        self.arrived = self.missed = 0
        self.task: int | None = None
        self.met: set[int] = set()
        self._concepts = len(self.stream.tests)
        self.watch = Stopwatch(learner.device)
        self._prototypes: dict[Label, torch.Tensor] = {}
        self._looked = -1

    def finish(self) -> Result:
        """Go through the stream."""
        worker = EvaluationWorker(self.evaluator) if self.evaluator.asynchronous else None
        try:
            with one_thread(), self.watch:
                self._go(worker)
                self.end(worker)
            if worker is not None:
                self.history += worker.collect(wait=True)
        finally:
            if worker is not None:
                worker.close()
        return self.result()

    def end(self, worker: EvaluationWorker | None = None) -> None:
        """What follows when the stream has ended."""
        self.horizon.close(self.learner, self.progress)
        self._look(worker)

    def result(self) -> Result:
        """What it came to."""
        return Result(
            self.learner.name,
            self.stream.name,
            self.learner.seed,
            {"network": self.learner.network_name, **dataclasses.asdict(self.learner.settings)},
            self.history,
            self.arrived,
            self.watch.seconds,
            self.learner.footprint(),
            self.missed,
            self.correct,
            self.sizes,
            self.changes,
            self._embedding(),
        )

    def _go(self, worker: EvaluationWorker | None) -> None:
        """Every batch is predicted as it arrives if need be; then learnt, unless the learner is still busy.

        A batch that is being learnt is learnt when its time is over, so that until then predictions come from
        the last finished model.
        """
        in_work: Batch | None = None
        busy = 0
        for batch in self.arrivals():
            if in_work is not None and busy == 0:
                self._learn(in_work, worker)
                in_work = None
            right = self._predicted(batch)
            if in_work is not None:
                busy -= 1
                self.missed += len(batch.x)
                self.progress(len(batch.x))
                continue
            if self.novelty is not None:
                batch = batch._replace(t=self.novelty.identify(as_labels(batch.y), right))
            in_work, busy = batch, 0 if self.clock is None else self.clock.missed()
            if busy == 0:
                self._learn(in_work, worker)
                in_work = None
        if in_work is not None:
            self._learn(in_work, worker)

    def arrivals(self) -> Iterator[Batch]:
        """The batches of the stream as they come, up to the limit; an error names the batch."""
        number = 0
        batches = iter(self.stream)
        while self.limit is None or self.arrived < self.limit:
            try:
                batch = next(batches)
            except StopIteration:
                break
            except Exception as error:
                raise StreamError(
                    f"the stream {self.stream.name!r} failed at batch {number + 1}: {error}"
                ) from error
            number += 1
            self.arrived += len(batch.x)
            yield batch
        if number == 0:
            raise StreamError(f"the stream {self.stream.name!r} ended before its first batch")

    def _learn(self, batch: Batch, worker: EvaluationWorker | None) -> None:
        self.before(batch, worker)
        told = self.paradigm is None or self.paradigm.learner_told_t or self.novelty is not None
        try:
            with self.clock or nullcontext():
                self.learner.observe(batch.x, batch.y, batch.t if told else None)
        except ValueError as error:
            number = self.learner.batches + 1
            raise ValueError(f"batch {number} of the stream {self.stream.name!r}: {error}") from error
        self.after(batch, worker)

    def before(self, batch: Batch, worker: EvaluationWorker | None = None) -> None:
        """What comes before a batch is learnt: if it is of another task, the last one has ended."""
        t = batch.t
        if self.task is not None and t is not None and t != self.task:
            if self.horizon.over(transition=True):
                self.horizon.close(self.learner, self.progress)
            if self.evaluator.due(self.learner.batches, transition=True):
                self._look(worker)
        self.task = t if t is not None else self.task

    def after(self, batch: Batch, worker: EvaluationWorker | None = None) -> None:
        """What follows when a batch was learnt."""
        x, y, t = batch
        if len(self.met) < self._concepts:
            self.met.update(self.stream.current(self.arrived))
        self.horizon.add(x, y, t)
        if self.horizon.over():
            self.horizon.close(self.learner, self.progress)
        self.progress(len(x))
        if self.evaluator.due(self.learner.batches, transition=False):
            self._look(worker)
        if worker is not None:
            self.history += worker.collect()

    def _predicted(self, batch: Batch) -> list[bool] | None:
        """Test, then train: which samples of a batch are predicted rightly before it is learnt."""
        wanted = (
            self.evaluator.prequential or self.clock or self.detector is not None or self.novelty is not None
        )
        if not wanted:
            return None
        with self.watch.stopped():
            truth = as_labels(batch.y)
            predicted = self.learner.predict(batch.x) if self.learner.classes else [None] * len(truth)
            right = [guess == label for guess, label in zip(predicted, truth, strict=False)]
            self.correct.append(sum(right))
            self.sizes.append(len(truth))
            if self.detector is not None:
                for place, is_right in enumerate(right):
                    self.detector.update(0 if is_right else 1)
                    if self.detector.drift_detected:
                        self.changes.append(self.arrived - len(right) + place + 1)
        return right

    def _embedding(self) -> Embedding | None:
        """Some held-out samples and the prototypes as the learner places them at the end, for a picture."""
        tests = [test for i, test in enumerate(self.evaluator.tests or self.stream.tests) if i in self.met]
        if not self.evaluator.representation or not tests:
            return None
        share = max(IN_A_PICTURE // len(tests), 1)
        features = torch.cat([self.learner.embed(x[:share]) for x, _ in tests]).cpu()
        labels = [label for _, y in tests for label in as_labels(y[:share])]
        return Embedding(features, labels, getattr(self.learner, "prototypes", {}))

    def _look(self, worker: EvaluationWorker | None) -> None:
        """Let the evaluator look, unless it has just looked or there is nothing to look at."""
        arrived = self.arrived
        tests = self.evaluator.tests
        if tests is None:
            tests = (
                self.stream.tests_at(arrived) if self.evaluator.concepts == "evolving" else self.stream.tests
            )
        if not tests or self._looked == self.learner.batches:
            return
        self._looked = self.learner.batches
        current = self.stream.current(arrived)
        before, self._prototypes = self._prototypes, getattr(self.learner, "prototypes", {})
        asked = (tests, self.task or 0, current, frozenset(self.met), before)
        if worker is not None:
            worker.submit(self.learner, *asked)
        else:
            with self.watch.stopped():
                self.history.append(self.evaluator.evaluate(self.learner, *asked))


def _in_order(stream: Stream, learner: Learner) -> Stream:
    """The stream in the order that the learner asks for."""
    return stream if learner.scenario is None else rearranged(stream, learner.scenario)


def _check_told(learner: Learner, stream: Stream, told: Paradigm | None, infer: str | None) -> None:
    """Refuse a learner that needs what nobody tells it, before anything runs."""
    if infer not in (None, "novelty"):
        raise ValueError(f'infer is "novelty" or None, not {infer!r}')
    if told is not None and told.iid and getattr(stream, "scenario", "iid") != "iid":
        raise ValueError(
            f'{told.name} learning is from an iid stream, but {stream.name!r} is not: scenario="iid"'
        )
    known = stream.tells if told is None or told.learner_told_t else stream.tells - {"t", "tasks"}
    missing = learner.needs - known - ({"t"} if infer else set())
    if missing:
        who = stream.name if told is None or told.learner_told_t else f"{told.name} learning"
        remedy = '; infer="novelty" lets it infer t from the stream' if missing == {"t"} else ""
        raise ValueError(
            f"{learner.name} must be told {' and '.join(sorted(missing))}, which {who!r} hides{remedy}"
        )


def _detector(detector: Any) -> Any:
    if detector != "adwin":
        return detector
    try:
        from river import drift
    except ImportError:
        raise ImportError("ADWIN comes with River: pip install 'everlearn[river]'") from None
    return drift.ADWIN()  # type: ignore[no-untyped-call]


class Stopwatch:
    """Counts the seconds inside a `with`, less those inside `stopped`; waits for the device at both ends."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self.device = device

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def __enter__(self) -> Stopwatch:
        self._since = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._now() - self._since

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time in here is not counted."""
        self.__exit__()
        yield
        self.__enter__()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, which is fastest for networks of this size; then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
