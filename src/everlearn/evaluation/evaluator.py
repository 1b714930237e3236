"""The second agent: it watches the learner and changes nothing in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from everlearn.evaluation.metrics import Evaluation
from everlearn.learners.base import Learner

__all__ = ["Evaluator"]


class Evaluator:
    """Measures a learner on held-out samples of the classes it has seen so far.

    every: ρ, evaluate after every so many batches; None for task transitions and the end alone.
    tests: the held-out samples and labels of each concept; by default the stream's own.

    >>> Evaluator(every=500).due(batches=1000, transition=False)
    True
    """

    def __init__(self, every: int | None = None, tests: Sequence[tuple[Any, Any]] | None = None) -> None:
        if every is not None and every < 1:
            raise ValueError(f"every is a number of batches of at least 1, or None, not {every}")
        self.every = every
        self.tests = tests

    def due(self, batches: int, transition: bool) -> bool:
        """Whether to look now, after so many batches; `transition` says that a task has just ended."""
        return transition or (self.every is not None and batches % self.every == 0)

    def evaluate(self, learner: Learner, tests: Sequence[tuple[Any, Any]], task: int = 0) -> Evaluation:
        """Look at the learner now: all tasks, each confined to the samples whose label was seen."""
        seen = set(learner.classes)
        labels = sorted({label for _, y in tests for label in _as_list(y)} | seen, key=_natural)
        places = {label: place for place, label in enumerate(labels)}
        confusion = np.zeros((len(labels), len(labels)), np.int64)
        accuracies: dict[int, float] = {}
        for concept, (x, y) in enumerate(tests):
            truth = _as_list(y)
            known = [i for i, label in enumerate(truth) if label in seen]
            if not known:
                continue
            rows = np.array([places[truth[i]] for i in known])
            predicted = learner.predict(x if len(known) == len(truth) else x[torch.tensor(known)])
            columns = np.array([places[label] for label in predicted])
            np.add.at(confusion, (rows, columns), 1)
            accuracies[concept] = float((rows == columns).mean())
        return Evaluation(learner.batches, learner.samples, task, accuracies, tuple(labels), confusion)


def _as_list(y: Any) -> list[Any]:
    return y.tolist() if hasattr(y, "tolist") else list(y)


def _natural(label: Any) -> tuple[str, Any]:
    """Numbers in order, words in order, and no comparison across types."""
    return ("", label) if isinstance(label, (int, float)) else (type(label).__name__, str(label))
