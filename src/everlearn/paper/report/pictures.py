"""The figures of a table: drawn, saved as PNG and SVG, and prepared for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from everlearn.evaluation.history import Evaluation
from everlearn.experiments.codec import decode
from everlearn.experiments.names import file_name
from everlearn.paper.formatting import without_formulas
from everlearn.paper.report import figures
from everlearn.paper.report.page import Picture
from everlearn.paper.report.resources import memory_bars, speed_bars
from everlearn.paper.report.theme import inline_svg, width_of
from everlearn.paper.tables import Table
from everlearn.plots import style
from everlearn.plots.classes import confusion_matrices
from everlearn.plots.curves import accuracy_over_stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["pictures"]

CONFUSED = ("cope", "cope-ce")
"""Whose confusion matrices the paper shows, over all imbalanced variants."""
MOST_CLASSES = 20
WIDE = 900
"""A picture that is wider, in pixels, takes the full width of the page."""


def pictures(table: Table, folder: Path) -> list[Picture]:
    """Draw the figures of a table into a folder, each as PNG and SVG."""
    import matplotlib

    found = []
    for name, caption, draw, themed in _figures(table):
        figure = figures.drawn(draw)
        # The same picture is the same file, whenever and wherever it is drawn.
        with matplotlib.rc_context({"svg.hashsalt": name}):
            style.save(figure, folder / f"{name}.png")
            figure.set_layout_engine("none")  # it is laid out now; doing it again takes as long
            svg = style.save(figure, folder / f"{name}.svg").read_text("utf-8")
        kind = "plain" if not themed else "wide" if width_of(svg) > WIDE else ""
        found.append(Picture(name, caption, inline_svg(svg, name, caption, themed), kind))
    return found


def _figures(table: Table) -> Iterator[tuple[str, str, Callable[[], Figure], bool]]:
    """Name, caption, how to draw it, and whether it follows the page's colours."""
    if not table.filled_columns:  # nothing but failures
        return
    name, title = (
        file_name(table.name),
        table.experiment.title if len(table.experiment.panels) == 1 else table.title,
    )
    if table.resources:
        yield f"{name}-speed", f"{title}: how fast each method learns.", lambda: speed_bars(table), True
        yield f"{name}-memory", f"{title}: what each method keeps.", lambda: memory_bars(table), True
        return
    if table.figure == "lines" or (table.axis and table.figure == "table"):
        if len(table.filled_columns) > 1:
            yield (
                name,
                f"{title}: accuracy over {table.axis or 'columns'}.",
                lambda: figures.lines(table),
                True,
            )
    elif table.figure == "bars":
        yield name, f"{title}: accuracy of each variant.", lambda: figures.grouped_bars(table), True
        confused = _confusions(table)
        if confused:
            caption = f"{title}: what each class is taken for at the end, over all variants."
            yield f"{name}-confusion", caption, lambda: confusion_matrices(confused), False
    else:
        yield name, f"{title}: accuracy at the end.", lambda: figures.accuracy_bars(table), True
    if table.figure == "table" and any(cell.difference is not None for cell in table.cells):
        caption = f"{title}: how far our means lie from the paper's."
        yield f"{name}-difference", caption, lambda: figures.differences(table), True
    if table.figure == "table" and len(table.learners) > 1:
        for column in table.columns:
            curves = _curves(table, column)
            if curves:
                caption = (
                    f"{column}: accuracy on the tasks seen, over the stream; bands are ± std over seeds."
                )
                yield (
                    file_name(f"{name}-{column}-stream"),
                    caption,
                    partial(accuracy_over_stream, curves),
                    True,
                )


def _curves(table: Table, column: str) -> dict[str, list[Sequence[Evaluation]]]:
    """The evaluations of each learner that was evaluated more than once."""
    found: dict[str, list[Sequence[Evaluation]]] = {}
    for row, called in zip(table.rows, style.abbreviated(table.rows), strict=True):
        cell = table.at(row, column)
        runs = () if cell is None else cell.runs
        histories: list[Sequence[Evaluation]] = [decode(run.result).history for run in runs]
        if histories and min(map(len, histories)) > 1:
            found[without_formulas(called)] = histories
    return found


def _confusions(table: Table) -> dict[str, list[list[Evaluation]]]:
    """The last evaluation of every run of CoPE and CoPE-CE, with its confusion matrix."""
    found: dict[str, list[list[Evaluation]]] = {}
    for cell in table.cells:
        for run in cell.runs if cell.cell.row in CONFUSED else ():
            end = decode(run.result).end
            if end is not None and len(end.labels) <= MOST_CLASSES:
                found.setdefault(cell.cell.row, []).append([end])
    return found
