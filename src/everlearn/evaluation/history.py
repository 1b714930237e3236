"""What the evaluator measured over time: a history is a sequence of evaluations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from everlearn.memory.labels import Label

__all__ = ["Evaluation", "History", "first_ends", "from_matrix"]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What the evaluator measured at one moment.

    batches, samples: how much the learner had observed. task: the task it was learning.
    accuracies: A(E_i, f) of each task i that was measured, seen or not.
    labels, confusion: how often a sample of the row's label was predicted as the column's.
    seen: the tasks of which a class was seen; by default all that were measured.
    exemplars: how many samples of each class the replay memory held.
    prototype_truth: the cosine between each prototype and the current mean of its class.
    variance: intra-class and inter-class variance of the embedding.
    prototype_shift: how far each prototype moved since the last evaluation.

    >>> zero_shot = Evaluation(10, 100, 0, {0: 0.75, 1: 0.5}, (), np.zeros((0, 0), int), seen=(0,))
    >>> zero_shot.seen_accuracies, zero_shot.accuracy
    ({0: 0.75}, 0.75)
    """

    batches: int
    samples: int
    task: int
    accuracies: dict[int, float]
    labels: tuple[Label, ...]
    confusion: NDArray[np.int64]
    seen: tuple[int, ...] | None = None
    exemplars: dict[Label, int] = dataclasses.field(default_factory=dict)
    prototype_truth: dict[Label, float] = dataclasses.field(default_factory=dict)
    variance: tuple[float, float] | None = None
    prototype_shift: dict[Label, float] = dataclasses.field(default_factory=dict)

    @property
    def seen_accuracies(self) -> dict[int, float]:
        """A(E_i, f) of each task i seen."""
        if self.seen is None:
            return self.accuracies
        return {task: value for task, value in self.accuracies.items() if task in self.seen}

    @property
    def accuracy(self) -> float:
        """The unweighted mean over the tasks seen; nan where none was measured."""
        return float(np.mean(list(self.seen_accuracies.values()))) if self.seen_accuracies else math.nan


History = Sequence[Evaluation]


def from_matrix(accuracies: Sequence[Sequence[float]], classes: int = 0) -> list[Evaluation]:
    """The history of a run that was evaluated after each of its tasks, from the usual matrix R.

    accuracies: row n holds the accuracy on each task after task n; right of the diagonal is zero-shot, and nan
        means not measured.
    classes: how many there are in all.

    >>> history = from_matrix([[0.9, 0.1], [0.7, 0.8]])
    >>> history[0].accuracies, history[0].seen_accuracies, history[1].accuracy
    ({0: 0.9, 1: 0.1}, {0: 0.9}, 0.75)
    """
    return [
        Evaluation(
            batches=task + 1,
            samples=task + 1,
            task=task,
            accuracies={i: float(value) for i, value in enumerate(row) if not math.isnan(value)},
            labels=tuple(range(classes)),
            confusion=np.zeros((classes, classes), np.int64),
            seen=tuple(range(task + 1)),
        )
        for task, row in enumerate(accuracies)
    ]


def first_ends(history: History) -> dict[int, int]:
    """For every task that has ended, the index in the history of the first evaluation after its end.

    A task ends when another one begins; if it comes back later, its first end counts. A task that no evaluation
    found being learnt has ended as soon as one with a higher number is being learnt.

    >>> first_ends(from_matrix([[0.9], [0.7, 0.8], [0.7, 0.7, 0.9]]))
    {0: 1, 1: 2}
    """
    observed_tasks = {evaluation.task for evaluation in history}
    begun: set[int] = set()
    ends: dict[int, int] = {}
    for place, evaluation in enumerate(history):
        missed = {
            task for task in evaluation.seen_accuracies.keys() - observed_tasks if task < evaluation.task
        }
        for task in sorted((begun | missed) - {evaluation.task}):
            ends.setdefault(task, place)
        begun.add(evaluation.task)
    return ends
