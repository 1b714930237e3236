"""The tables of the page: ours beside the paper's, and ours against each other."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from everlearn.experiments.significance import Summary
from everlearn.paper.report.figures import short
from everlearn.paper.report.formatting import in_html, number, signed
from everlearn.paper.report.theme import variable
from everlearn.paper.tables import Comparison, MeasuredCell, Table
from everlearn.plots import style

__all__ = [
    "anchor",
    "comparison_table",
    "difference_anchor",
    "dot",
    "head",
    "main_table",
    "mean_anchor",
    "shown_p",
    "table_of",
]

FREE = ("iid-online", "iid-offline")
"""They see the stream shuffled: a reference, not a competitor."""


def anchor(table: Table, measured: MeasuredCell) -> str:
    """Where the runs of a cell stand on the page."""
    return _anchor("runs", table.name, measured.cell.row, measured.cell.column)


def mean_anchor(table: Table, row: str) -> str:
    """Where the parts of a row's mean stand on the page."""
    return _anchor("mean", table.name, row)


def difference_anchor(table: Table, less: MeasuredCell) -> str:
    """Where the two parts of a comparison stand on the page; a cell is held against one other only."""
    return _anchor("difference", table.name, less.cell.row, less.cell.column)


def _anchor(*words: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in "-".join(words))


def table_of(heads: Iterable[str], rows: Iterable[str], foot: str = "") -> str:
    """A table that may scroll sideways. foot: a row that stays below, however the others are sorted."""
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f'<div class="scroll"><table><thead>{"".join(heads)}</thead>'
        f"<tbody>{''.join(rows)}</tbody>{foot}</table></div>"
    )


def head(text: str, kind: str = "") -> str:
    """A head that sorts; `text` is HTML."""
    return f'<th scope="col" class="{kind}"><button type="button">{text}</button></th>'


def dot(name: str) -> str:
    """The method's colour; nothing for what is no method."""
    method = style.method_of(name)
    if method is None:
        return ""
    return f'<span class="dot" style="background:var(--{variable(method)})"></span>'


def main_table(table: Table) -> str:
    """Every cell: ours, and where the paper prints a number, its number and the difference."""
    published = {
        column: any(cell is not None and cell.cell.published for cell in _column(table, column))
        for column in table.columns
    }
    names = dict(zip(table.columns, short(table.columns), strict=True))
    groups, heads = "<th></th>", head(_corner(table))
    for column, name in names.items():
        title = in_html(name)
        if published[column]:
            groups += f'<th colspan="3" class="first" scope="colgroup">{title}</th>'
            heads += (
                head("ours", "first")
                + head("paper")
                + head('<abbr title="ours less the paper\'s, in points">Δ</abbr>')
            )
        else:
            groups += '<th class="first"></th>'
            heads += head(title, "first")
    if table.averaged:
        groups += '<th class="first"></th>'
        heads += head("mean", "first")
    best = {column: _best(table, column) for column in table.columns}
    rows = []
    for row in table.rows:
        cells = "".join(
            _cells(table, table.at(row, column), published[column], row == best[column])
            for column in table.columns
        )
        if table.averaged:
            cells += _mean(table, row)
        rows.append(
            f'<tr><th scope="row" data-value="{escape(row)}">{dot(row)}{in_html(row)}</th>{cells}</tr>'
        )
    first = f'<tr class="groups">{groups}</tr>' if any(published.values()) else ""
    return table_of([first, f"<tr>{heads}</tr>"], rows)


def _mean(table: Table, row: str) -> str:
    mean = table.across(row)
    if mean is None:
        return '<td class="first" data-value="">–</td>'
    return f'<td class="first" data-value="{mean.mean:.4f}">{_summary(mean, mean_anchor(table, row))}</td>'


def _summary(ours: Summary, place: str) -> str:
    """Mean ± deviation, a link to what it is made of; the number of seeds where it is not the paper's five."""
    spread = f" <small>± {number(ours.std)}</small>" if ours.std is not None else ""
    few = "" if ours.n == 5 else f" <small>n = {ours.n}</small>"
    return f'<a href="#{place}">{number(ours.mean)}{spread}</a>{few}'


