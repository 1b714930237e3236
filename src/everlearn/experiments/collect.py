"""Runs from several stores and folders of results, each run once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from everlearn.experiments import results
from everlearn.experiments.record import Record, check_run
from everlearn.experiments.store import Store

__all__ = ["collect_runs"]


def collect_runs(paths: Sequence[Path]) -> list[Record]:
    """The runs of several stores or folders of results; of the same run, the newest that succeeded."""
    if not paths:
        raise ValueError("there is nothing to report: give at least one store of runs")
    best: dict[str, Record] = {}
    for path in paths:
        if not path.exists():
            raise ValueError(
                f"{path} does not exist; `everlearn run` and `everlearn reproduce` write a store of runs, by default "
                "runs/store.sqlite"
            )
        for record in results.read(path) if path.is_dir() else Store(path).records():
            check_run(record, path)
            other = best.get(record.key)
            if other is None or (record.error is None, record.started) > (other.error is None, other.started):
                best[record.key] = record
    return list(best.values())
