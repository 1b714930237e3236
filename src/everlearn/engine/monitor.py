"""What is seen of a learner while it runs: its predictions before each batch, and the evaluator's looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.engine.result import Embedding
from everlearn.engine.timing import Stopwatch
from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.worker import EvaluationWorker
from everlearn.memory.labels import Label, as_labels
from everlearn.streams.base import Batch, Stream

__all__ = ["Lookout"]

# So many held-out samples make a picture of the embedding, and stay few enough to keep with a result.
IN_A_PICTURE = 1000


class Lookout:
    """Where the evaluator stands in a run: what it knows of the stream, and what it has seen of the learner.

    history, correct, sizes, changes: as a `Result` has them.
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
        self.task: int | None = None  # what the stream says
        self.met: set[int] = set()  # the concepts that were ever in force
        self._concepts = len(stream.tests)
        self.prototypes: dict[Label, torch.Tensor] = {}  # at the last look
        self.looked = -1  # how many batches had been learnt at the last look; -1 if that is no longer so

    def predict(self, learner: Learner, batch: Batch, arrived: int) -> list[bool]:
        """Test, then train: which samples of a batch are predicted rightly before it is learnt.

        arrived: how many samples had come with it.
        """
        truth = as_labels(batch.y)
        right = [False] * len(truth)
        if learner.classes:
            predicted = learner.predict(batch.x)
            right = [guess == label for guess, label in zip(predicted, truth, strict=False)]
        self.correct.append(sum(right))
        self.sizes.append(len(truth))
        if self.detector is not None:
            for place, is_right in enumerate(right):
                self.detector.update(0 if is_right else 1)
                if self.detector.drift_detected:
                    self.changes.append(arrived - len(right) + place + 1)
        return right

    def learnt(self, until: int, arrived: int) -> None:
        """A batch was learnt. until: how many samples had come with it; arrived: how many have by now."""
        if len(self.met) < self._concepts:
            self.met.update(self.stream.current(until))
        self.moment = arrived

    def look(self, learner: Learner, watch: Stopwatch, worker: EvaluationWorker | None) -> None:
        """Let the evaluator look, unless it has just looked or there is nothing to look at.

        watch: the learner's time, of which evaluation takes none. worker: who evaluates meanwhile, if any does.
        """
        if self.looked == learner.batches:
            return
        tests, current, met = self._asked()
        if not tests:
            return
        self.looked = learner.batches
        before, self.prototypes = self.prototypes, getattr(learner, "prototypes", {})
        asked = (tests, self.task or 0, current, met, before)
        if worker is not None:
            worker.submit(learner, *asked)
        else:
            with watch.stopped():
                self.history.append(self.evaluator.evaluate(learner, *asked))

    def embedding(self, learner: Learner) -> Embedding | None:
        """Some held-out samples and the prototypes as the learner places them now, for a picture."""
        concepts, _, met = self._asked()
        tests = [test for i, test in enumerate(concepts) if met is None or i in met]
        if not self.evaluator.representation or not tests:
            return None
        # From all over each concept, since held-out samples often lie class by class.
        steps = [-(-len(y) * len(tests) // IN_A_PICTURE) for _, y in tests]
        pairs = list(zip(tests, steps, strict=True))
        features = torch.cat([learner.embed(x[::step]) for (x, _), step in pairs]).cpu()
        labels = [label for (_, y), step in pairs for label in as_labels(y[::step])]
        return Embedding(features, labels, getattr(learner, "prototypes", {}))

    def _asked(self) -> tuple[Sequence[tuple[Any, Any]], tuple[int, ...] | None, frozenset[int] | None]:
        """Held-out samples of each concept, as the evaluator wants them; which are in force, and which ever were.

        None for these two where the samples aren't of the stream's concepts one by one.
        """
        static = self.evaluator.concepts == "static"
        tests = self.evaluator.tests
        if tests is None:
            tests = self.stream.tests if static else self.stream.tests_at(self.moment)
        if len(tests) != self._concepts:
            return tests, None, None
        return tests, self.stream.current(self.moment), frozenset(self.met)
