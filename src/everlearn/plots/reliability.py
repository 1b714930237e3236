"""The reliability diagram: accuracy by confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from everlearn.evaluation.calibration import expected_calibration_error, reliability
from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["reliability_diagram"]

BINS = 10


def reliability_diagram(predictions: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Figure:
    """Accuracy over confidence, a panel per learner; on the diagonal, confidences are true.

    predictions: for each learner, the confidence of each prediction and whether it was right.

    >>> figure = reliability_diagram({"cope": ([0.9, 0.6, 0.6], [True, True, False])})
    >>> figure.axes[0].get_title()
    'cope: ECE 0.100'
    """
    if not predictions:
        raise ValueError("there are no predictions to draw")
    figure, axes = style.panels(len(predictions), 3.6, 3.6)
    for ax, (name, (confidence, correct)) in zip(axes, predictions.items(), strict=True):
        found = reliability(confidence, correct, BINS)
        edges = [place / BINS for place in range(BINS)]
        colour = style.line_of(name, list(predictions))["color"]
        ax.bar(edges, found.share, 1 / BINS, align="edge", color=style.GRID, label="share of predictions")
        ax.plot([0, 1], [0, 1], color=style.QUIET, linewidth=1, linestyle=(0, (3, 2)))
        ax.plot(found.confidence, found.accuracy, color=colour, marker="o", markersize=4, linewidth=1.8)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", aspect="equal")
        ax.set_ylabel("accuracy" if style.first_in_row(ax) else "")
        error = expected_calibration_error(confidence, correct)
        style.title(ax, f"{name}: ECE {error:.3f}", name, list(predictions), pad=6)
    return figure
