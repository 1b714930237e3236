"""Figures for a paper of your own: every metric over the stream, as PDF or SVG in a column's width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from everlearn.experiments.codec import METRICS, decode
from everlearn.experiments.names import file_name
from everlearn.paper.formatting import proper
from everlearn.paper.paper_tables import check_rows
from everlearn.paper.tables import Table
from everlearn.plots.column_figure import COLUMN, Curves, column_figure

__all__ = ["FORMATS", "curves_of", "write_figures"]

FORMATS = ("pdf", "svg", "png")


WIDTHS = (1, 40)
"""The narrowest and the widest figure, in inches."""


def _check_colours(tables: Sequence[Table], colours: Mapping[str, str]) -> None:
    """Raise a ValueError for the colour of a row that no table has, or for what is not a colour."""
    from matplotlib.colors import is_color_like

    check_rows(tables, colours, "a colour", columns=False)
    for row, colour in colours.items():
        if not is_color_like(colour):
            raise ValueError(f"the colour of {row!r} is one like #0b6fb8 or black, not {colour!r}")


def curves_of(table: Table, column: str, metric: str = "accuracy") -> Curves:
    """A metric of each learner over the stream of a column: the accuracy in percent, or one of the user's own."""
    found: dict[str, list[tuple[list[float], list[float]]]] = {}
    for row in table.rows:
        cell = table.at(row, column)
        for run in () if cell is None else cell.runs:
            points = [
                (each["samples"], 100 * each["accuracy"] if metric == "accuracy" else each["metrics"][metric])
                for each in decode(run.result).evaluations
                if _value(each, metric) is not None
            ]
            if len(points) > 1:
                found.setdefault(row, []).append(([x for x, _ in points], [y for _, y in points]))
    return found


def _value(evaluation: Mapping[str, object], metric: str) -> object:
    metrics = evaluation.get("metrics")
    if metric == "accuracy":
        return evaluation["accuracy"]
    return metrics.get(metric) if isinstance(metrics, dict) else None


def write_figures(
    tables: Sequence[Table],
    folder: Path,
    suffix: str = "pdf",
    width: float = COLUMN,
    names: Mapping[str, str] | None = None,
    colours: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write a figure for every column and every metric with a curve; returns the files."""
    import matplotlib

    if suffix not in FORMATS:
        raise ValueError(f"figures are written as {', '.join(FORMATS)}, not as {suffix!r}")
    if not WIDTHS[0] <= width <= WIDTHS[1]:  # also of nan
        raise ValueError(f"the width of a figure is {WIDTHS[0]} to {WIDTHS[1]} inches, not {width:g}")
    check_rows(tables, names or {}, "a name")
    _check_colours(tables, colours or {})
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        own = {each for cell in table.cells for run in cell.runs for each in decode(run.result).metrics}
        for column in table.columns:
            for metric in ("accuracy", *sorted(own - set(METRICS))):
                curves = curves_of(table, column, metric)
                if not curves:
                    continue
                label = "accuracy, %" if metric == "accuracy" else metric
                limits = (0.0, 100.0) if metric == "accuracy" else None
                called = {row: proper(row) for row in curves} | dict(names or {})
                path = folder / f"{file_name(f'{table.name}-{column}-{metric}')}.{suffix}"
                # Text stays text, in fonts that journals accept; the same picture is the same file.
                options: Any = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": path.name}
                dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": None}
                with matplotlib.rc_context(options):
                    column_figure(curves, label, width, called, colours, limits).savefig(
                        path, metadata=dates[suffix], dpi=300
                    )
                written.append(path)
    return written
