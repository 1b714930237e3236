"""The runs behind each number: seeds, settings, machine, command."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from everlearn.experiments.codec import METRICS, PREQUENTIAL, decode
from everlearn.experiments.command import command
from everlearn.experiments.store import Record
from everlearn.paper.formatting import number
from everlearn.paper.report.tables import anchor
from everlearn.paper.table_view import Column, Entry, Row, TableView, name, number_entry
from everlearn.paper.tables import MeasuredCell, Table

__all__ = ["CellRuns", "command_of", "runs_of", "title_of"]

HEADS = dict(zip(METRICS, ("accuracy", "anytime", "worst case", "forgetting"), strict=True))
RESOURCES = ("seconds", "samples/s", "memory", "run")


@dataclasses.dataclass(frozen=True)
class CellRuns:
    """The runs of one cell, as a fold of the page. settings: `name = value`, the same for all seeds."""

    anchor: str
    name: Entry
    summary: str
    failed: int
    command: str
    table: TableView
    settings: tuple[str, ...]
    where: str


def title_of(table: Table) -> str:
    """The title of a table's runs."""
    paper = table.experiment
    return paper.title if len(paper.panels) == 1 else f"{paper.title}: {table.title}"


def runs_of(table: Table) -> list[CellRuns]:
    """The runs of every cell of a table that has any."""
    return [_cell_runs(table, cell) for cell in table.cells if cell.runs or cell.failed]


def _cell_runs(table: Table, measured: MeasuredCell) -> CellRuns:
    cell, ours = measured.cell, measured.ours
    n = len(measured.accuracies)
    records = (*measured.runs, *measured.failed)
    places = {f"everlearn {record.version} on {record.hardware}, {record.started[:10]}" for record in records}
    settings = records[0].settings.items()
    return CellRuns(
        anchor(table, measured),
        name(f"{cell.row}, {cell.column}", method=cell.row),
        "" if ours is None else f"{number(ours.mean)} over {n} seed{'s' * (n > 1)}",
        len(measured.failed),
        command_of(records),
        _table(records),
        tuple(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings),
        "; ".join(sorted(places)),
    )


def command_of(records: Sequence[Record]) -> str:
    """The command that repeats these runs, which differ in the seed alone."""
    return command(records[0].job, 1 + max(record.job["seed"] for record in records))


def _table(records: Sequence[Record]) -> TableView:
    """A row for each run; metrics of the user's own come after the library's."""
    found = {name: None for record in records for name in decode(record.result).metrics}
    own = [name for name in found if name not in METRICS]
    columns = (*HEADS.values(), *("prequential" if name == PREQUENTIAL else name for name in own), *RESOURCES)
    return TableView(
        "seed", tuple(Column(title) for title in columns), tuple(_row(record, own) for record in records)
    )


def _row(record: Record, own: Sequence[str]) -> Row:
    seed = Entry(str(record.job["seed"]), sort=record.job["seed"])
    run = Entry(record.key, style=("code",), sort=record.key)
    if record.result is None:
        span = len(HEADS) + len(own) + len(RESOURCES) - 1
        error = Entry(record.error or "", span=span, style=("wide", "failed"))
        return Row(seed, (error, run))
    result = decode(record.result)
    speed = result.samples_per_second
    return Row(
        seed,
        (
            *(number_entry(None if value is None else 100 * value) for value in _of(result.metrics, METRICS)),
            *(_of_own(name, result.metrics.get(name)) for name in own),
            number_entry(record.seconds, 1),
            Entry("–") if speed is None else Entry(f"{speed:,.0f}", sort=speed),
            Entry(_bytes(result.memory_bytes), sort=result.memory_bytes or ""),
            run,
        ),
    )


def _of_own(name: str, value: float | None) -> Entry:
    """An entry of what not all runs have: the prequential accuracy in percent, the user's own metrics as they are."""
    if name == PREQUENTIAL:
        return number_entry(None if value is None else 100 * value)
    return number_entry(value, 4)


def _of(metrics: Mapping[str, float | None], names: Sequence[str]) -> list[float | None]:
    return [metrics.get(name) for name in names]


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:.2f} MB" if value >= 1e4 else f"{value} B"
