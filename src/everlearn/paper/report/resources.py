"""What each method takes: samples per second, and bytes of the operational memory by part."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING

from everlearn.experiments.store import Record
from everlearn.paper.report.figures import row_panels
from everlearn.paper.report.formatting import in_html, in_math
from everlearn.paper.report.tables import anchor, dot, head, table_of
from everlearn.paper.tables import MeasuredCell, Table
from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["memory_bars", "resources_table", "speed_bars"]


def resources_table(table: Table) -> str:
    """For every method and stream: samples per second, seconds, megabytes and what they are made of."""
    groups, heads = "<th></th>", head("method")
    for column in table.columns:
        groups += f'<th colspan="3" class="first" scope="colgroup">{in_html(column)}</th>'
        heads += head("samples/s", "first") + head("seconds") + head("memory")
    rows = [
        f'<tr><th scope="row" data-value="{escape(row)}">{dot(row)}{in_html(row)}</th>'
        + "".join(_cells(table, table.at(row, column)) for column in table.columns)
        + "</tr>"
        for row in table.rows
    ]
    return table_of([f'<tr class="groups">{groups}</tr>', f"<tr>{heads}</tr>"], rows)


def _cells(table: Table, measured: MeasuredCell | None) -> str:
    if measured is None or not measured.runs:
        words = "" if measured is None else "<small>not run</small>"
        return f'<td class="first" data-value="">{words}</td>' + '<td data-value=""></td>' * 2
    speed, seconds = mean_of(measured, _speed), mean_of(measured, lambda run: run.seconds)
    held = mean_of(measured, _megabytes)
    parts = (measured.runs[0].result or {}).get("footprint", {})
    made_of = " + ".join(
        f"{escape(name)}&nbsp;{size / 1e6:.2f}" for name, size in parts.items() if size >= 5e3
    )
    link = f'<a href="#{anchor(table, measured)}">'
    return (
        f'<td class="first" data-value="{speed}">{link}{speed:,.0f}</a></td>'
        f'<td data-value="{seconds}">{link}{seconds:,.1f}</a></td>'
        f'<td data-value="{held}">{link}{held:.2f} MB</a><small class="below-it parts">{made_of}</small></td>'
    )


def mean_of(measured: MeasuredCell, value: Callable[[Record], float]) -> float:
    """The mean of something over the runs of a cell."""
    return fmean(value(run) for run in measured.runs)


def _speed(run: Record) -> float:
    return float((run.result or {})["samples_per_second"])


def _megabytes(run: Record) -> float:
    return float((run.result or {})["memory_bytes"]) / 1e6


def speed_bars(table: Table) -> Figure:
    """Samples per second of each method, a panel for each stream."""
    return _bars(table, _speed, "samples per second", "{:,.0f}")


def memory_bars(table: Table) -> Figure:
    """Megabytes of operational memory of each method, a panel for each stream."""
    return _bars(table, _megabytes, "operational memory, MB", "{:.2f}")


def _bars(table: Table, value: Callable[[Record], float], what: str, form: str) -> Figure:
    figure, axes = row_panels(table)
    for ax, column in zip(axes, table.filled_columns, strict=True):
        for place, row in enumerate(table.rows):
            cell = table.at(row, column)
            if cell is None or not cell.runs:
                continue
            amount = mean_of(cell, value)
            ax.barh(place, amount, height=0.66, color=style.line_of(row, table.rows)["color"], linewidth=0)
            ax.annotate(
                form.format(amount), (amount, place), xytext=(4, 0), textcoords="offset points",
                va="center", fontsize=8, color=style.QUIET,
            )  # fmt: skip
        ax.set_xlabel(in_math(what))
        ax.margins(x=0.18)
        ax.set_xlim(left=0)
        ax.locator_params(axis="x", nbins=4)
    return figure
