"""The journal in one SQLite file: write-ahead log, `synchronous = full`, so that a commit is on disk."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from everlearn.atomic_write import is_still_at
from everlearn.live.entries import Entry
from everlearn.live.journal import MOST_REFUSED, LiveError, Refused, checked, refused_in
from everlearn.live.sqlite_overwriting import (
    BUSY,
    copy_log,
    fill_log,
    log_of,
    overwrite_free_pages,
    overwrite_log,
)
from everlearn.live.worker import Outcome, Worker

__all__ = ["FILE", "SQLiteJournal"]

FILE = "journal.sqlite"
PATIENCE = 10.0  # seconds that a write waits for a backup in another process
SOON = 10  # commits after which the log gets its size
LOG_BYTES = 2**22  # written to the log before it is copied to the database and used from its beginning again
READ = 64  # rows fetched at a time
PAGE = 4096

TABLES = """
create table if not exists entries (
    position integer primary key, time real not null, kind text not null, detail text not null,
    samples blob, checksum integer not null
);
create table if not exists refused (
    position integer primary key, time real not null, kind text not null, detail text not null,
    samples blob, checksum integer not null, reason text not null
);
create table if not exists environments (
    number integer primary key, after integer not null, environment text not null
);
create table if not exists bounds (removed integer not null, last integer not null);
insert into bounds select 0, 0 where not exists (select * from bounds);
"""
ADD = "insert into entries values (?, ?, ?, ?, ?, ?)"
# Messages for SQLite's errors, by the beginning of their names.
SENTENCES = {
    "SQLITE_BUSY": BUSY,
    "SQLITE_FULL": "can't be written, since the disk is full: make room, and call again",
    "SQLITE_IOERR": "can't be read or written, since the disk fails or is full: check it, and call again",
    "SQLITE_READONLY": "can only be read: make the file and its folder writable",
    "SQLITE_CANTOPEN": "can't be opened: check the permissions of the file and its folder",
    "SQLITE_CORRUPT": "is damaged: restore a backup of the folder",
    "SQLITE_NOTADB": "is not a journal: restore a backup of the folder",
}


class SQLiteJournal:
    """A journal in a folder; the file is created if it does not exist."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / FILE
        with self._sentence():
            self._connection = sqlite3.connect(
                self.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
        try:
            self._set_up()
        except BaseException:
            self._connection.close()
            raise
        self._file = os.stat(self.path)
        self.added = 0
        self._written = self._commits = 0  # bytes in the log, and commits since it was new
        self._copier = Worker("log")
        self._copying: Outcome | None = None

    def _set_up(self) -> None:
        with self._sentence():
            self._connection.text_factory = _text
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = full")
            self._connection.execute("pragma secure_delete = off")  # `erase` overwrites what it removes
            self._connection.execute("pragma wal_autocheckpoint = 0")  # see `_use_log_again`
            self._connection.execute("pragma temp_store = memory")  # so that VACUUM leaves no file elsewhere
            self._check_pages()
            self._connection.executescript(f"begin immediate; {TABLES} commit;")

    def _check_pages(self) -> None:
        """Raise an error if pages of the file are damaged: SQLite may leave out the entries on them silently."""
        found = [line for (line,) in self._connection.execute("pragma quick_check")]
        # A wrong value is one of an entry, which its checksum shows, so that the error names the entry.
        if any(line != "ok" and " value in " not in line for line in found):
            raise self._damaged()

    @contextmanager
    def _sentence(self) -> Iterator[None]:
        """Errors of SQLite become a LiveError in one sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from None

    def _error(self, error: sqlite3.Error) -> LiveError:
        name = getattr(error, "sqlite_errorname", "")
        words = next((text for kind, text in SENTENCES.items() if name.startswith(kind)), None)
        return LiveError(f"{self.path} {words or f'can not be used ({error})'}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """The same, and values of a wrong type or form are an error, too: no checksum protects these."""
        try:
            with self._sentence():
                yield
        except (TypeError, ValueError, LookupError, AttributeError):
            raise self._damaged() from None

    def _damaged(self) -> LiveError:
        return LiveError(f"{self.path} is damaged: restore a backup of the folder")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._sentence():
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._connection.execute("rollback")
                raise

    # Entries.

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, all or none."""
        # Otherwise SQLite would go on writing to a file that nobody can open any more.
        if not is_still_at(self.path, self._file):
            raise LiveError(
                f"{self.path} was removed or replaced while it was in use: close this live learner and open the "
                "folder again"
            )
        # The usual case is in as few steps as possible: one statement is a transaction by itself.
        if len(entries) == 1:
            try:
                self._connection.execute(ADD, entries[0].row)
            except sqlite3.Error as error:
                raise self._error(error) from None
        else:
            with self._transaction() as connection:
                connection.executemany(ADD, (entry.row for entry in entries))
        self._commits += 1
        if self._commits == SOON:
            with suppress(sqlite3.Error):  # it is for speed only
                fill_log(self._connection, LOG_BYTES * 5 // 4)  # where a file grows, commits are far slower
        for entry in entries:
            size = PAGE + len(entry.change.samples or entry.change.detail)
            self._written += size
            self.added += size
        if self._written > LOG_BYTES:
            self._use_log_again()

    def _use_log_again(self) -> None:
        """Copy the log to the database. Most of it is copied in another thread, while entries are added.

        If that fails, the log grows, and it is copied later: the entries are durable, so the change has not failed.
        """
        if self._copying is None:
            self._copying = self._copier.submit(self._copy_log)
        elif self._copying.is_known:
            with suppress(sqlite3.Error):
                self._connection.execute("pragma wal_checkpoint(passive)")
            self._written, self._copying = 0, None

    def _copy_log(self) -> None:
        with self._sentence(), closing(sqlite3.connect(self.path, timeout=PATIENCE)) as connection:
            connection.execute("pragma wal_checkpoint(passive)")

    def entries(self, after: int) -> Iterator[Entry]:
        """The entries with larger positions, in order; a damaged one raises a LiveError."""

        def read(after: int) -> list[Any]:
            query = f"select * from entries where position > ? order by position limit {READ}"
            with self._sentence():
                return self._connection.execute(query, (after,)).fetchall()

        return checked(read, after, str(self.path), "restore a backup of the folder")

    def bounds(self) -> tuple[int, int]:
        """The position up to which entries were removed, and the position of the last entry."""
        with self._reading():
            removed, last = self._connection.execute(
                "select removed, max(removed, last, (select ifnull(max(position), 0) from entries)) from bounds"
            ).fetchone()
            if type(removed) is not int or type(last) is not int:
                raise TypeError
        return removed, last

    def refuse(self, position: int, reason: str) -> None:
        """Set an entry aside; only the last ones are kept."""
        with self._transaction() as connection:
            # A damaged one may have no value where there must be one: it is not kept.
            connection.execute(
                "insert or ignore into refused select *, ? from entries where position = ?",
                (reason, position),
            )
            connection.execute("delete from entries where position = ?", (position,))
            connection.execute("update bounds set last = max(last, ?)", (position,))
            connection.execute(
                "delete from refused where position not in "
                f"(select position from refused order by position desc limit {MOST_REFUSED})"
            )

    def refused(self) -> list[Refused]:
        """The entries that were set aside last, the oldest first."""
        with self._sentence():
            rows = self._connection.execute("select * from refused order by position").fetchall()
        return [refused_in(row) for row in rows]

    def trim(self, until: int, most: int) -> bool:
        """Remove entries up to a position, at most so many of them; whether all are removed."""
        with self._transaction() as connection:
            row = connection.execute(
                "select max(position), count(*) from "
                "(select position from entries where position <= ? order by position limit ?)",
                (until, most),
            ).fetchone()
            done = row[1] < most
            reached = until if done else row[0]
            connection.execute("delete from entries where position <= ?", (reached,))
            connection.execute("update bounds set removed = max(removed, ?)", (reached,))
        return bool(done)

    def cut(self, after: int) -> None:
        """Remove the entries with larger positions."""
        with self._transaction() as connection:
            connection.execute("delete from entries where position > ?", (after,))
            connection.execute("delete from refused where position > ?", (after,))
            connection.execute("update bounds set last = ?", (after,))

    def deletions(self) -> list[Entry]:
        """The entries of the kind "delete"."""
        with self._reading():
            rows = self._connection.execute("select * from entries where kind = 'delete' order by position")
            return [Entry.of(row) for row in rows.fetchall()]

    def erase(self, until: int, refused: Sequence[int]) -> None:
        """Remove entries up to a position and these refused ones, and overwrite their bytes in all files.

        Deleted rows are overwritten with zeros, so are the free pages that earlier rows have left. These reach the
        file before it is packed, which cuts off its end. Then the log is overwritten and emptied.
        """
        if self._copying is not None:  # SQLite does not wait for the log that another thread copies
            self._copying.wait()
        with self._sentence():
            self._connection.execute("pragma secure_delete = on")
        try:
            with self._transaction() as connection:
                connection.execute("delete from entries where position <= ?", (until,))
                connection.executemany(
                    "delete from refused where position = ?", [(each,) for each in refused]
                )
                connection.execute("update bounds set removed = max(removed, ?)", (until,))
            with self._sentence():
                overwrite_free_pages(self._connection)
                copy_log(self._connection, self.path, "restart")
                self._connection.execute("vacuum")
                copy_log(self._connection, self.path, "restart")
                overwrite_log(self._connection, self.path)
                copy_log(self._connection, self.path, "truncate")
                self._commits = 0
        finally:
            with self._sentence():
                self._connection.execute("pragma secure_delete = off")

    # Environments.

    def environments(self) -> list[tuple[int, dict[str, Any]]]:
        """The environments in which entries were written, each with the position after which it began."""
        with self._reading():
            rows = self._connection.execute("select after, environment from environments order by number")
            found = [(after, json.loads(text)) for after, text in rows.fetchall()]
            if not all(type(after) is int and isinstance(each, dict) for after, each in found):
                raise TypeError
        return found

    def add_environment(self, after: int, environment: dict[str, Any]) -> None:
        """Later entries are written in this environment."""
        with self._transaction() as connection:
            connection.execute("delete from environments where after >= ?", (after,))
            connection.execute(
                "insert into environments (after, environment) values (?, ?)",
                (after, json.dumps(environment)),
            )

    # The file.

    def nbytes(self) -> int:
        """The size of the database and its log."""
        files = (self.path, log_of(self.path))
        return sum(file.stat().st_size for file in files if file.exists())

    def copy_to(self, path: str) -> None:
        """Write a consistent copy of the journal; other processes may write to it meanwhile."""
        with self._sentence(), closing(sqlite3.connect(path)) as target:
            self._connection.backup(target)

    def close(self) -> None:
        """Close the file; the log is copied into it."""
        self._copier.close()
        with self._sentence():
            self._connection.close()


def _text(content: bytes) -> str:
    """Text as SQLite holds it; damaged bytes are left to the checksum, so that the entry can be named."""
    return content.decode(errors="replace")
