"""Pictures of histories. matplotlib loads when the first one is drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from everlearn.evaluation.metrics import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accuracy_over_stream", "confusion_matrices"]

History = Sequence[Evaluation]

# One colour per method, everywhere.
COLOURS = {"cope": "#0b6fb8", "finetune": "#c8442e"}
INK, GRID = "#24292f", "#d0d7de"


def accuracy_over_stream(histories: Mapping[str, Sequence[History]], path: str | os.PathLike[str]) -> Path:
    """Accuracy on the classes seen, over the samples seen: a line per learner, a band of ± one std over seeds.

    histories: for each learner, a history per seed, all evaluated at the same moments.
    """
    figure, axes = _figure(1, 7.2, 3.9)
    ax = axes[0]
    for t, start in enumerate(_transitions(next(iter(histories.values()))[0])):
        ax.axvline(start, color=GRID, linewidth=1, zorder=0)
        ax.annotate(f"task {t + 1}", (start, 102), xytext=(4, 0), textcoords="offset points", fontsize=8, color="#57606a")
    for name, runs in histories.items():
        samples = [evaluation.samples for evaluation in runs[0]]
        curves = 100 * np.array([[evaluation.accuracy for evaluation in history] for history in runs])
        mean, spread = curves.mean(0), _std(curves)
        colour = COLOURS.get(name)
        (line,) = ax.plot(samples, mean, color=colour, linewidth=2, label=name)
        ax.fill_between(samples, mean - spread, mean + spread, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.annotate(
            f"{name} {mean[-1]:.1f}", (samples[-1], mean[-1]), xytext=(6, -3), textcoords="offset points",
            color=line.get_color(), fontweight="bold", fontsize=9, annotation_clip=False,
        )  # fmt: skip
    ax.set(xlabel="samples seen", ylabel="accuracy on the classes seen, %", ylim=(0, 108), xlim=(0, None))
    ax.set_yticks(range(0, 101, 20))
    ax.grid(axis="y", color=GRID, linewidth=0.6)
    return _save(figure, path)


def confusion_matrices(histories: Mapping[str, Sequence[History]], path: str | os.PathLike[str]) -> Path:
    """What each learner takes each class for at the end of the stream, in percent, summed over seeds."""
    figure, axes = _figure(len(histories), 3.9 * len(histories) + 0.6, 4.1)
    for ax, (name, runs) in zip(axes, histories.items(), strict=True):
        total = np.sum([history[-1].confusion for history in runs], axis=0)
        share = 100 * total / total.sum(1, keepdims=True).clip(min=1)
        labels = [str(label) for label in runs[0][-1].labels]
        image = ax.imshow(share, cmap="Blues", vmin=0, vmax=100)
        few = len(labels) <= 20
        for row, column in np.argwhere(share >= 0.5) if few else ():
            value = share[row, column]
            ink = "white" if value > 60 else INK
            ax.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=ink)
        if few:
            ax.set_xticks(range(len(labels)), labels)
            ax.set_yticks(range(len(labels)), labels)
        accuracy = 100 * np.mean([history[-1].accuracy for history in runs])
        ax.set_title(f"{name}: {accuracy:.1f} %", color=COLOURS.get(name, INK), fontweight="bold", fontsize=11)
        ax.set(xlabel="predicted", ylabel="true class")
        ax.tick_params(length=0)
    figure.colorbar(image, ax=axes, shrink=0.8, label="% of the true class")
    return _save(figure, path)


def _transitions(history: History) -> list[int]:
    """After how many samples each task began."""
    starts = [0]
    for before, after in zip(history, history[1:], strict=False):
        if after.task != before.task:
            starts.append(before.samples)
    return starts


def _std(curves: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return curves.std(0, ddof=1) if len(curves) > 1 else np.zeros(curves.shape[1])


def _figure(columns: int, width: float, height: float) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # type: ignore[no-untyped-call]
    axes = figure.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target
