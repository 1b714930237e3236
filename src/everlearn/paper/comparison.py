"""The paper's numbers beside ours, as tables in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from everlearn.experiments.store import Record, Store
from everlearn.paper.experiment import Cell, Experiment, Panel, key

__all__ = ["measured", "print_comparison"]


def print_comparison(experiment: Experiment, store: Store) -> None:
    """Print each panel of an experiment: ours from the store, and the paper's where it printed any."""
    from rich.console import Console
    from rich.table import Table

    records = {record.key: record for record in store.records()}
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(f"{experiment.title} ({experiment.source})" if experiment.source else experiment.title)
    for panel in experiment.panels:
        head, lines = (_resources if panel.measure == "resources" else _accuracies)(panel, records)
        table = Table()
        for i, name in enumerate(head):
            table.add_column(name, justify="right" if i else "left")
        for line in lines:
            table.add_row(*line)
        console.print(panel.title)
        console.print(table)
    for note in experiment.notes:
        console.print(note, style="dim")
    for error, times in _errors(experiment, records).items():
        console.print(f"failed, {times} runs: {error}", markup=False)


def measured(cell: Cell, records: dict[str, Record]) -> list[Record]:
    """The runs of a cell that are there and done."""
    found = (records.get(key(job)) for job in cell.jobs)
    return [record for record in found if record is not None and record.result is not None]


Lines = tuple[list[str], list[list[str]]]


def _accuracies(panel: Panel, records: dict[str, Record]) -> Lines:
    printed = {cell.column for cell in panel.cells if cell.published}
    head = [""]
    for column in panel.columns:
        head += [column, "paper"] if column in printed else [column]
    # A figure's legend has the mean over its axis.
    averaged = panel.figure != "table"
    lines = []
    for row in panel.rows:
        line = [row]
        means = []
        for column in panel.columns:
            cell = panel.cell(row, column)
            accuracies = [] if cell is None else _percent(measured(cell, records))
            line.append("" if cell is None else _spread(accuracies, len(cell.jobs)))
            means += [mean(accuracies)] if accuracies else []
            if column in printed:
                line.append(_published(cell))
        lines.append(
            [*line, f"{mean(means):.2f}" if len(means) == len(panel.columns) else ""] if averaged else line
        )
    return head + (["mean"] if averaged else []), lines


def _resources(panel: Panel, records: dict[str, Record]) -> Lines:
    head = ["", *(f"{column}: {what}" for column in panel.columns for what in ("samples/s", "memory"))]
    lines = []
    for row in panel.rows:
        line = [row]
        for column in panel.columns:
            cell = panel.cell(row, column)
            results = [] if cell is None else [run.result for run in measured(cell, records)]
            line += _taken([result for result in results if result is not None])
        lines.append(line)
    return head, lines


def _taken(results: Sequence[dict[str, Any]]) -> list[str]:
    if not results:
        return ["", ""]
    parts = ", ".join(f"{name} {held / 1e6:.2f}" for name, held in results[0]["footprint"].items())
    speed = mean(result["samples_per_second"] for result in results)
    return [f"{speed:,.0f}", f"{results[0]['memory_bytes'] / 1e6:.2f} MB{f' ({parts})' if parts else ''}"]


def _percent(records: Sequence[Record]) -> list[float]:
    accuracies = [record.result["accuracy"] for record in records if record.result is not None]
    return [100 * accuracy for accuracy in accuracies if accuracy is not None]


def _spread(values: Sequence[float], wanted: int) -> str:
    if not values:
        return "–" if wanted else "not here"
    deviation = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
    return f"{mean(values):.2f}{deviation}" + (
        f" ({len(values)} of {wanted})" if len(values) < wanted else ""
    )


def _published(cell: Cell | None) -> str:
    if cell is None or cell.published is None:
        return ""
    deviation = f" ± {cell.published.std:.2f}" if cell.published.std is not None else ""
    return f"{cell.published.mean:.2f}{deviation}"


def _errors(experiment: Experiment, records: dict[str, Record]) -> dict[str, int]:
    """Each error among the runs of an experiment, and how many runs ended with it."""
    found: dict[str, int] = {}
    for job in experiment.jobs():
        record = records.get(key(job))
        if record is not None and record.error is not None:
            said = f"{job.learner} on {job.stream}: {record.error}"
            found[said] = found.get(said, 0) + 1
    return found
