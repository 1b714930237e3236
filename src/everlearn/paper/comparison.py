"""The paper's numbers beside ours, as tables in the terminal."""

from __future__ import annotations

import sys
from statistics import fmean

from everlearn.experiments.codec import decode
from everlearn.experiments.job import key
from everlearn.experiments.store import Record, Store
from everlearn.paper.experiment import Experiment
from everlearn.paper.methods import methods_view
from everlearn.paper.table_view import Column, Entry, Row, TableView
from everlearn.paper.tables import MeasuredCell, Table, fill
from everlearn.paper.writers import to_terminal

__all__ = ["comparison_view", "print_comparison"]


def print_comparison(experiment: Experiment, store: Store) -> None:
    """Print each panel of an experiment: ours from the store, and the paper's where it printed any."""
    from rich.console import Console

    wanted = {key(job) for job in experiment.jobs()}
    records = [record for record in store.records() if record.key in wanted]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"{experiment.title} ({experiment.source})" if experiment.source else experiment.title)
    for table in fill(experiment, records):
        console.print(table.title)
        console.print(to_terminal(comparison_view(table)))
        if experiment.panels[table.position].protocol is not None:
            for column in table.filled_columns:
                console.print(f"{column}: every method; p against the first")
                console.print(to_terminal(methods_view(table, column)))
    for note in experiment.notes:
        console.print(note, style="dim")
    for error, times in _errors(experiment, records).items():
        console.print(f"failed, {times} runs: {error}", markup=False)


def comparison_view(table: Table) -> TableView:
    """A panel: ours, and the paper's beside it where it printed any."""
    return _resources(table) if table.resources else _accuracies(table)


def _accuracies(table: Table) -> TableView:
    printed = {measured.cell.column for measured in table.cells if measured.cell.published}
    # The legend of a figure has the mean over its axis.
    averaged = table.figure != "table"
    columns: list[Column] = []
    for column in table.columns:
        columns += [Column(column), Column("paper")] if column in printed else [Column(column)]
    rows = []
    for row in table.rows:
        entries: list[Entry] = []
        for column in table.columns:
            measured = table.at(row, column)
            entries.append(_ours(measured))
            if column in printed:
                entries.append(_published(measured))
        if averaged:
            cells = (table.at(row, column) for column in table.columns)
            means = [cell.ours.mean for cell in cells if cell is not None and cell.ours is not None]
            complete = len(means) == len(table.columns)
            entries.append(Entry(mean=fmean(means)) if complete else Entry())
        rows.append(Row(Entry(row), tuple(entries)))
    return TableView("", (*columns, Column("mean")) if averaged else tuple(columns), tuple(rows))


def _ours(measured: MeasuredCell | None) -> Entry:
    if measured is None:
        return Entry()
    ours, wanted = measured.ours, len(measured.cell.jobs)
    if ours is None:
        return Entry("–" if wanted else "not here")
    missing = f"({ours.n} of {wanted})" if ours.n < wanted else ""
    return Entry(mean=ours.mean, std=ours.std, note=missing)


def _published(measured: MeasuredCell | None) -> Entry:
    paper = None if measured is None else measured.cell.published
    return Entry() if paper is None else Entry(mean=paper.mean, std=paper.std)


def _resources(table: Table) -> TableView:
    columns = [Column(f"{column}: {what}") for column in table.columns for what in ("samples/s", "memory")]
    rows = []
    for row in table.rows:
        entries: list[Entry] = []
        for column in table.columns:
            entries += _taken(table.at(row, column))
        rows.append(Row(Entry(row), tuple(entries)))
    return TableView("", tuple(columns), tuple(rows))


def _taken(measured: MeasuredCell | None) -> list[Entry]:
    if measured is None or not measured.runs:
        return [Entry(), Entry()]
    results = [decode(run.result) for run in measured.runs]
    speed = fmean(result.samples_per_second or 0.0 for result in results)
    parts = ", ".join(f"{part} {held / 1e6:.2f}" for part, held in results[0].footprint.items())
    memory = f"{(results[0].memory_bytes or 0) / 1e6:.2f} MB"
    return [Entry(f"{speed:,.0f}"), Entry(memory, note=f"({parts})" if parts else "")]


def _errors(experiment: Experiment, records: list[Record]) -> dict[str, int]:
    """Each error among the runs of an experiment, and how many runs ended with it."""
    errors = {record.key: record.error for record in records if record.error is not None}
    found: dict[str, int] = {}
    for job in experiment.jobs():
        error = errors.get(key(job))
        if error is not None:
            said = f"{job.learner} on {job.stream}: {error}"
            found[said] = found.get(said, 0) + 1
    return found
