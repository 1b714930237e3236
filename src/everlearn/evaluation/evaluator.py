"""The second agent: it watches the learner and changes nothing in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch

from everlearn.core.learner import Learner
from everlearn.core.snapshot import Snapshot
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.representation import prototype_shift, prototype_truth, variance
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label, as_labels
from everlearn.messages import is_whole
from everlearn.streams.user_stream import as_tests

__all__ = ["Evaluator", "Tests"]

Tests = Sequence[tuple[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Measures a learner on held-out samples, when and on what it is told.

    every: ρ, look after every so many batches; None for task transitions and the end alone.
    transitions: whether to look when a task ends.
    horizon: D_eval. `seen`: samples of classes seen so far; `all`: also what was not seen yet (zero-shot);
        `current`: the concepts in force at the moment.
    concepts: `static`, held-out samples as the stream's tests have them; `evolving`, as the stream is
        distributed at the moment.
    tests: held-out samples and labels, `(x, y)`, or a pair for each concept; by default the stream's own.
    confined: whether predictions are confined to the classes of each task (task-incremental).
    prequential: whether every batch is also predicted before it is learnt (test, then train).
    representation: whether to measure how true prototypes are, and the variance of the embedding.
    asynchronous: look at a snapshot in a process of its own while the learner goes on.

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

    def __post_init__(self) -> None:
        if self.every is not None and not is_whole(self.every, least=1):
            raise ValueError(f"every is a number of batches of at least 1, or None, not {self.every!r}")
        for name, known in (("horizon", ("seen", "all", "current")), ("concepts", ("static", "evolving"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {getattr(self, name)!r}")
        if self.tests is not None:
            object.__setattr__(self, "tests", as_tests(self.tests))

    def due(self, batches: int, transition: bool) -> bool:
        """Whether to look now, after so many batches; `transition` says that a task has just ended."""
        return (transition and self.transitions) or (self.every is not None and batches % self.every == 0)

    def evaluate(
        self,
        learner: Learner | Snapshot,
        tests: Tests | None = None,
        task: int = 0,
        current: Collection[int] | None = None,
        met: Collection[int] | None = None,
        before: Mapping[Label, torch.Tensor] | None = None,
    ) -> Evaluation:
        """Look at the learner now.

        tests: held-out samples and labels of each concept; by default the evaluator's. task: the one being learnt.
        current, met: the concepts in force, and all that ever were; by default every one of which a class was seen.
        before: the prototypes at the last look, to tell how far they have moved.
        """
        tests = as_tests(tests) if tests is not None else self.tests
        if tests is None:
            raise ValueError("there is nothing to evaluate on: give tests here or to the Evaluator")
        seen = set(learner.classes)
        truths = [as_labels(y) for _, y in tests]
        labels: list[Label] = sorted({label for truth in truths for label in truth} | seen, key=_natural)
        labels += [UNKNOWN] if learner.settings.unknown is not None else []
        places = {label: place for place, label in enumerate(labels)}
        confusion = np.zeros((len(labels), len(labels)), np.int64)
        accuracies: dict[int, float] = {}
        looked_at: list[tuple[Any, list[Label]]] = []
        met = range(len(truths)) if met is None else met
        current = met if current is None else current
        wanted = {"seen": met, "all": range(len(truths)), "current": current}[self.horizon]
        for concept, ((x, _), truth) in enumerate(zip(tests, truths, strict=True)):
            if concept not in wanted:
                continue
            asked = [i for i, label in enumerate(truth) if self.horizon == "all" or label in seen]
            if not asked:
                continue
            if len(asked) < len(truth):
                x, truth = torch.as_tensor(x)[asked], [truth[i] for i in asked]
            rows = np.array([places[label] for label in truth])
            columns = np.array([places[label] for label in self._predict(learner, x, set(truth))])
            np.add.at(confusion, (rows, columns), 1)
            accuracies[concept] = float((rows == columns).mean())
            looked_at.append((x, truth))
        return Evaluation(
            learner.batches,
            learner.samples,
            task,
            accuracies,
            tuple(labels),
            confusion,
            seen=tuple(i for i in accuracies if i in met and not seen.isdisjoint(truths[i])),
            exemplars=learner.exemplars(),
            **self._representation(learner, looked_at, before or {}),
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
        looked_at: list[tuple[Any, list[Label]]],
        before: Mapping[Label, Any],
    ) -> dict[str, Any]:
        prototypes = getattr(learner, "prototypes", {})
        found: dict[str, Any] = {"prototype_shift": prototype_shift(before, prototypes)}
        if self.representation and looked_at:
            features = torch.cat([learner.embed(x) for x, _ in looked_at])
            labels = [label for _, truth in looked_at for label in truth]
            found["prototype_truth"] = prototype_truth(features, labels, prototypes)
            found["variance"] = variance(features, labels)
        return found


def _natural(label: Any) -> tuple[str, Any]:
    """Numbers in order, words in order, and no comparison across types."""
    return ("", label) if isinstance(label, int | float) else (type(label).__name__, str(label))
