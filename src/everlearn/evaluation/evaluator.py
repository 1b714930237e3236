"""The second agent: it measures the learner and changes nothing in it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from everlearn.core.learner import Learner
from everlearn.core.snapshot import Snapshot
from everlearn.evaluation import metrics
from everlearn.evaluation.history import Evaluation, History
from everlearn.evaluation.representation import prototype_shift, prototype_truth, variance
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label, as_labels
from everlearn.messages import is_whole
from everlearn.streams.lazy_samples import rows as sample_rows
from everlearn.streams.lazy_samples import sample_chunks
from everlearn.streams.user_stream import as_tests
from everlearn.threads import computing_with

__all__ = ["Evaluator", "Tests"]

Tests = Sequence[tuple[Any, Any]]

Metric = Callable[[History], float]
"""A number from all evaluations of a run so far."""

METRICS: dict[str, Metric] = {
    "accuracy": metrics.accuracy,
    "anytime_accuracy": metrics.anytime_accuracy,
    "worst_case_accuracy": metrics.worst_case_accuracy,
    "forgetting": metrics.forgetting,
}


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Measures a learner on held-out samples.

    every: ρ, evaluate after this many batches each time; None for task transitions and the end alone.
    transitions: whether to evaluate when a task ends.
    horizon: D_eval. `seen`: samples of the classes seen so far; `all`: also of classes not seen yet (zero-shot);
        `current`: of the concepts in force at the moment.
    concepts: `static`, held-out samples as in the stream's tests; `evolving`, as the stream is distributed now.
    tests: held-out samples and labels, `(x, y)`, or a pair for each concept; by default the stream's own.
    confined: whether predictions are limited to the classes of each task (task-incremental).
    prequential: whether every batch is also predicted before it is learnt (test, then train).
    representation: whether to measure how well prototypes match their classes, and the variance of the embedding.
    asynchronous: evaluate a snapshot in another process while the learner goes on.
    metrics: metrics of your own by name: functions of a history, a sequence of evaluations, that return a number.

    >>> from everlearn import CoPE, stream
    >>> learner, s = CoPE(hidden=50), stream("split-digits")
    >>> for x, y, t in s:
    ...     learner.observe(x, y)
    ...     if learner.batches == 60:
    ...         break
    >>> Evaluator().evaluate(learner, s.tests).accuracies.keys()
    dict_keys([0, 1, 2])
    """

    every: int | None = None
    transitions: bool = True
    horizon: Literal["seen", "all", "current"] = "seen"
    concepts: Literal["static", "evolving"] = "static"
    tests: Tests | None = None
    confined: bool = False
    prequential: bool = False
    representation: bool = False
    asynchronous: bool = False
    metrics: Mapping[str, Metric] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every is not None and not is_whole(self.every, least=1):
            raise ValueError(f"every is a number of batches of at least 1, or None, not {self.every!r}")
        for name, known in (("horizon", ("seen", "all", "current")), ("concepts", ("static", "evolving"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}")
        if not isinstance(self.metrics, Mapping):
            raise ValueError(f"metrics is a dict of functions by names, not {self.metrics!r}")
        for name, metric in self.metrics.items():
            if not isinstance(name, str) or not callable(metric) or name in METRICS:
                raise ValueError(
                    "metrics are functions of a history by names that are not one of the library's "
                    f"({', '.join(METRICS)}), not {name!r}: {metric!r}"
                )
        if self.tests is not None:
            object.__setattr__(self, "tests", as_tests(self.tests))

    def due(self, batches: int, transition: bool) -> bool:
        """Whether to evaluate now, after this number of batches. transition: whether a task has just ended."""
        return (transition and self.transitions) or (self.every is not None and batches % self.every == 0)

    def measure(self, history: History) -> dict[str, float]:
        """All metrics of a history, the library's and your own; nan where one is not defined.

        >>> from everlearn.evaluation.history import from_matrix
        >>> lowest = Evaluator(metrics={"lowest": lambda history: min(e.accuracy for e in history)})
        >>> lowest.measure(from_matrix([[0.9], [0.6, 0.8]]))["lowest"]
        0.7
        """
        if not history:
            return dict.fromkeys([*METRICS, *self.metrics], math.nan)
        return {name: float(metric(history)) for name, metric in METRICS.items()} | self.measure_own(history)

    def measure_own(self, history: History) -> dict[str, float]:
        """The metrics of your own, of a history with at least one evaluation."""
        found = {}
        for name, metric in self.metrics.items():
            try:
                found[name] = float(metric(history))
            except Exception as error:
                raise ValueError(
                    f"the metric {name!r} failed on a history of {len(history)} evaluations: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return found

    def evaluate(
        self,
        learner: Learner | Snapshot,
        tests: Tests | None = None,
        task: int = 0,
        current: Collection[int] | None = None,
        met: Collection[int] | None = None,
        before: Mapping[Label, torch.Tensor] | None = None,
    ) -> Evaluation:
        """Evaluate the learner as it is now.

        tests: held-out samples and labels of each concept; by default the evaluator's. task: the one being learnt.
        current, met: the concepts in force now, and at any time so far; by default all of which a class was seen.
        before: the prototypes at the last evaluation, to measure how far they moved.
        """
        tests = as_tests(tests) if tests is not None else self.tests
        if tests is None:
            raise ValueError("there is nothing to evaluate on: pass tests here or to the Evaluator")
        seen = set(learner.classes)
        truths = [as_labels(y) for _, y in tests]
        labels: list[Label] = sorted({label for truth in truths for label in truth} | seen, key=_natural)
        labels += [UNKNOWN] if learner.settings.unknown is not None else []
        places = {label: place for place, label in enumerate(labels)}
        confusion = np.zeros((len(labels), len(labels)), np.int64)
        accuracies: dict[int, float] = {}
        measured: list[tuple[Any, list[Label]]] = []
        met = range(len(truths)) if met is None else met
        current = met if current is None else current
        wanted = {"seen": met, "all": range(len(truths)), "current": current}[self.horizon]
        for concept, ((x, _), truth) in enumerate(zip(tests, truths, strict=True)):
            if concept not in wanted:
                continue
            chosen = [i for i, label in enumerate(truth) if self.horizon == "all" or label in seen]
            if not chosen:
                continue
            if len(chosen) < len(truth):
                x, truth = sample_rows(x, chosen), [truth[i] for i in chosen]
            rows = np.array([places[label] for label in truth])
            predicted = (self._predict(learner, part, set(truth)) for part in sample_chunks(x))
            columns = np.array([places[label] for labels_of_part in predicted for label in labels_of_part])
            np.add.at(confusion, (rows, columns), 1)
            accuracies[concept] = float((rows == columns).mean())
            measured.append((x, truth))
        return Evaluation(
            learner.batches,
            learner.samples,
            task,
            accuracies,
            tuple(labels),
            confusion,
            seen=tuple(i for i in accuracies if i in met and not seen.isdisjoint(truths[i])),
            exemplars=learner.exemplars(),
            **self._representation(learner, measured, before or {}),
        )

    def _predict(self, learner: Learner | Snapshot, x: Any, of_task: set[Label]) -> list[Label]:
        if not self.confined:
            return learner.predict(x)
        classes = learner.classes
        allowed = np.array([label in of_task for label in classes])
        if not allowed.any():
            return learner.predict(x)
        probabilities = np.where(allowed, learner.predict_proba(x), -1.0)
        return [classes[slot] for slot in probabilities.argmax(1).tolist()]

    def _representation(
        self,
        learner: Learner | Snapshot,
        measured: list[tuple[Any, list[Label]]],
        before: Mapping[Label, Any],
    ) -> dict[str, Any]:
        prototypes = getattr(learner, "prototypes", {})
        with computing_with(1):
            found: dict[str, Any] = {"prototype_shift": prototype_shift(before, prototypes)}
        if self.representation and measured:
            features = torch.cat([learner.embed(part) for x, _ in measured for part in sample_chunks(x)])
            labels = [label for _, truth in measured for label in truth]
            with computing_with(1):  # so that the last bit does not depend on the number of cores
                found["prototype_truth"] = prototype_truth(features, labels, prototypes)
                found["variance"] = variance(features, labels)
        return found


def _natural(label: Any) -> tuple[str, Any]:
    """A sort key: numbers in order, strings in order, no comparison across types."""
    return ("", label) if isinstance(label, int | float) else (type(label).__name__, str(label))
