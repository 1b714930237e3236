"""Metrics as pure functions of a history of evaluations.

A(E_i, f_n) is the accuracy on the held-out samples E_i of task i after evaluation n. All are fractions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from everlearn.memory.labels import Label

__all__ = ["Evaluation", "accuracy", "anytime_accuracy", "forgetting", "worst_case_accuracy"]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What the evaluator saw at one moment.

    batches, samples: how much the learner had observed. task: the task it was learning.
    accuracies: A(E_i, f) of each task i of which a class was seen.
    labels, confusion: how often a sample of the row's label was predicted as the column's.
    """

    batches: int
    samples: int
    task: int
    accuracies: dict[int, float]
    labels: tuple[Label, ...]
    confusion: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """The unweighted mean over the tasks seen."""
        return float(np.mean(list(self.accuracies.values()))) if self.accuracies else float("nan")


History = Sequence[Evaluation]


def accuracy(history: History) -> float:
    """Final accuracy: the mean over tasks of A(E_i, f) at the end."""
    return history[-1].accuracy


def anytime_accuracy(history: History) -> float:
    """Average anytime accuracy: the mean over evaluations of the mean over tasks seen."""
    return float(np.mean([evaluation.accuracy for evaluation in history]))


def worst_case_accuracy(history: History) -> float:
    """WC-ACC = A(E_k, f)/k + (1 − 1/k) · min-ACC_k, with k tasks seen and the k-th the newest.

    min-ACC_k is the mean over the earlier tasks i of the lowest A(E_i, f_n) of any evaluation n after task i
    had ended.
    """
    last = history[-1]
    earlier = [task for task in last.accuracies if task < last.task]
    newest = last.accuracies[last.task] if last.task in last.accuracies else last.accuracy
    if not earlier:
        return last.accuracy
    lowest = [min(e.accuracies[i] for e in history if e.task > i and i in e.accuracies) for i in earlier]
    k = len(earlier) + 1
    return newest / k + (1 - 1 / k) * float(np.mean(lowest))


def forgetting(history: History) -> float:
    """The mean over earlier tasks of how far A(E_i, f) ended below the best it ever was."""
    last = history[-1]
    earlier = [task for task in last.accuracies if task < last.task]
    if not earlier:
        return 0.0
    best = [max(e.accuracies[i] for e in history if i in e.accuracies) for i in earlier]
    return float(np.mean([b - last.accuracies[i] for b, i in zip(best, earlier, strict=True)]))
