"""A table of the runs that belong to no experiment, so that the report shows every run of a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from everlearn.experiments.store import Record
from everlearn.paper.experiment import Cell, Experiment, Panel
from everlearn.paper.tables import MeasuredCell, Table

__all__ = ["other_runs"]

# Usual values, which the names of columns leave out.
NOT_IN_COLUMNS = ("learner", "stream", "seed", "settings", "versions")
USUAL = {"imbalance": None, "batch_size": 10, "scenario": "split", "amount": None}


def other_runs(records: Sequence[Record], tables: Sequence[Table]) -> list[Table]:
    """A table of the runs that are in none of these tables, with a row for each learner and its settings."""
    shown = {run.key for table in tables for cell in table.cells for run in (*cell.runs, *cell.failed)}
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in _newest(record for record in records if record.key not in shown):
        groups.setdefault((_row(record.job), _column(record.job)), []).append(record)
    if not groups:
        return []
    cells = []
    for (row, column), runs in groups.items():
        runs.sort(key=lambda run: run.job["seed"])
        done = tuple(run for run in runs if run.error is None)
        failed = tuple(run for run in runs if run.error is not None)
        cells.append(MeasuredCell(Cell(row, column, (), None), done, failed))
    panel = Panel("Accuracy at the end of the stream, %", "table", None, tuple(cell.cell for cell in cells))
    return [Table(Experiment("other-runs", "Other runs", "", (panel,)), 0, tuple(cells))]


def _newest(records: Iterable[Record]) -> list[Record]:
    """Of runs that differ in the version of the user's own code alone, the newest."""
    found: dict[tuple[str, str, int], Record] = {}
    for record in records:
        place = _row(record.job), _column(record.job), record.job["seed"]
        if place not in found or record.started >= found[place].started:
            found[place] = record
    return list(found.values())


def _row(job: dict[str, Any]) -> str:
    return ", ".join([job["learner"], *(f"{k} = {_plain(v)}" for k, v in job.get("settings", {}).items())])


def _column(job: dict[str, Any]) -> str:
    named = {name: value for name, value in job.items() if name not in NOT_IN_COLUMNS}
    unusual = [f"{k} = {_plain(v)}" for k, v in named.items() if k not in USUAL or USUAL[k] != v]
    return ", ".join([job["stream"], *unusual])


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
