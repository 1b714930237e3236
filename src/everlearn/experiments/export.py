"""Export runs as JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everlearn import learners
from everlearn.experiments.codec import METRICS, PREQUENTIAL, decode
from everlearn.experiments.record import Record

__all__ = ["how", "write_csv", "write_json"]

MEASURED = (*METRICS, "memory_bytes", "samples_per_second", "together")
COLUMNS = (
    "key", "learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount",
    "horizon", "epochs", "alone", "validation", "settings",
    *MEASURED, "seconds", "started", "version", "hardware", "error",
    "class_order", "paradigm", "infer", "cost", "window", "evaluator", "versions", PREQUENTIAL,
)  # fmt: skip
OWN_METRIC = "metric_"
"""Columns of the user's own metrics begin with it, so that none has the name of another column."""


def write_json(records: Sequence[Record], path: Path) -> None:
    """All runs as one list, with every evaluation and confusion."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n", "utf-8")


def write_csv(records: Sequence[Record], path: Path) -> None:
    """One line for each run with its final metrics; accuracies are fractions.

    The last columns are the user's own metrics.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    own = list(dict.fromkeys(name for record in records for name in _own_metrics(record)))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (*COLUMNS, *own), extrasaction="ignore")
        writer.writeheader()
        for record in records:
            writer.writerow(_line(record))


def _line(record: Record) -> dict[str, Any]:
    """The values of a run by column; those that are not a number or a text are JSON."""
    job, measured = record.job, decode(record.result).metrics
    numbers = {name: (record.result or {}).get(name) for name in MEASURED}
    row = job | dataclasses.asdict(record) | numbers | how(job)
    row |= {"settings": job["settings"], "class_order": job.get("class_order", "sorted")}
    row |= {"window": (job.get("horizon") or {}).get("samples"), PREQUENTIAL: measured.get(PREQUENTIAL)}
    row |= _own_metrics(record)
    return {
        name: json.dumps(value, sort_keys=True) if isinstance(value, dict | list | tuple) else value
        for name, value in row.items()
    }


def _own_metrics(record: Record) -> dict[str, float | None]:
    measured = decode(record.result).metrics.items()
    return {f"{OWN_METRIC}{name}": value for name, value in measured if name not in (*METRICS, PREQUENTIAL)}


def how(job: dict[str, Any]) -> dict[str, Any]:
    """Fields of a job that tell runs of a learner on a stream apart: horizon, epochs, and how it was run.

    >>> how({"learner": "cope", "alone": True})
    {'horizon': 'batch', 'epochs': 1, 'alone': True, 'validation': False}
    """
    kind = learners.registry().get(job["learner"])
    usual = {} if kind is None else dataclasses.asdict(kind.horizon)
    horizon = usual | (job.get("horizon") or {})
    return {
        "horizon": horizon.get("extent"),
        "epochs": horizon.get("epochs"),
        "alone": job.get("alone", False),
        "validation": job.get("validation", False),
    }