def _corner(table: Table) -> str:
    """What the rows are."""
    if len(table.learners) > 1:
        return "method"
    return (
        "stream"
        if all(cell.cell.row == cell.stream for cell in table.cells)
        else in_html(table.axis or "row")
    )


def _cells(table: Table, measured: MeasuredCell | None, published: bool, best: bool) -> str:
    if measured is None:
        return '<td class="first" data-value=""></td>' + '<td data-value=""></td>' * (2 * published)
    kind = "first best" if best else "first"
    ours = measured.ours
    if ours is None:
        failed = f"{len(measured.failed)} failed" if measured.failed else "not run"
        words = f"<small>{failed}</small>"
        if measured.failed:
            words = f'<a class="failed" href="#{anchor(table, measured)}">{words}</a>'
        cells = f'<td class="{kind}" data-value="">{words}</td>'
    else:
        link = _summary(ours, anchor(table, measured))
        cells = f'<td class="{kind}" data-value="{ours.mean:.4f}">{link}</td>'
    if not published:
        return cells
    paper = measured.cell.published
    if paper is None:
        return cells + '<td data-value="">–</td><td data-value=""></td>'
    spread = f" <small>± {number(paper.std)}</small>" if paper.std is not None else ""
    cells += f'<td data-value="{paper.mean}" title="{escape(paper.source)}">{number(paper.mean)}{spread}</td>'
    return cells + _difference(table, measured)


def _difference(table: Table, measured: MeasuredCell) -> str:
    if measured.difference is None:
        return '<td data-value=""></td>'
    mark = '<span class="mark"></span>'
    if measured.outside:
        side, sign = ("above", "▲") if measured.difference > 0 else ("below", "▼")
        told = f"{side} the paper's spread"
        mark = f'<span class="mark {side}" title="{told}" role="img" aria-label="{told}">{sign}</span>'
    link = f'<a href="#{anchor(table, measured)}">{signed(measured.difference)}</a>'
    return f'<td data-value="{measured.difference:.4f}">{link}{mark}</td>'


def _best(table: Table, column: str) -> str | None:
    """The row with the highest mean of those that see the stream as it comes; none where there is one learner."""
    if len(table.learners) < 2:
        return None
    ours = {
        cell.cell.row: cell.ours.mean
        for cell in _column(table, column)
        if cell is not None and cell.ours is not None and cell.learner not in FREE
    }
    return max(ours, key=lambda row: ours[row]) if ours else None


def _column(table: Table, column: str) -> list[MeasuredCell | None]:
    return [table.at(row, column) for row in table.rows]


def comparison_table(table: Table, found: list[Comparison]) -> str:
    """One of ours against the others: mean difference over seeds, its interval, and p."""
    places = {(c.cell.cell.row, c.cell.cell.column): c for c in found}
    rows = table.rows
    columns = [column for column in table.columns if any(place[1] == column for place in places)]
    names = dict(zip(columns, short(columns), strict=True))
    heads = head("less this" if len(table.learners) > 1 else _corner(table))
    heads += "".join(head(in_html(names[column]), "first") for column in columns)
    lines = []
    for row in rows:
        cells = [places.get((row, column)) for column in columns]
        if any(cells):
            inside = "".join(_compared(table, cell) for cell in cells)
            lines.append(
                f'<tr><th scope="row" data-value="{escape(row)}">{dot(row)}{in_html(row)}</th>{inside}</tr>'
            )
    return table_of([f"<tr>{heads}</tr>"], lines)


def _compared(table: Table, found: Comparison | None) -> str:
    if found is None:
        return '<td class="first" data-value=""></td>'
    d = found.difference
    kind = "sure" if d.p < 0.05 else ""
    return (
        f'<td class="first" data-value="{d.mean:.4f}">'
        f'<a class="{kind}" href="#{difference_anchor(table, found.cell)}">{signed(d.mean)}</a>'
        f'<small class="below-it">[{signed(d.low, 1)}, {signed(d.high, 1)}]<br>{shown_p(d.p)}, n = {d.n}</small></td>'
    )


def shown_p(p: float) -> str:
    """A chance as a paper prints it.

    >>> shown_p(0.00001), shown_p(0.0312)
    ('p &lt; 0.001', 'p = 0.031')
    """
    return "p &lt; 0.001" if p < 0.001 else f"p = {p:.3f}"
