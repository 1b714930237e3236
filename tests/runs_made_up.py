"""Runs with made-up numbers, as the store holds them: for what reads runs, not for what makes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.experiments.job import Job, key
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.settings import settings_in_force
from everlearn.experiments.store import Record, Store
from everlearn.paper.experiment import experiment


def run(job: Job, accuracy: float, **changes: Any) -> Record:
    """A run of a job that ended with this accuracy, in percent."""
    share = accuracy / 100
    tasks = {f"task {i + 1}": share for i in range(5)}
    wrong = round(100 - accuracy)
    result = {
        "accuracy": share,
        "anytime_accuracy": share,
        "worst_case_accuracy": share,
        "forgetting": None,
        "memory_bytes": 1_600_000,
        "footprint": {"replay": 1_500_000, "prototypes": 100_000},
        "samples_per_second": 3000.0,
        "concepts": tasks,
        "confusion": {"labels": [0, 1], "counts": [[100 - wrong, wrong], [wrong, 100 - wrong]]},
        "evaluations": [
            {"samples": 100 * n, "accuracy": share, "concepts": dict(list(tasks.items())[:n])}
            for n in range(1, 6)
        ],
    }
    record = Record(
        key=key(job),
        job=job.plain(),
        settings=settings_in_force(job.learner, job.stream, job.imbalance is not None, job.settings),
        version="0.0+test",
        hardware="a machine; torch 0",
        started="2026-01-01T00:00:00+00:00",
        seconds=1.5,
        error=None,
        result=result,
    )
    return dataclasses.replace(record, **changes)


def failed(job: Job) -> Record:
    """A run of a job that ended with an error."""
    return run(job, 0, error="ValueError: <b>too</b> bad", result=None)


def five(learner: str, stream: str, accuracies: Iterable[float], **what: Any) -> list[Record]:
    """Runs with seeds 0, 1, … that ended with these accuracies, in percent."""
    return [run(Job(learner, stream, seed, **what), value) for seed, value in enumerate(accuracies)]


def of_experiment(name: str, spread: float = 1.0, **only: Any) -> list[Record]:
    """Five seeds of every cell of an experiment, around what the paper printed, or around 50."""
    rng = np.random.default_rng(0)
    runs = {}
    for panel in experiment(name, SweepOptions(**only)).panels:
        for cell in panel.cells:
            middle = cell.published.mean if cell.published else 50.0
            for job in cell.jobs:
                runs.setdefault(key(job), run(job, float(np.clip(middle + spread * rng.normal(), 0, 100))))
    return list(runs.values())


def stored(path: Path, records: Iterable[Record]) -> Path:
    """A store of these runs."""
    store = Store(path)
    for record in records:
        store.add(record)
    return store.path
