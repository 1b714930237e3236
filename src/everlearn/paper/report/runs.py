"""The runs behind each number: seeds, settings, machine, command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from everlearn.experiments.command import command
from everlearn.experiments.store import Record
from everlearn.paper.report.formatting import in_html, number
from everlearn.paper.report.tables import anchor, dot, head, table_of
from everlearn.paper.tables import MeasuredCell, Table

__all__ = ["command_of", "runs_of"]

METRICS = {
    "accuracy": "accuracy",
    "anytime_accuracy": "anytime",
    "worst_case_accuracy": "worst case",
    "forgetting": "forgetting",
}


def runs_of(table: Table) -> str:
    """All runs of a table, a fold for each of its cells."""
    folds = "".join(_fold(table, cell) for cell in table.cells if cell.runs or cell.failed)
    title = (
        table.experiment.title
        if len(table.experiment.panels) == 1
        else f"{table.experiment.title}: {table.title}"
    )
    return f"<h3>{in_html(title)}</h3>{folds}"


def _fold(table: Table, measured: MeasuredCell) -> str:
    cell = measured.cell
    n = len(measured.accuracies)
    ours = "" if measured.ours is None else f"{number(measured.ours.mean)} over {n} seed{'s' * (n > 1)}"
    failed = f'<span class="failed">{len(measured.failed)} failed</span>' if measured.failed else ""
    name = f"{dot(cell.row)}{in_html(cell.row)}, {in_html(cell.column)}"
    records = (*measured.runs, *measured.failed)
    return (
        f'<details id="{anchor(table, measured)}">'
        f'<summary>{name} <span class="quiet">{ours} {failed}</span></summary>'
        f"{command_of(records)}{_table(records)}{_settings(records)}{_where(records)}</details>"
    )


def command_of(records: Sequence[Record]) -> str:
    """What repeats these runs, which differ in the seed alone."""
    line = command(records[0].job, 1 + max(record.job["seed"] for record in records))
    button = '<button type="button" class="action copy">copy</button>'
    return f'<div class="command"><code>{escape(line)}</code>{button}</div>'


def _table(records: tuple[Record, ...]) -> str:
    heads = "".join(map(head, ("seed", *METRICS.values(), "seconds", "samples/s", "memory", "run")))
    return table_of([f"<tr>{heads}</tr>"], [_row(record) for record in records])


def _row(record: Record) -> str:
    seed = f'<th scope="row" data-value="{record.job["seed"]}">{record.job["seed"]}</th>'
    if record.result is None:
        told = f'<td class="text failed" colspan="7">{escape(record.error or "")}</td>'
        return f"<tr>{seed}{told}<td><code>{escape(record.key)}</code></td></tr>"
    values = [(None if record.result.get(name) is None else 100 * record.result[name]) for name in METRICS]
    cells = "".join(_number(value, 2) for value in values)
    cells += _number(record.seconds, 1) + _number(record.result.get("samples_per_second"), 0)
    held = record.result.get("memory_bytes")
    cells += f'<td data-value="{held or ""}">{_bytes(held)}</td>'
    return (
        f'<tr>{seed}{cells}<td data-value="{escape(record.key)}"><code>{escape(record.key)}</code></td></tr>'
    )


def _number(value: float | None, digits: int) -> str:
    shown = number(value, digits) if digits or value is None else f"{value:,.0f}"
    return f'<td data-value="{"" if value is None else value}">{shown}</td>'


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 1e6:.2f} MB" if value >= 1e4 else f"{value} B"


def _settings(records: tuple[Record, ...]) -> str:
    """The settings in force, once for all seeds: they differ in nothing else."""
    words = " ".join(
        f"<code>{escape(name)} = {escape(_plain(v))}</code>" for name, v in records[0].settings.items()
    )
    return f'<p class="settings">Settings in force: {words}</p>'


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _where(records: tuple[Record, ...]) -> str:
    places = {f"everlearn {record.version} on {record.hardware}, {record.started[:10]}" for record in records}
    return f'<p class="where">{escape("; ".join(sorted(places)))}</p>'
