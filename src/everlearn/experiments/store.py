"""Where runs are kept: one SQLite file, which several processes may write to and which outlives a kill."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from everlearn.engine.result import Result
from everlearn.experiments.job import Job, key
from everlearn.experiments.runner import Outcome
from everlearn.experiments.settings import settings_in_force

__all__ = ["Record", "Store", "record"]

FORMAT = 1
PATIENCE = 60.0  # seconds that one writer waits for another

TABLE = """
create table if not exists runs (
    key text primary key,
    job text not null, settings text not null,
    version text not null, hardware text not null, started text not null, seconds real not null,
    error text, result text
)
"""
# A done run replaces a failed one of the same key, a failed one an older failure; nothing replaces a done run.
ADD = """
insert into runs values (:key, :job, :settings, :version, :hardware, :started, :seconds, :error, :result)
on conflict (key) do update set
    job = excluded.job, settings = excluded.settings, version = excluded.version, hardware = excluded.hardware,
    started = excluded.started, seconds = excluded.seconds, error = excluded.error, result = excluded.result
where runs.error is not null
"""


@dataclasses.dataclass(frozen=True)
class Record:
    """One run, as it is stored.

    key: names the run: a hash of what determines its numbers.
    job: what was asked for, with the settings that are set beside the benchmark's.
    settings: every setting that was in force, the network's name included.
    version: everlearn's, with the commit where known. hardware: in words. started: ISO time, UTC.
    seconds: of training alone; where result["together"] is above 1, of so many runs together.
    error: one sentence if it failed. result: what it came to if it did not; accuracies are fractions.
    """

    key: str
    job: dict[str, Any]
    settings: dict[str, Any]
    version: str
    hardware: str
    started: str
    seconds: float
    error: str | None
    result: dict[str, Any] | None


class Store:
    """The runs in one file, created with its folders if it is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Store(Path(folder) / "store.sqlite").records()
    []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as connection:
                self._prepare(connection)
        except (sqlite3.DatabaseError, FileExistsError, IsADirectoryError) as error:
            raise ValueError(
                f"{self.path} is no store of runs ({error}); name another file, or one that does not exist yet"
            ) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("pragma user_version").fetchone()[0]
        tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if found not in (0, FORMAT) or (found == 0 and tables):
            raise ValueError(
                f"{self.path} is no store of this version's runs (format {found}, not {FORMAT}); name another file"
            )
        if found == 0:
            connection.execute("pragma journal_mode = wal")
            connection.execute("begin immediate")
            connection.execute(TABLE)
            connection.execute(f"pragma user_version = {FORMAT}")
            connection.execute("commit")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection for one deed: none is carried into another thread or process."""
        with closing(sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    def add(self, record: Record) -> bool:
        """Keep a run, unless it is already there and done; says whether it was kept."""
        row = dataclasses.asdict(record)
        for name in ("job", "settings", "result"):
            row[name] = None if row[name] is None else json.dumps(row[name])
        with self._open() as connection:
            return connection.execute(ADD, row).rowcount > 0

    def get(self, key: str) -> Record | None:
        """The run of this key, if it is there."""
        with self._open() as connection:
            row = connection.execute("select * from runs where key = ?", (key,)).fetchone()
        return None if row is None else _read(row)

    def records(self) -> list[Record]:
        """All runs, in the order they were stored."""
        with self._open() as connection:
            return [_read(row) for row in connection.execute("select * from runs order by rowid")]

    def merge(self, records: Iterable[Record]) -> int:
        """Take over those runs of another store that this one lacks; says how many came in."""
        return sum(self._lacks(record) and self.add(record) for record in records)

    def _lacks(self, record: Record) -> bool:
        """Whether there is no such run here, or but a failed one that is older or that this one makes up for."""
        there = self.get(record.key)
        return there is None or (record.error is None, record.started) > (there.error is None, there.started)


def _read(row: sqlite3.Row) -> Record:
    values = dict(row)
    for name in ("job", "settings", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return Record(**values)


def record(job: Job, outcome: Outcome) -> Record:
    """The run of a job, as it is stored."""
    result, error = outcome.result, outcome.error
    return Record(
        key(job),
        job.plain(),
        settings_in_force(job.learner, job.stream, job.imbalance is not None, job.settings)
        if result is None
        else result.settings,
        outcome.version,
        outcome.hardware,
        outcome.started,
        0.0 if result is None else result.seconds,
        None if error is None else " ".join(f"{type(error).__name__}: {error}".split()),
        None if result is None else _plain(result) | {"together": outcome.together},
    )


def _plain(result: Result) -> dict[str, Any]:
    last = result.history[-1] if result.history else None
    return {
        "accuracy": _number(result.accuracy),
        "anytime_accuracy": _number(result.anytime_accuracy),
        "worst_case_accuracy": _number(result.worst_case_accuracy),
        "forgetting": _number(result.forgetting),
        "samples": result.samples,
        "memory_bytes": result.memory_bytes,
        "footprint": dict(result.memory),
        "samples_per_second": result.samples_per_second,
        "concepts": {} if last is None else _concepts(last.accuracies),
        "confusion": {
            "labels": [] if last is None else list(last.labels),
            "counts": result.confusion.tolist(),
        },
        "evaluations": [
            {
                "samples": look.samples,
                "accuracy": _number(look.accuracy),
                "concepts": _concepts(look.accuracies),
            }
            for look in result.history
        ],
    }


def _concepts(accuracies: dict[int, float]) -> dict[str, float]:
    return {f"task {task + 1}": accuracy for task, accuracy in accuracies.items()}


def _number(value: float) -> float | None:
    """JSON knows no nan."""
    return None if math.isnan(value) else float(value)
