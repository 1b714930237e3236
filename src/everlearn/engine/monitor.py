"""What is measured of a learner during a run: predictions before each batch, and evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.core.row_selection import counts, labels_of
from everlearn.engine.result import Embedding
from everlearn.engine.timing import Stopwatch
from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.worker import EvaluationWorker
from everlearn.memory.labels import Label, as_labels
from everlearn.streams.base import Batch, Stream
from everlearn.streams.lazy_samples import rows, sample_chunks

__all__ = ["Monitor"]

# How many held-out samples a picture of the embedding shows; few enough to store with a result.
EMBEDDED_SAMPLES = 1000


class Monitor:
    """Runs the evaluator and collects what it measures.

    Use it as a context manager: an asynchronous evaluator has a process, which lives inside the `with` block.

    history, correct, sizes, changes: as in `Result`.
    """

    def __init__(self, evaluator: Evaluator, stream: Stream, detector: Any) -> None:
        self.evaluator = evaluator
        self.stream = stream
        self.detector = detector
        self.history: list[Evaluation] = []
        self.correct: list[int] = []
        self.sizes: list[int] = []
        self.changes: list[int] = []
        self.moment = 0  # how many samples had arrived when the last batch was learnt
        self.task: int | None = None  # according to the stream
        self.concepts: set[int] = set()  # every concept that was ever in force
        self.prototypes: dict[Label, torch.Tensor] = {}  # at the last evaluation
        self.evaluated_at = -1  # batches learnt at the last evaluation; -1 if the learner changed since
        self._concept_count = len(stream.tests)
        self._worker: EvaluationWorker | None = None

    def __enter__(self) -> Monitor:
        if self.evaluator.asynchronous:
            self._worker = EvaluationWorker(self.evaluator)
        return self

    def __exit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    @property
    def predicts(self) -> bool:
        """Whether every batch is predicted before it is learnt."""
        return self.evaluator.prequential or self.detector is not None

    def predict(self, learner: Learner, batch: Batch, arrived: int) -> list[bool]:
        """Test, then train: which samples of a batch are predicted correctly before it is learnt.

        Samples without a label that the learner skips are left out. arrived: how many samples have arrived, this
        batch included.
        """
        truth = labels_of(learner, batch.y, f"{type(learner).__name__}.observe")
        counted = [place for place, label in enumerate(truth) if counts(learner, label)]
        predicted = learner.predict(batch.x) if learner.classes else []
        correct = [place < len(predicted) and predicted[place] == truth[place] for place in counted]
        self.correct.append(sum(correct))
        self.sizes.append(len(correct))
        if self.detector is not None:
            for place, is_correct in zip(counted, correct, strict=True):
                self.detector.update(0 if is_correct else 1)
                if self.detector.drift_detected:
                    self.changes.append(arrived - len(truth) + place + 1)
        return correct

    def batch_learnt(self, samples: int, arrived: int) -> None:
        """Note that a batch was learnt. samples: how many had arrived with it; arrived: how many have by now."""
        if len(self.concepts) < self._concept_count:
            self.concepts.update(self.stream.current(samples))
        self.moment = arrived

    def evaluate(self, learner: Learner, watch: Stopwatch) -> None:
        """Evaluate the learner, unless this has just been done or there is nothing to evaluate on.

        watch: measures the learner's time, which does not include evaluation.
        """
        if self.evaluated_at == learner.batches:
            return
        tests, current, met = self._tests()
        if not tests:
            return
        self.evaluated_at = learner.batches
        before, self.prototypes = self.prototypes, getattr(learner, "prototypes", {})
        arguments = (tests, self.task or 0, current, met, before)
        if self._worker is not None:
            self._worker.submit(learner, *arguments)
        else:
            with watch.stopped():
                self.history.append(self.evaluator.evaluate(learner, *arguments))

    def collect(self, wait: bool = False) -> None:
        """Add the evaluations that the asynchronous evaluator has ready; with `wait`, all it was given."""
        if self._worker is not None:
            self.history += self._worker.collect(wait)

    def embedding(self, learner: Learner) -> Embedding | None:
        """Some held-out samples and the prototypes as the learner embeds them now, for a picture."""
        concepts, _, met = self._tests()
        tests = [test for i, test in enumerate(concepts) if met is None or i in met]
        if not self.evaluator.representation or not tests:
            return None
        # Evenly spaced, because held-out samples are often sorted by class.
        steps = [-(-len(y) * len(tests) // EMBEDDED_SAMPLES) for _, y in tests]
        pairs = list(zip(tests, steps, strict=True))
        shown = [rows(x, range(0, len(y), step)) for (x, y), step in pairs]
        features = torch.cat([learner.embed(part) for x in shown for part in sample_chunks(x)]).cpu()
        labels = [label for (_, y), step in pairs for label in as_labels(y)[::step]]
        return Embedding(features, labels, getattr(learner, "prototypes", {}))

    def _tests(self) -> tuple[Sequence[tuple[Any, Any]], tuple[int, ...] | None, frozenset[int] | None]:
        """The held-out samples of each concept, the concepts in force, and all that were in force so far.

        The last two are None if the samples do not belong to the stream's concepts one by one.
        """
        static = self.evaluator.concepts == "static"
        tests = self.evaluator.tests
        if tests is None:
            tests = self.stream.tests if static else self.stream.tests_at(self.moment)
        if len(tests) != self._concept_count:
            return tests, None, None
        return tests, self.stream.current(self.moment), frozenset(self.concepts)
