"""Metrics as pure functions of a history of evaluations.

A(E_i, f_n) is the accuracy on the held-out samples E_i of task i at evaluation n of N. All are fractions.
Every metric except forward transfer uses only the tasks seen so far, so it does not change if the evaluator also
measures tasks that are still to come. docs/metrics.md has all formulas on one page.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from everlearn.evaluation.history import Evaluation, History, first_ends
from everlearn.memory.labels import Label
from everlearn.messages import is_whole

__all__ = [
    "Evaluation",
    "History",
    "accuracy",
    "accuracy_per_class",
    "accuracy_per_task",
    "anytime_accuracy",
    "area_under_accuracy",
    "backward_transfer",
    "confusion",
    "forgetting",
    "forward_transfer",
    "min_accuracy",
    "windowed_forgetting",
    "windowed_plasticity",
    "worst_case_accuracy",
]


# At the end


def accuracy(history: History) -> float:
    """Final accuracy: the mean over tasks seen of A(E_i, f_N).

    >>> from everlearn.evaluation.history import from_matrix
    >>> accuracy(from_matrix([[1.0], [0.5, 1.0]]))
    0.75
    """
    return _last(history).accuracy


def accuracy_per_task(history: History) -> dict[int, float]:
    """A(E_i, f_N) of each task i seen.

    >>> from everlearn.evaluation.history import from_matrix
    >>> accuracy_per_task(from_matrix([[1.0], [0.5, 1.0]]))
    {0: 0.5, 1: 1.0}
    """
    return dict(_last(history).seen_accuracies)


def accuracy_per_class(history: History) -> dict[Label, float]:
    """The share of each class's held-out samples that are predicted correctly: C_cc / Σ_j C_cj at the end.

    Classes with no held-out sample are left out.

    >>> last = Evaluation(1, 10, 0, {0: 0.8}, ("cat", "dog"), np.array([[3, 1], [0, 6]]))
    >>> accuracy_per_class([last])
    {'cat': 0.75, 'dog': 1.0}
    """
    last = _last(history)
    right, total = last.confusion.diagonal(), last.confusion.sum(1)
    return {last.labels[c]: float(right[c] / total[c]) for c in total.nonzero()[0]}


def confusion(history: History) -> NDArray[np.int64]:
    """The confusion matrix at the end: C_cj held-out samples of class c were predicted as class j.

    >>> confusion([Evaluation(1, 10, 0, {0: 0.8}, ("cat", "dog"), np.array([[3, 1], [0, 6]]))])
    array([[3, 1],
           [0, 6]])
    """
    return _last(history).confusion


# Over the stream


def anytime_accuracy(history: History) -> float:
    """Average anytime accuracy: the mean over evaluations of the mean over tasks seen.

    >>> from everlearn.evaluation.history import from_matrix
    >>> anytime_accuracy(from_matrix([[1.0], [0.5, 0.5]]))
    0.75
    """
    _last(history)
    return _mean(evaluation.accuracy for evaluation in history if evaluation.seen_accuracies)


def area_under_accuracy(history: History) -> float:
    """The area under accuracy over samples seen, by trapezoids, divided by the span of samples.

    Σ_n (s_n − s_{n−1}) · (a_n + a_{n−1})/2 / (s_N − s_1), with a_n the mean over tasks seen at s_n samples.
    A single evaluation has no span: then this is the accuracy there.

    >>> from everlearn.evaluation.history import from_matrix
    >>> area_under_accuracy(from_matrix([[1.0], [0.5, 0.5], [0.5, 0.5, 0.5]]))
    0.625
    """
    _last(history)
    measured = [evaluation for evaluation in history if evaluation.seen_accuracies]
    samples = np.array([evaluation.samples for evaluation in measured], np.float64)
    height = np.array([evaluation.accuracy for evaluation in measured], np.float64)
    if not measured or samples[-1] == samples[0]:
        return _mean(height)
    return float(np.sum(np.diff(samples) * (height[1:] + height[:-1]) / 2) / (samples[-1] - samples[0]))


# The worst moment


def min_accuracy(history: History) -> float:
    """min-ACC_k: the mean over tasks i before the current one of the lowest A(E_i, f_n) since i ended.

    A task that came back counts from its first end. nan if no task has ended.

    >>> from everlearn.evaluation.history import from_matrix
    >>> min_accuracy(from_matrix([[1.0], [0.5, 1.0], [0.75, 1.0, 1.0]]))
    0.75
    """
    return _mean(_lowest_since_end(history).values())


def worst_case_accuracy(history: History) -> float:
    """WC-ACC = A(E_k, f_N)/k + (1 − 1/k) · min-ACC_k, with k tasks so far and the k-th being learnt.

    If no task has ended, this is the accuracy; if the current task wasn't measured, min-ACC.

    >>> from everlearn.evaluation.history import from_matrix
    >>> worst_case_accuracy(from_matrix([[1.0], [0.5, 1.0]]))
    0.75
    """
    last = _last(history)
    lowest = _lowest_since_end(history)
    if not lowest:
        return last.accuracy
    if last.task not in last.seen_accuracies:
        return _mean(lowest.values())
    k = len(lowest) + 1
    return last.seen_accuracies[last.task] / k + (1 - 1 / k) * _mean(lowest.values())


def windowed_forgetting(history: History, window: int = 10) -> float:
    """WF^Δ: the mean over tasks seen of the largest fall of A(E_i, f) inside any window of Δ evaluations.

    WF^Δ = mean over i of max over m ≤ n < m + Δ of A(E_i, f_m) − A(E_i, f_n), with Δ the `window`. A task whose
    accuracy never falls has 0, as in the released code of the paper; by its formula, which has m < n, the smallest
    rise of such a task would count as a negative fall.

    >>> from everlearn.evaluation.history import from_matrix
    >>> windowed_forgetting(from_matrix([[1.0], [0.75, 1.0], [0.25, 1.0, 1.0]]), window=2)
    0.16666666666666666

    De Lange, M. et al. Continual evaluation for lifelong learning: Identifying the stability gap. ICLR 2023.
    """
    return _mean(_largest_fall(curve, window) for curve in _curves(history, window))


def windowed_plasticity(history: History, window: int = 10) -> float:
    """WP^Δ: the mean over tasks seen of the largest rise of A(E_i, f) inside any window of Δ evaluations.

    WP^Δ = mean over i of max over m ≤ n < m + Δ of A(E_i, f_n) − A(E_i, f_m), with Δ the `window`; 0 for a task whose
    accuracy never rises, as for `windowed_forgetting`.

    >>> from everlearn.evaluation.history import from_matrix
    >>> windowed_plasticity(from_matrix([[0.25], [0.75, 0.5]]), window=2)
    0.25
    """
    return _mean(_largest_fall(-curve, window) for curve in _curves(history, window))


# From task to task


def forgetting(history: History) -> float:
    """The mean over earlier tasks of how far A(E_i, f_N) is below the best it was before.

    F = mean over i of max over n < N of A(E_i, f_n) − A(E_i, f_N). It is negative if the earlier tasks end above
    their best so far. Tasks that were not measured before the last evaluation don't count; nan if none counts, and 0
    if no task has ended.

    >>> from everlearn.evaluation.history import from_matrix
    >>> forgetting(from_matrix([[1.0], [0.25, 1.0]])), forgetting(from_matrix([[0.5], [0.75, 1.0]]))
    (0.75, -0.25)

    Chaudhry, A. et al. Riemannian Walk for Incremental Learning: Understanding Forgetting and Intransigence.
    ECCV 2018.
    """
    now = _last(history).seen_accuracies
    earlier = _earlier(history)
    losses = []
    for i in earlier:
        before = [e.seen_accuracies[i] for e in history[:-1] if i in e.seen_accuracies]
        if before and i in now:
            losses.append(max(before) - now[i])
    return _mean(losses) if earlier else 0.0


def backward_transfer(history: History) -> float:
    """BWT: the mean over earlier tasks of A(E_i, f_N) less what it was when task i first ended.

    That is the last evaluation while task i was first being learnt; tasks without one don't count.
    nan if none counts.

    >>> from everlearn.evaluation.history import from_matrix
    >>> backward_transfer(from_matrix([[0.75], [0.5, 1.0]]))
    -0.25
    """
    now = _last(history).seen_accuracies
    gains = []
    for i, end in _earlier(history).items():
        learnt = [e.seen_accuracies[i] for e in history[:end] if e.task == i and i in e.seen_accuracies]
        if learnt and i in now:
            gains.append(now[i] - learnt[-1])
    return _mean(gains)


def forward_transfer(history: History, chance: float | Mapping[int, float] | None = None) -> float:
    """FWT: the mean over tasks of A(E_i, f) at the last evaluation before task i began, less chance.

    GEM subtracts b_i, the accuracy on task i of the network at initialisation. A learner here has no classes to
    predict and no network before its first batch, so no evaluation has b_i, and the accuracy of a random guess stands
    for it. If you measured b_i of a network of your own, pass it.

    chance: by default 1 / the number of classes; or b_i for each task i, of which those without one don't count.
    Only an evaluator with `horizon="all"` measures tasks that have not begun; nan if none was measured, or if the
    number of classes isn't known.

    >>> from everlearn.evaluation.history import from_matrix
    >>> forward_transfer(from_matrix([[1.0, 0.75], [0.5, 1.0]], classes=2))
    0.25
    >>> forward_transfer(from_matrix([[1.0, 0.75], [0.5, 1.0]]), chance={0: 0.5, 1: 0.625})
    0.125

    Lopez-Paz, D. and Ranzato, M. Gradient Episodic Memory for Continual Learning. NeurIPS 2017.
    """
    begun = set(_last(history).seen_accuracies)
    if isinstance(chance, Mapping):
        begun &= chance.keys()
    before: dict[int, float] = {}
    for evaluation in history:
        guess = 1 / (len(evaluation.labels) or math.nan) if chance is None else chance
        unseen = evaluation.accuracies.keys() - evaluation.seen_accuracies.keys()
        for i in unseen & begun:
            before[i] = evaluation.accuracies[i] - (guess[i] if isinstance(guess, Mapping) else guess)
    return _mean(before.values())


# Helpers


def _last(history: History) -> Evaluation:
    if not history:
        raise ValueError("the history is empty: evaluate the learner at least once")
    return history[-1]


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return float(np.mean(values)) if values else math.nan


def _earlier(history: History) -> dict[int, int]:
    """The tasks that have ended, the one being learnt apart, with the first evaluation after their end."""
    current = _last(history).task
    return {task: place for task, place in first_ends(history).items() if task != current}


def _lowest_since_end(history: History) -> dict[int, float]:
    """For each earlier task that was measured since it ended, the lowest A(E_i, f_n)."""
    lowest = {}
    for i, end in _earlier(history).items():
        since = [e.seen_accuracies[i] for e in history[end:] if i in e.seen_accuracies]
        if since:
            lowest[i] = min(since)
    return lowest


def _curves(history: History, window: int) -> list[NDArray[np.float64]]:
    """A(E_i, f_n) over all evaluations n, for each task i ever seen; nan where it was not measured."""
    _last(history)
    if not is_whole(window, least=2):
        raise ValueError(f"a window has at least 2 evaluations, not {window!r}")
    tasks = dict.fromkeys(task for evaluation in history for task in evaluation.seen_accuracies)
    return [np.array([e.seen_accuracies.get(task, math.nan) for e in history]) for task in tasks]


def _largest_fall(curve: NDArray[np.float64], window: int) -> float:
    """The largest fall of the curve from any point to a later one in the same window."""
    window = min(window, len(curve))
    measured = ~np.isnan(curve)
    padded = np.concatenate([np.full(window - 1, -np.inf), np.where(measured, curve, -np.inf)])
    highest = np.lib.stride_tricks.sliding_window_view(padded, window).max(1)
    return float((highest - curve)[measured].max())
