"""Accuracy over the stream: all learners in one panel, or all tasks of each learner in its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from everlearn.evaluation.history import History
from everlearn.plots import style
from everlearn.plots.style import Histories

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy_over_stream", "accuracy_per_task", "anytime_accuracy_over_stream"]

Curve = NDArray[np.float64]


def accuracy_over_stream(histories: Histories) -> Figure:
    """Accuracy on the tasks seen, over samples seen: a line per learner, a band of ± one std over seeds.

    >>> from everlearn.evaluation.history import from_matrix
    >>> figure = accuracy_over_stream({"cope": [from_matrix([[0.9], [0.7, 0.8]])]})
    >>> figure.axes[0].lines[-1].get_ydata().tolist()
    [90.0, 75.0]
    """
    return _lines(histories, _accuracies, "accuracy on the tasks seen, %")


def anytime_accuracy_over_stream(histories: Histories) -> Figure:
    """Average anytime accuracy so far, over samples seen: a line per learner, a band of ± one std over seeds.

    >>> from everlearn.evaluation.history import from_matrix
    >>> figure = anytime_accuracy_over_stream({"cope": [from_matrix([[0.9], [0.7, 0.8]])]})
    >>> figure.axes[0].lines[-1].get_ydata().tolist()
    [90.0, 82.5]
    """
    return _lines(histories, _running_means, "average anytime accuracy, %")


def accuracy_per_task(histories: Histories) -> Figure:
    """A(E_i, f) of each task i over samples seen, the mean over seeds: a panel per learner, a line per task.

    The dark line is the mean over the tasks seen.

    >>> from everlearn.evaluation.history import from_matrix
    >>> figure = accuracy_per_task({"cope": [from_matrix([[0.9], [0.7, 0.8]])]})
    >>> [line.get_label() for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    ['task 1', 'task 2', 'mean']
    """
    figure, axes = style.over_stream(len(histories), "accuracy, %")
    for ax, (name, runs) in zip(axes, histories.items(), strict=True):
        tasks = sorted({task for history in runs for e in history for task in e.seen_accuracies})
        colours = dict(zip(tasks, style.colours_in_order(len(tasks)), strict=True))
        few = len(tasks) <= 10
        _percent(ax)
        style.mark_transitions(ax, runs[0], colours)
        ends = []
        for task in tasks:
            mean = over_seeds(runs, partial(_of_task, task=task)).mean(0)
            width = 1.5 if few else 1
            _draw(ax, runs[0], mean, color=colours[task], linewidth=width, label=f"task {task + 1}")
            ends.append((mean[-1], str(task + 1), colours[task]))
        mean = over_seeds(runs, _accuracies).mean(0)
        _draw(ax, runs[0], mean, color=style.INK, linewidth=2.4, label="mean")
        # With many lines the labels would overlap; the coloured numbers above are enough.
        style.end_labels(ax, [*(ends if few else ()), (mean[-1], "mean", style.INK)], size=8)
        style.title(ax, name, name, list(histories))
    return figure


def _lines(histories: Histories, curve: Callable[[History], Curve], what: str) -> Figure:
    """A panel with a line per learner, labelled at its end with its last value."""
    figure, (ax,) = style.over_stream(1, what)
    _percent(ax)
    longest = max((runs[0] for runs in histories.values()), key=lambda history: history[-1].samples)
    style.mark_transitions(ax, longest)
    ends = []
    for name, runs in histories.items():
        line = style.line_of(name, list(histories))
        curves = over_seeds(runs, curve)
        mean = curves.mean(0)
        band = curves.std(0, ddof=1) if len(curves) > 1 else np.zeros(len(mean))
        low, high = (mean - band).clip(0, 100), (mean + band).clip(0, 100)
        ax.fill_between(samples_of(runs[0]), low, high, color=line["color"], alpha=0.18, linewidth=0)
        _draw(ax, runs[0], mean, linewidth=2, label=name, **line)
        ends.append((mean[-1], f"{name} {mean[-1]:.1f}", line["color"]))
    style.end_labels(ax, ends)
    return figure


def _percent(ax: Axes) -> None:
    ax.set_ylim(0, 101)
    ax.set_yticks(range(0, 101, 20))


def _draw(ax: Axes, history: History, curve: Curve, **line: Any) -> None:
    """A line, with a marker at each evaluation if they are few."""
    marker = "o" if len(history) <= 12 else ""
    ax.plot(samples_of(history), curve, marker=marker, markersize=3.5, clip_on=False, **line)


def samples_of(history: History) -> Curve:
    """How many samples the learner had seen at each evaluation."""
    return np.array([evaluation.samples for evaluation in history], np.float64)


def over_seeds(runs: Sequence[History], curve: Callable[[History], Curve]) -> Curve:
    """The curve of each run, interpolated at the evaluations of the first run, `[seeds, evaluations]`."""
    moments = samples_of(runs[0])
    return np.array([np.interp(moments, samples_of(history), curve(history)) for history in runs])


def _accuracies(history: History) -> Curve:
    return 100 * np.array([evaluation.accuracy for evaluation in history])


def _running_means(history: History) -> Curve:
    means: Curve = _accuracies(history).cumsum() / np.arange(1, len(history) + 1)
    return means


def _of_task(history: History, task: int) -> Curve:
    return 100 * np.array([evaluation.seen_accuracies.get(task, math.nan) for evaluation in history])
