"""A figure in the width of a paper's column: lines over the stream, with your own names and colours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLUMN", "Curves", "column_figure"]

COLUMN = 3.3
"""The width of a column of a two-column paper, in inches."""

Curves = Mapping[str, Sequence[tuple[Sequence[float], Sequence[float]]]]
"""For each learner and seed: samples seen, and the value at each of them."""


def column_figure(
    curves: Curves,
    what: str,
    width: float = COLUMN,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
    limits: tuple[float, float] | None = None,
) -> Figure:
    """The mean of each learner over samples seen, with a band of ± one std over seeds, and a legend above.

    what: the label of the y-axis. names, colours: of learners, where they are not the library's.
    limits: the lowest and highest possible value, where bands end.

    >>> figure = column_figure({"mine": [([10, 20], [50.0, 60.0])]}, "accuracy, %", colours={"mine": "#ff0000"})
    >>> [round(float(side), 2) for side in figure.get_size_inches()]
    [3.3, 2.31]
    """
    from matplotlib.figure import Figure

    colours = colours or {}
    shown = style.abbreviated([(names or {}).get(learner, learner) for learner in curves])
    called = dict(zip(curves, shown, strict=True))
    figure = Figure(figsize=(width, 0.7 * width), layout="constrained")
    ax = figure.subplots()
    for learner, runs in curves.items():
        line = style.line_of(learner, list(curves))
        line["color"] = colours.get(learner, line["color"])
        moments = np.array(runs[0][0], float)
        values = np.array([np.interp(moments, samples, found) for samples, found in runs])
        mean = values.mean(0)
        ax.plot(moments, mean, linewidth=1.2, label=called[learner], **line)
        if len(values) > 1:
            band = values.std(0, ddof=1)
            ends = mean - band, mean + band
            low, high = ends if limits is None else np.clip(ends, *limits)
            ax.fill_between(moments, low, high, color=line["color"], alpha=0.18, linewidth=0)
    ax.set_xlabel("samples seen", fontsize=8)
    ax.set_ylabel(what, fontsize=8)
    ax.tick_params(labelsize=7)
    ax.locator_params(axis="x", nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color=style.GRID, linewidth=0.5)
    ax.set_axisbelow(True)
    longest = max(map(len, shown), default=1)
    columns = min(
        len(curves), 3, max(1, int(20 * width / (longest + 6)))
    )  # a letter takes about a twentieth inch
    figure.legend(loc="outside upper center", ncols=columns, fontsize=7, frameon=False)
    return figure
