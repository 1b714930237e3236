"""The store of runs: one SQLite file that several processes may write to at the same time."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from everlearn.core.settings import OWN_FUNCTION
from everlearn.experiments.codec import encode
from everlearn.experiments.job import Job, key
from everlearn.experiments.record import Record, check_record
from everlearn.experiments.runner import Outcome

__all__ = ["STORE", "Record", "Store", "check_can_store", "record"]

STORE = Path("runs") / "store.sqlite"
"""The store that commands use by default."""

FORMAT = 1
WITH_EXPERIMENTS = 2  # the format from the first experiment on: earlier versions don't know that table
PATIENCE = 60.0  # seconds that one writer waits for another
FIELDS = [field.name for field in dataclasses.fields(Record)]
# Messages for SQLite's errors, by the beginning of their names.
SENTENCES = {
    "SQLITE_BUSY": "is in use by another process; wait until that ends, and run the same command again",
    "SQLITE_LOCKED": "is in use by another process; wait until that ends, and run the same command again",
    "SQLITE_CORRUPT": "is damaged; restore a copy of it, or name another file",
    "SQLITE_READONLY": "can only be read; make the file and its folder writable, or name another file",
    "SQLITE_FULL": "can't be written, since the disk is full; make room, and run the same command again",
    "SQLITE_IOERR": "can't be read or written, since the disk fails; check the disk, or name another file",
    "SQLITE_PERM": "can't be opened; check the permissions of the file and its folder, or name another file",
    "SQLITE_CANTOPEN": "can't be opened; check the permissions of the file and its folder, or name another file",
}

TABLE = """
create table if not exists runs (
    key text primary key,
    job text not null, settings text not null,
    version text not null, hardware text not null, started text not null, seconds real not null,
    error text, result text
)
"""
EXPERIMENTS = "create table if not exists experiments (definition text not null)"
TABLES = {FORMAT: ["runs"], WITH_EXPERIMENTS: ["experiments", "runs"]}
# A run that succeeded replaces a failed one of the same key; a failure replaces an older failure.
ADD = """
insert into runs values (:key, :job, :settings, :version, :hardware, :started, :seconds, :error, :result)
on conflict (key) do update set
    job = excluded.job, settings = excluded.settings, version = excluded.version, hardware = excluded.hardware,
    started = excluded.started, seconds = excluded.seconds, error = excluded.error, result = excluded.result
