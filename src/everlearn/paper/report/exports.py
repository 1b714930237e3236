"""The tables for programs: CSV with a line for each cell, JSON with every seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from everlearn.experiments.export import how
from everlearn.paper.table_view import Column, Entry, Row, TableView
from everlearn.paper.tables import Comparison, MeasuredCell, Table
from everlearn.paper.writers import to_csv

__all__ = ["as_csv", "as_json"]


FIELDS = (
    "experiment", "panel", "row", "column", "learner", "stream", "horizon", "epochs", "alone", "validation",
    "n", "mean", "std", "paper_mean", "paper_std", "difference", "outside_paper_spread",
)  # fmt: skip


def as_csv(tables: Sequence[Table]) -> str:
    """A line for each cell with runs: ours and the paper's in percent, the difference in points."""
    lines = [_cell(table, cell) for table in tables for cell in table.cells if cell.ours is not None]
    rows = []
    for line in lines:
        first, *rest = (Entry("" if line[field] is None else str(line[field])) for field in FIELDS)
        rows.append(Row(first, tuple(rest)))
    corner, *columns = FIELDS
    return to_csv(TableView(corner, tuple(Column(field) for field in columns), tuple(rows)))


def as_json(tables: Sequence[Table]) -> str:
    """All tables with runs, with the accuracy of every seed, the keys of the runs, and paired comparisons."""
    content = [
        {
            "experiment": table.experiment.name,
            "title": table.experiment.title,
            "source": table.experiment.source,
            "panel": table.title,
            "axis": table.axis,
            "cells": [
                _cell(table, cell)
                | {"per_seed": cell.accuracies, "runs": [run.key for run in cell.runs]}
                | {"failed": [run.key for run in cell.failed]}
                for cell in table.cells
                if cell.runs or cell.failed
            ],
            "comparisons": [_comparison(found) for found in table.comparisons()],
        }
        for table in tables
        if table.measured
    ]
    return json.dumps(content, indent=1, ensure_ascii=False)


def _cell(table: Table, cell: MeasuredCell) -> dict[str, Any]:
    paper, ours = cell.cell.published, cell.ours
    return {
        "experiment": table.experiment.name,
        "panel": table.title,
        "row": cell.cell.row,
        "column": cell.cell.column,
        "learner": cell.learner,
        "stream": cell.stream,
        **how((*cell.runs, *cell.failed)[0].job),
        "n": 0 if ours is None else ours.n,
        "mean": None if ours is None else round(ours.mean, 4),
        "std": None if ours is None or ours.std is None else round(ours.std, 4),
        "paper_mean": None if paper is None else paper.mean,
        "paper_std": None if paper is None else paper.std,
        "difference": None if cell.difference is None else round(cell.difference, 4),
        "outside_paper_spread": None if cell.difference is None else cell.outside,
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    return {
        "row": found.against.cell.row,
        "column": found.against.cell.column,
        "less_row": found.cell.cell.row,
        "less_column": found.cell.cell.column,
        **found.difference._asdict(),
    }
