"""Pictures by class: the confusion matrix, the composition of the memory, the drift of prototypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from everlearn.evaluation.history import History
from everlearn.memory.labels import Label
from everlearn.plots import style
from everlearn.plots.curves import Curve, over_seeds, samples_of
from everlearn.plots.style import Histories

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["confusion_matrices", "drift_over_stream", "memory_over_stream"]

Field = Literal["exemplars", "prototype_shift"]
Table = NDArray[np.float64]


def confusion_matrices(histories: Histories) -> Figure:
    """The confusion matrix of each learner at the end of the stream, in percent, summed over seeds.

    >>> import numpy as np
    >>> from everlearn.evaluation.history import Evaluation
    >>> end = Evaluation(1, 10, 0, {0: 0.8}, ("cat", "dog"), np.array([[3, 1], [0, 6]]))
    >>> confusion_matrices({"cope": [[end]]}).axes[0].images[0].get_array().tolist()
    [[75.0, 25.0], [0.0, 100.0]]
    """
    figure, axes = style.panels(len(histories), 4.1, 3.8)
    for ax, (name, runs) in zip(axes, histories.items(), strict=True):
        labels = runs[0][-1].labels
        if not labels:
            raise ValueError(f"the runs of {name} hold no confusion matrix to draw")
        if any(history[-1].labels != labels for history in runs):
            raise ValueError(f"the runs of {name} end with different classes: draw them one at a time")
        total = np.sum([history[-1].confusion for history in runs], axis=0)
        share = 100 * total / total.sum(1, keepdims=True).clip(min=1)
        image = ax.imshow(share, cmap="Blues", vmin=0, vmax=100)
        if len(labels) <= 12:
            _write_shares(ax, share)
        places = _some(len(labels), 12)
        words = [str(labels[place]) for place in places]
        ax.set_xticks(places, words, rotation=90 if max(map(len, words)) > 3 else 0)
        ax.set_yticks(places, words)
        ax.tick_params(length=0 if len(labels) <= 12 else 2)
        ax.spines[:].set_visible(True)
        ax.spines[:].set_color(style.GRID)
        ax.set(xlabel="predicted", ylabel="true class" if style.first_in_row(ax) else "")
        accuracy = 100 * np.mean([history[-1].accuracy for history in runs])
        style.title(ax, f"{name}: {accuracy:.1f} %", name, list(histories), pad=6)
    aspect = 20 * math.ceil(len(axes) / 4)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, aspect=aspect, label="% of the true class")
    bar.outline.set_visible(False)
    return figure


def _write_shares(ax: Axes, share: Table) -> None:
    for row, column in np.argwhere(share >= 0.5):
        value = share[row, column]
        ink = "white" if value > 60 else style.INK
        ax.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)


def memory_over_stream(histories: Histories) -> Figure:
    """How many exemplars of each class the replay memory holds, over samples seen, the mean over seeds.

    A panel per learner that has a memory; classes are stacked in the order in which they arrived.

    >>> import numpy as np
    >>> from everlearn.evaluation.history import Evaluation
    >>> end = Evaluation(1, 10, 0, {0: 0.8}, (), np.zeros((0, 0), int), exemplars={"cat": 4, "dog": 6})
    >>> len(memory_over_stream({"cope": [[end]]}).axes[0].collections)
    2
    """
    keeping = {name: runs for name, runs in histories.items() if _labels(runs, "exemplars")}
    if not keeping:
        raise ValueError(f"there is no memory to draw: {' and '.join(histories)} kept no exemplars")
    figure, axes = style.over_stream(len(keeping), "exemplars in the memory")
    for ax, (name, runs) in zip(axes, keeping.items(), strict=True):
        labels = _labels(runs, "exemplars")
        colours = style.colours_in_order(len(labels))
        kept = np.stack([over_seeds(runs, partial(_exemplars, label=label)).mean(0) for label in labels], 1)
        kept = np.concatenate([np.zeros((1, len(labels))), kept])  # it starts empty
        samples = [0, *samples_of(runs[0])]
        ax.stackplot(samples, kept.T, colors=colours, edgecolor="white", linewidth=0.5 * (len(labels) <= 20))
        ax.set_ylim(0, 1.01 * kept.sum(1).max())
        ax.yaxis.set_major_formatter("{x:,.0f}")
        style.mark_transitions(ax, runs[0])
        middles = kept[-1].cumsum() - kept[-1] / 2
        named = [place for place in _some(len(labels), 20) if kept[-1, place]]
        style.end_labels(ax, [(middles[c], str(labels[c]), colours[c]) for c in named], size=8)
        style.title(ax, name, name, list(histories))
    return figure


def drift_over_stream(histories: Histories) -> Figure:
    """How far each prototype moves in 100 samples, over samples seen, the mean over seeds.

    That is its shift since the last evaluation, divided by the samples in between, so evaluations need not be
    evenly spaced. A panel per learner that has prototypes, a line per class; the dark line is the mean.

    >>> import numpy as np
    >>> from everlearn.evaluation.history import Evaluation
    >>> blank = (0, {0: 0.8}, (), np.zeros((0, 0), int))
    >>> shifts = {100: {"cat": 0.1, "dog": 0.3}, 150: {"cat": 0.1, "dog": 0.1}}
    >>> history = [Evaluation(n // 10, n, *blank, prototype_shift=shift) for n, shift in shifts.items()]
    >>> drift_over_stream({"cope": [history]}).axes[0].lines[-1].get_ydata().tolist()
    [0.2, 0.2]
    """
    moving = {name: runs for name, runs in histories.items() if _labels(runs, "prototype_shift")}
    if not moving:
        raise ValueError(f"there is no drift to draw: {' and '.join(histories)} moved no prototypes")
    figure, axes = style.over_stream(len(moving), "distance moved per 100 samples")
    for ax, (name, runs) in zip(axes, moving.items(), strict=True):
        labels = _labels(runs, "prototype_shift")
        colours = style.colours_in_order(len(labels))
        samples = samples_of(runs[0])
        moved = np.stack([over_seeds(runs, partial(_speed, label=label)).mean(0) for label in labels], 1)
        for column, label in enumerate(labels):
            ax.plot(samples, moved[:, column], color=colours[column], linewidth=1, label=str(label))
        ax.plot(samples, _mean_of_known(moved), color=style.INK, linewidth=2.4, label="mean")
        ax.set_ylim(0, None)
        style.mark_transitions(ax, runs[0])
        style.title(ax, name, name, list(histories))
        _class_key(figure, ax, labels, colours)
    return figure


def _labels(runs: Sequence[History], field: Field) -> list[Label]:
    """The classes with a number in this field of any evaluation, in the order in which they arrived."""
    return list(dict.fromkeys(label for run in runs for e in run for label in getattr(e, field)))


def _exemplars(history: History, label: Label) -> Curve:
    return np.array([evaluation.exemplars.get(label, 0) for evaluation in history], np.float64)


def _speed(history: History, label: Label) -> Curve:
    """How far a prototype moved in 100 samples, at each evaluation; nan where unknown."""
    between = np.diff(samples_of(history), prepend=0)
    shifts = np.array([evaluation.prototype_shift.get(label, math.nan) for evaluation in history])
    return 100 * shifts / np.where(between, between, math.nan)


def _mean_of_known(table: Table) -> Curve:
    """The mean of each row without its nans; nan for a row that has nothing else."""
    known = ~np.isnan(table)
    means: Curve = np.where(known, table, 0).sum(1) / np.where(known.any(1), known.sum(1), math.nan)
    return means


def _some(count: int, most: int) -> range:
    """All of `count` positions if they are at most `most`, else every 2nd, 5th, 10th, 20th, …"""
    strides = (n * 10**k for k in range(9) for n in (1, 2, 5))
    return range(0, count, next(n for n in strides if count <= n * most))


def _class_key(figure: Figure, ax: Axes, labels: Sequence[Label], colours: Sequence[str]) -> None:
    """A colour bar beside the panel that names the classes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, NoNorm

    key = ScalarMappable(NoNorm(0, len(labels) - 1), ListedColormap(colours))
    bar = figure.colorbar(key, ax=ax, label="class", aspect=30, pad=0.02)
    places = _some(len(labels), 20)
    bar.set_ticks(list(places), labels=[str(labels[place]) for place in places], fontsize=8)
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
