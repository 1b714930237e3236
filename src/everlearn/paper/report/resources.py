"""The resources of each method: samples per second, and bytes of the operational memory by part."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING

from everlearn.experiments.codec import decode
from everlearn.experiments.store import Record
from everlearn.paper.formatting import in_math
from everlearn.paper.report.figures import row_panels
from everlearn.paper.report.tables import anchor
from everlearn.paper.table_view import Column, Entry, Row, TableView, name
from everlearn.paper.tables import MeasuredCell, Table
from everlearn.plots import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["memory_bars", "resources_view", "speed_bars"]


def resources_view(table: Table) -> TableView:
    """For every method and stream: samples per second, seconds, and megabytes with what they consist of."""
    columns: list[Column] = []
    for column in table.columns:
        columns += [Column("samples/s", column, starts=True), Column("seconds", column)]
        columns.append(Column("memory", column))
    rows = [
        Row(
            name(row, method=row),
            tuple(entry for column in table.columns for entry in _entries(table, table.at(row, column))),
        )
        for row in table.rows
    ]
    return TableView("method", tuple(columns), tuple(rows))


def _entries(table: Table, measured: MeasuredCell | None) -> list[Entry]:
    if measured is None or not measured.runs:
        return [Entry() if measured is None else Entry("not run", style=("small",)), Entry(), Entry()]
    speed, seconds = mean_of(measured, _speed), mean_of(measured, lambda run: run.seconds)
    held = mean_of(measured, _megabytes)
    parts = decode(measured.runs[0].result).footprint
    consists = " + ".join(f"{part}\u00a0{size / 1e6:.2f}" for part, size in parts.items() if size >= 5e3)
    link = anchor(table, measured)
    return [
        Entry(f"{speed:,.0f}", sort=speed, link=link),
        Entry(f"{seconds:,.1f}", sort=seconds, link=link),
        Entry(f"{held:.2f} MB", sort=held, link=link, below=(consists,), style=("parts",)),
    ]


def mean_of(measured: MeasuredCell, value: Callable[[Record], float]) -> float:
    """The mean of a value over the runs of a cell."""
    return fmean(value(run) for run in measured.runs)


def _speed(run: Record) -> float:
    return float(decode(run.result).samples_per_second or 0.0)


def _megabytes(run: Record) -> float:
    return float(decode(run.result).memory_bytes or 0) / 1e6


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
