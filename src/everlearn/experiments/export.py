"""Export runs as JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everlearn import learners
from everlearn.experiments.codec import METRICS
from everlearn.experiments.record import Record

__all__ = ["how", "write_csv", "write_json"]

MEASURED = (*METRICS, "memory_bytes", "samples_per_second", "together")
COLUMNS = (
    "key", "learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount",
    "horizon", "epochs", "alone", "validation", "settings",
    *MEASURED, "seconds", "started", "version", "hardware", "error",
)  # fmt: skip


def write_json(records: Sequence[Record], path: Path) -> None:
    """All runs as one list, with every evaluation and confusion."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n", "utf-8")


def write_csv(records: Sequence[Record], path: Path) -> None:
    """One line for each run with its final metrics; accuracies are fractions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for record in records:
            numbers = {name: (record.result or {}).get(name) for name in MEASURED}
            settings = json.dumps(record.job["settings"], sort_keys=True)
            row = record.job | dataclasses.asdict(record) | numbers | how(record.job)
            writer.writerow(row | {"settings": settings})


def how(job: dict[str, Any]) -> dict[str, Any]:
    """Fields of a job that tell runs of a learner on a stream apart: horizon, epochs, and how it was run.

    >>> how({"learner": "cope", "alone": True})
    {'horizon': 'batch', 'epochs': 1, 'alone': True, 'validation': False}
    """
    kind = learners.registry().get(job["learner"])
    usual = {} if kind is None else dataclasses.asdict(kind.horizon)
    horizon = usual | job.get("horizon", {})
    return {
        "horizon": horizon.get("extent"),
        "epochs": horizon.get("epochs"),
        "alone": job.get("alone", False),
        "validation": job.get("validation", False),
    }
