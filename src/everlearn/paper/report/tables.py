"""The tables of the page: ours beside the paper's, and ours against each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from everlearn.experiments.significance import Difference
from everlearn.paper.formatting import p_value, short, signed
from everlearn.paper.other_runs import NAME, full_column, full_row
from everlearn.paper.table_view import Column, Entry, Row, TableView, name, summary_entry
from everlearn.paper.tables import Comparison, MeasuredCell, Table

__all__ = [
    "PAPER_SEEDS",
    "accuracy_view",
    "anchor",
    "comparison_view",
    "difference_anchor",
    "mean_anchor",
    "printed_p",
]

PAPER_SEEDS = 5
SHUFFLED = ("iid-online", "iid-offline")
"""They see the stream shuffled: a reference, not a competitor."""


def anchor(table: Table, measured: MeasuredCell) -> str:
    """The id of a cell's runs on the page."""
    return _anchor("runs", table.name, measured.cell.row, measured.cell.column)


def mean_anchor(table: Table, row: str) -> str:
    """The id of the parts of a row's mean on the page."""
    return _anchor("mean", table.name, row)


def difference_anchor(table: Table, less: MeasuredCell) -> str:
    """The id of the two parts of a comparison on the page; a cell is compared with one other only."""
    return _anchor("difference", table.name, less.cell.row, less.cell.column)


def _anchor(*words: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in "-".join(words))


def accuracy_view(table: Table) -> TableView:
    """Every cell: ours, and where the paper prints a number, its number and the difference."""
    names = dict(zip(table.columns, short(table.columns), strict=True))
    published = {column: _is_published(table, column) for column in table.columns}
    best = {column: _best(table, column) for column in table.columns}
    columns: list[Column] = []
    for column, title in names.items():
        if published[column]:
            tooltip = "ours less the paper's, in points"
            columns += [Column("ours", title, starts=True), Column("paper", title)]
            columns.append(Column("Δ", title, title=tooltip))
        else:
            columns.append(Column(title, starts=True, title=_in_full(table, column=column)))
    if table.averaged:
        columns.append(Column("mean", starts=True))
    rows = []
    for row in table.rows:
        entries: list[Entry] = []
        for column in table.columns:
            entries += _entries(table, table.at(row, column), published[column], row == best[column])
        if table.averaged:
            mean = table.across(row)
            link = mean_anchor(table, row)
            entries.append(Entry("–") if mean is None else summary_entry(mean, PAPER_SEEDS, link))
        head = dataclasses.replace(name(row, method=row), title=_in_full(table, row=row))
        rows.append(Row(head, tuple(entries)))
    return TableView(_corner(table), tuple(columns), tuple(rows))


def _in_full(table: Table, row: str = "", column: str = "") -> str:
    """All settings of a row, or all options of a column, where its name is not all of it."""
    if table.experiment.name != NAME:
        return ""
    cell = next(each for each in table.cells if row == each.cell.row or column == each.cell.column)
    job = (*cell.runs, *cell.failed)[0].job
    full = full_row(job) if row else full_column(job)
    return "" if full == (row or column) else full


def _is_published(table: Table, column: str) -> bool:
    cells = (table.at(row, column) for row in table.rows)
    return any(cell is not None and cell.cell.published for cell in cells)


def _corner(table: Table) -> str:
    """What the rows are."""
    if len(table.learners) > 1:
        return "method"
    streams = all(cell.cell.row == cell.stream for cell in table.cells)
    return "stream" if streams else table.axis or "row"


def _entries(table: Table, measured: MeasuredCell | None, published: bool, best: bool) -> list[Entry]:
    if measured is None:
        return [Entry()] * (3 if published else 1)
    ours = _ours(table, measured, best)
    if not published:
        return [ours]
    paper = measured.cell.published
    if paper is None:
        return [ours, Entry("–"), Entry()]
    return [
        ours,
        Entry(mean=paper.mean, std=paper.std, title=paper.source),
        _difference(table, measured),
    ]


def _ours(table: Table, measured: MeasuredCell, best: bool) -> Entry:
    link = anchor(table, measured)
    if measured.ours is not None:
        return summary_entry(measured.ours, PAPER_SEEDS, link, best)
    if measured.failed:
        return Entry(f"{len(measured.failed)} failed", link=link, style=("failed", "small"))
    return Entry(
        "no accuracy" if measured.runs else "not run", link=link if measured.runs else "", style=("small",)
    )


def _difference(table: Table, measured: MeasuredCell) -> Entry:
    if measured.difference is None:
        return Entry()
    above = measured.difference > 0
    return Entry(
        mean=measured.difference,
        signed=True,
        link=anchor(table, measured),
        mark=("above" if above else "below") if measured.outside else "none",
    )


def _best(table: Table, column: str) -> str | None:
    """The row with the highest mean of those that see the stream in order; None where there is one learner."""
    if len(table.learners) < 2:
        return None
    cells = (table.at(row, column) for row in table.rows)
    ours = {
        cell.cell.row: cell.ours.mean
        for cell in cells
        if cell is not None and cell.ours is not None and cell.learner not in SHUFFLED
    }
    return max(ours, key=lambda row: ours[row]) if ours else None


def comparison_view(table: Table, found: Sequence[Comparison]) -> TableView:
    """One of ours against the others: mean difference over seeds, its interval, and p."""
    places = {(each.cell.cell.row, each.cell.cell.column): each for each in found}
    columns = [column for column in table.columns if any(place[1] == column for place in places)]
    rows = []
    for row in table.rows:
        cells = [places.get((row, column)) for column in columns]
        if any(cells):
            entries = tuple(Entry() if cell is None else _compared(table, cell) for cell in cells)
            rows.append(Row(name(row, method=row), entries))
    corner = "less this" if len(table.learners) > 1 else _corner(table)
    return TableView(corner, tuple(Column(title, starts=True) for title in short(columns)), tuple(rows))


def _compared(table: Table, found: Comparison) -> Entry:
    difference = found.difference
    return Entry(
        mean=difference.mean,
        signed=True,
        link=difference_anchor(table, found.cell),
        below=(interval(difference), f"{printed_p(difference.p)}, n = {difference.n}"),
        style=("significant",) if difference.p < 0.05 else (),
    )


def interval(difference: Difference) -> str:
    """The interval of a difference, with as many digits as its mean, which so lies inside it as printed.

    >>> interval(Difference(mean=0.012, low=0.006, high=0.018, p=0.01, n=5))
    '[+0.01, +0.02]'
    """
    return f"[{signed(difference.low)}, {signed(difference.high)}]"


def printed_p(p: float) -> str:
    """A p-value as a paper prints it.

    >>> printed_p(0.00001), printed_p(0.0312)
    ('p < 0.001', 'p = 0.031')
    """
    return f"p {p_value(p)}" if p < 0.001 else f"p = {p_value(p)}"