where runs.error is not null
"""


class Store:
    """The runs in one file, which is created with its folders if it does not exist.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Store(Path(folder) / "store.sqlite").records()
    []
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{self.path} is not a store of runs, since its folder can't be created ({error.strerror}); "
                "name another file"
            ) from None
        with self._open(write=not self.path.exists()) as connection:
            self._prepare(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("begin")  # so that both are read at the same moment
        found = connection.execute("pragma user_version").fetchone()[0]
        parts = connection.execute("select type, name from sqlite_master where type != 'index'").fetchall()
        connection.execute("commit")
        if found not in (0, *TABLES) or (found == 0 and parts):
            raise ValueError(
                f"{self.path} is not a store of this version (format {found}, not {WITH_EXPERIMENTS}); "
                "name another file"
            )
        if found == 0:
            with suppress(sqlite3.OperationalError):  # another process creates it now, and sets the mode
                connection.execute("pragma journal_mode = wal")
            connection.execute("begin immediate")
            if (
                connection.execute("pragma user_version").fetchone()[0] == 0
            ):  # still; another may have made it
                connection.execute(TABLE)
                connection.execute(f"pragma user_version = {FORMAT}")
            connection.execute("commit")
        elif not self._has_our_tables(connection, found, [tuple(part) for part in parts]):
            raise ValueError(f"{self.path} is not a store of runs (it has other tables); name another file")

    def _has_our_tables(self, connection: sqlite3.Connection, found: int, parts: list[Any]) -> bool:
        if sorted(parts) != [("table", name) for name in TABLES[found]]:
            return False
        return self._columns(connection, "runs") == FIELDS and (
            found == FORMAT or self._columns(connection, "experiments") == ["definition"]
        )

    def _columns(self, connection: sqlite3.Connection, table: str) -> list[str]:
        return [column[0] for column in connection.execute(f"select * from {table} limit 0").description]

    @contextmanager
    def _open(self, write: bool = False) -> Iterator[sqlite3.Connection]:
        """One connection per operation: none is carried into another thread or process.

        An error of SQLite becomes a ValueError in one sentence.
        """
        try:
            with closing(self._connect(write)) as connection:
                connection.row_factory = sqlite3.Row
                yield connection
        except sqlite3.Error as error:
            raise ValueError(_sentence(self.path, error)) from None

    def _connect(self, write: bool) -> sqlite3.Connection:
        """A connection; also to a read-only file if nothing is to be written."""
        connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        try:
            connection.execute("pragma user_version")
        except sqlite3.Error as error:
            connection.close()
            log = Path(f"{self.path}-wal")  # the latest writes, if they are not in the file itself yet
            unread = log.exists() and log.stat().st_size
            if write or unread or not self.path.is_file() or not isinstance(error, sqlite3.OperationalError):
                raise
            # SQLite can't create the index of its log in a read-only folder.
            uri = f"{self.path.absolute().as_uri()}?immutable=1"
            return sqlite3.connect(uri, uri=True, isolation_level=None)
        return connection

    def check_writable(self) -> None:
        """Raise a ValueError if a run could not be stored; nothing is written."""
        with self._open(write=True) as connection:
            connection.execute("begin immediate")
            connection.execute("rollback")

    def add(self, record: Record) -> bool:
        """Store a run unless it is stored already and succeeded; returns whether it was stored."""
        row = dataclasses.asdict(record)
        for name in ("job", "settings", "result"):
            row[name] = None if row[name] is None else json.dumps(row[name])
        with self._open(write=True) as connection:
            return connection.execute(ADD, row).rowcount > 0

    def get(self, key: str) -> Record | None:
        """The run with this key, or None."""
        with self._open() as connection:
            row = connection.execute("select * from runs where key = ?", (key,)).fetchone()
        return None if row is None else self._read(row)

    def records(self) -> list[Record]:
        """All runs, in the order they were stored."""
        with self._open() as connection:
            return [self._read(row) for row in connection.execute("select * from runs order by rowid")]

    def _read(self, row: sqlite3.Row) -> Record:
        values = dict(row)
        try:
            for name in ("job", "settings", "result"):
                values[name] = None if values[name] is None else json.loads(values[name])
        except (ValueError, TypeError, RecursionError):
            raise ValueError(
                f"the run {str(values['key'])[:40]!r} in {self.path} can't be read; "
                "restore a copy of the file, or name another"
            ) from None
        return check_record(Record(**values), self.path)

    def experiments(self) -> list[dict[str, Any]]:
        """The definitions of the experiments that were run into this store, in the order they were stored."""
        with self._open() as connection:
            return [definition for _, definition in self._definitions(connection)]

    def _definitions(self, connection: sqlite3.Connection) -> list[tuple[int, dict[str, Any]]]:
        if connection.execute("pragma user_version").fetchone()[0] < WITH_EXPERIMENTS:
            return []
        rows = connection.execute("select rowid, definition from experiments order by rowid").fetchall()
        try:
            found = [(row[0], json.loads(row[1])) for row in rows]
            if all(isinstance(definition, dict) for _, definition in found):
                return found
        except (ValueError, TypeError, RecursionError):
            pass
        raise ValueError(
            f"an experiment in {self.path} can't be read; restore a copy of the file, or name another"
        )

    def add_experiment(
        self, definition: dict[str, Any], replaces: Callable[[dict[str, Any]], bool] = lambda other: False
    ) -> None:
        """Store the definition of an experiment, as JSON values, in place of those that it replaces.

        One that is there already is not written again.
        """
        text = json.dumps(definition)
        if json.loads(text) in self.experiments():
            return
        with self._open(write=True) as connection:
            connection.execute("begin immediate")
            connection.execute(EXPERIMENTS)
            connection.execute(f"pragma user_version = {WITH_EXPERIMENTS}")
            for place, other in self._definitions(connection):
                if replaces(other):
                    connection.execute("delete from experiments where rowid = ?", (place,))
            connection.execute("insert into experiments values (?)", (text,))
            connection.execute("commit")

    def merge(self, records: Iterable[Record]) -> int:
        """Add those runs that this store does not have; returns how many were added."""
        return sum(self._lacks(record) and self.add(record) for record in records)

    def _lacks(self, record: Record) -> bool:
        """Whether the store has no such run, or one that failed where this one is newer or succeeded."""
        there = self.get(record.key)
        return there is None or (record.error is None, record.started) > (there.error is None, there.started)


def check_can_store(path: str | os.PathLike[str]) -> None:
    """Raise a ValueError if runs could not be stored in this file; nothing is created or written.

    >>> check_can_store("/dev/null/store.sqlite")
    Traceback (most recent call last):
    ValueError: /dev/null/store.sqlite can't be created, since /dev/null is not a folder; name another file
    """
    path = Path(path)
    if path.exists():
        Store(path).check_writable()
        return
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise ValueError(f"{path} can't be created, since {folder} is not a folder; name another file")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{path} can't be created, since {folder} can only be read; name another file")


def _sentence(path: Path, error: sqlite3.Error) -> str:
    """What is wrong with a store, and what to do about it."""
    name = getattr(error, "sqlite_errorname", "")
    for kind, words in SENTENCES.items():
        if name.startswith(kind):
            return f"{path} {words}"
    return f"{path} is not a store of runs ({error}); name another file, or one that does not exist yet"


def _as_json(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the names of functions instead of the functions."""
    return {
        name: OWN_FUNCTION + value.__qualname__ if callable(value) else value
        for name, value in settings.items()
    }


def record(job: Job, outcome: Outcome) -> Record:
    """The record of a job and its outcome."""
    result, error = outcome.result, outcome.error
    return Record(
        key(job),
        job.plain(),
        _as_json(job.all_settings() if result is None else result.settings),
        outcome.version,
        outcome.hardware,
        outcome.started,
        0.0 if result is None else result.seconds,
        None if error is None else " ".join(f"{type(error).__name__}: {error}".split()),
        None if result is None else encode(result, outcome.together),
    )
