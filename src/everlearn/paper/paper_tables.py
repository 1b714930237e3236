"""Tables for a paper of your own: one metric, mean ± std over seeds, the best in bold, paired significance."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from everlearn.experiments import significance
from everlearn.experiments.codec import METRICS, PREQUENTIAL, decode
from everlearn.messages import nearest
from everlearn.paper.table_view import Column, Entry, Row, TableView, name
from everlearn.paper.tables import MeasuredCell, Table
from everlearn.paper.writers import to_latex, to_markdown

__all__ = [
    "NOTE",
    "check_metrics",
    "check_rows",
    "metric_view",
    "metrics_of",
    "stored_values",
    "tables_as_latex",
    "tables_as_markdown",
]

# A lower value is better only for these.
LOWER = ("forgetting",)
TITLES = {
    "accuracy": "Accuracy at the end, %",
    "anytime_accuracy": "Anytime accuracy, %",
    "worst_case_accuracy": "Worst-case accuracy, %",
    "forgetting": "Forgetting, %",
    PREQUENTIAL: "Prequential accuracy, %",
}
LEVEL = 0.05
NOTE = (
    "Mean ± standard deviation over seeds; the best mean of a column is bold, and * marks means that differ from it "
    "significantly (paired t-test over seeds, Holm, p < 0.05); n is the number of seeds where it is not that of most."
)


def metrics_of(table: Table) -> list[str]:
    """The metrics that the runs of a table have: the library's, then the user's own."""
    own = {each: None for cell in table.cells for run in cell.runs for each in decode(run.result).metrics}
    return list(dict.fromkeys([*METRICS, *own]))


def check_metrics(tables: Sequence[Table], metrics: Sequence[str]) -> None:
    """Raise a ValueError for a metric that no run of these tables has."""
    known = list(dict.fromkeys([*METRICS, *(metric for table in tables for metric in metrics_of(table))]))
    for metric in metrics:
        if metric not in known:
            raise ValueError(f"there is no metric {metric!r}{nearest(metric, known)}")


def check_rows(tables: Sequence[Table], given: Mapping[str, str], what: str, columns: bool = True) -> None:
    """Raise a ValueError for a row, or a column, that none of these tables has. what: what was given for it."""
    rows = list(dict.fromkeys(row for table in tables for row in table.rows))
    known = rows + [column for table in tables for column in table.columns] * columns
    for each in given:
        if each not in known:
            where = "row or column" if columns else "row"
            raise ValueError(f"there is no {where} {each!r} to give {what}; the rows are {'; '.join(rows)}")


def values(cell: MeasuredCell, metric: str) -> dict[int, float]:
    """A metric of each run by seed: the library's in percent, the user's own as it is."""
    factor = 100 if metric in TITLES else 1
    return {seed: factor * value for seed, value in stored_values(cell, metric).items()}


def stored_values(cell: MeasuredCell, metric: str) -> dict[int, float]:
    """A metric of each run by seed, as it was stored; without runs for which it was not defined."""
    found = {run.job["seed"]: decode(run.result).metrics.get(metric) for run in cell.runs}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}


def metric_view(table: Table, metric: str = "accuracy", names: Mapping[str, str] | None = None) -> TableView:
    """One metric of a table, a row for each learner and a column for each stream.

    names: how rows and columns are called in the paper.
    """
    if metric not in metrics_of(table):
        raise ValueError(f"there is no metric {metric!r}{nearest(metric, metrics_of(table))}")
    names = names or {}
    by_place = {(cell.cell.row, cell.cell.column): values(cell, metric) for cell in table.cells}
    best = {column: _best(table, column, by_place, metric) for column in table.columns}
    starred = {place for column in table.columns for place in _worse(table, column, by_place, best[column])}
    usual = statistics.mode(len(each) for each in by_place.values() if each) if any(by_place.values()) else 0
    digits = (
        2 if metric in TITLES else _digits([value for each in by_place.values() for value in each.values()])
    )
    rows = []
    for row in table.rows:
        entries = []
        for column in table.columns:
            found = significance.summary(list(by_place.get((row, column), {}).values()))
            if found is None:
                entries.append(Entry("–"))
                continue
            note = " ".join(["*"] * ((row, column) in starred) + [f"n = {found.n}"] * (found.n != usual))
            style = ("best",) if row == best[column] else ()
            entries.append(Entry(mean=found.mean, std=found.std, digits=digits, note=note, style=style))  # type: ignore[arg-type]
        rows.append(Row(_head(row, names), tuple(entries)))
    columns = tuple(Column(names.get(column, column)) for column in table.columns)
    return TableView("method", columns, tuple(rows))


def _head(row: str, names: Mapping[str, str]) -> Entry:
    return Entry(names[row]) if row in names else name(row)


def _best(
    table: Table, column: str, values: Mapping[tuple[str, str], dict[int, float]], metric: str
) -> str | None:
    means = {}
    for row in table.rows:
        found = significance.summary(list(values.get((row, column), {}).values()))
        if found is not None:
            means[row] = -found.mean if metric in LOWER else found.mean
    return max(means, key=lambda row: means[row]) if len(means) > 1 else None


def _worse(
    table: Table, column: str, values: Mapping[tuple[str, str], dict[int, float]], best: str | None
) -> list[tuple[str, str]]:
    """The places of a column that differ from the best significantly, over the seeds that both have."""
    if best is None:
        return []
    others = [row for row in table.rows if row != best and (row, column) in values]
    tests = [(row, significance.paired(values[best, column], values[row, column])) for row in others]
    tested = [(row, test.p) for row, test in tests if test is not None]
    adjusted = significance.holm([p for _, p in tested])
    return [(row, column) for (row, _), p in zip(tested, adjusted, strict=True) if p < LEVEL]


def _digits(found: Sequence[float]) -> int:
    """Decimals that show three digits of the largest value."""
    largest = max((abs(value) for value in found), default=0.0)
    return 2 if largest >= 1 or largest == 0 else 4


def _title(table: Table) -> str:
    """The title of the experiment, and of the panel where there are several."""
    paper = table.experiment
    return paper.title if len(paper.panels) == 1 else f"{paper.title}, {table.title}"


def _titled(tables: Sequence[Table], metrics: Sequence[str]) -> list[tuple[str, Table, str]]:
    shown = []
    for table in tables:
        for metric in metrics:
            if metric in metrics_of(table):
                title = f"{_title(table)}: {TITLES.get(metric, metric)}"
                shown.append((title, table, metric))
    return shown


def tables_as_latex(
    tables: Sequence[Table], metrics: Sequence[str], names: Mapping[str, str] | None = None
) -> str:
    """Each metric of each table as a `tabular` of booktabs, with a comment above it."""
    check_rows(tables, names or {}, "a name")
    parts = [f"% {NOTE.replace('±', '+-')}\n% needs \\usepackage{{booktabs}}\n"]
    for title, table, metric in _titled(tables, metrics):
        text = to_latex(metric_view(table, metric, names)).replace(" *", r"$^{*}$")
        parts.append(f"% {title}\n{text}")
    return "\n".join(parts)


def tables_as_markdown(
    tables: Sequence[Table], metrics: Sequence[str], names: Mapping[str, str] | None = None
) -> str:
    """Each metric of each table in Markdown, with a title above it."""
    check_rows(tables, names or {}, "a name")
    titled = _titled(tables, metrics)
    parts = [
        f"**{title}**\n\n{to_markdown(metric_view(table, metric, names))}" for title, table, metric in titled
    ]
    return "\n".join([*parts, NOTE.replace("*", "\\*"), ""])
