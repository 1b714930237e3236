"""A table for the terminal, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from everlearn.paper.formatting import in_latex, proper
from everlearn.paper.table_view import Entry, TableView

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["to_csv", "to_latex", "to_markdown", "to_terminal"]


def to_terminal(view: TableView) -> Table:
    """The table for a `rich` console."""
    from rich.table import Table

    table = Table()
    table.add_column(view.corner)
    for column in view.columns:
        table.add_column(f"{column.group}: {column.name}" if column.group else column.name, justify="right")
    for row in view.rows:
        table.add_row(row.head.plain, *(entry.plain for entry in row.entries))
    return table


def to_markdown(view: TableView) -> str:
    """The table in GitHub's Markdown."""
    heads = [view.corner, *(proper(column.name) for column in view.columns)]
    lines = [heads, ["---"] * len(heads)]
    lines += [[_in_markdown(entry) for entry in (row.head, *row.entries)] for row in view.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _in_markdown(entry: Entry) -> str:
    text = proper(entry.plain) if "name" in entry.style else entry.plain
    text = "<br>".join((text, *entry.below)) if entry.below else text
    text = text.replace("|", "\\|")
    return f"**{text}**" if text and "best" in entry.style else text


def to_latex(view: TableView) -> str:
    r"""The table as a LaTeX `tabular` with the rules of the package booktabs; the best entries are bold.

    >>> from everlearn.paper.table_view import Column, Row, name
    >>> best = Entry(mean=93.94, std=0.2, style=("best",))
    >>> print(to_latex(TableView("method", (Column("split-mnist"),), (Row(name("cope"), (best,)),))))
    \begin{tabular}{lr}
    \toprule
    method & Split-MNIST \\
    \midrule
    CoPE & \textbf{93.94} $\pm$ 0.20 \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    lines = [rf"\begin{{tabular}}{{l{'r' * len(view.columns)}}}", r"\toprule"]
    if view.groups:
        spans, rules, start = [""], [], 2
        for title, span in view.groups:
            spans.append(
                rf"\multicolumn{{{span}}}{{c}}{{{in_latex(title)}}}" if title else " & " * (span - 1)
            )
            rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}" if title else "")
            start += span
        lines += [_latex_line(spans), "".join(rules)]
    lines += [_latex_line([in_latex(view.corner), *(in_latex(column.name) for column in view.columns)])]
    lines.append(r"\midrule")
    lines += [_latex_row((row.head, *row.entries)) for row in view.rows]
    if view.foot is not None:
        lines += [r"\midrule", _latex_row((view.foot.head, *view.foot.entries))]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _latex_row(entries: Sequence[Entry]) -> str:
    cells = []
    for entry in entries:
        text = in_latex(entry.shown)
        text = rf"\textbf{{{text}}}" if text and "best" in entry.style else text
        text = " ".join(filter(None, (text, in_latex(entry.deviation), in_latex(entry.note))))
        cells.append(rf"\multicolumn{{{entry.span}}}{{l}}{{{text}}}" if entry.span > 1 else text)
    return _latex_line(cells)


def _latex_line(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def to_csv(view: TableView) -> str:
    """The table as CSV: a line for each row, with the names of the columns first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([view.corner, *(column.name for column in view.columns)])
    for row in view.rows:
        writer.writerow([row.head.plain, *(entry.plain for entry in row.entries)])
    return text.getvalue()
