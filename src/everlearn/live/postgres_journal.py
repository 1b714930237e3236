"""A journal in PostgreSQL, so that another machine can continue where this one died.

One process at a time owns a learner, by an advisory lock that PostgreSQL releases when its connection ends.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from everlearn.live.entries import Change, Entry
from everlearn.live.journal import LiveError, Refused

__all__ = ["Database", "PostgresJournal", "has_learner", "is_postgres"]

Result = TypeVar("Result")

MOST_REFUSED = 100  # refused entries that are kept
READ = 64  # rows fetched at a time
PATIENCE = 10  # seconds to connect
MOMENT = 1.0  # seconds to wait for the lock
ROW = (
    "position bigint, time double precision not null, kind text not null, detail text not null, samples bytea, "
    "checksum bigint not null"
)
TABLES = f"""
create table if not exists everlearn_learners (
    name text primary key, format int not null, removed bigint not null default 0, last bigint not null default 0
);
create table if not exists everlearn_entries (name text, {ROW}, primary key (name, position));
create table if not exists everlearn_refused (name text, {ROW}, reason text not null, primary key (name, position));
create table if not exists everlearn_environments (
    number bigserial primary key, name text not null, after bigint not null, environment text not null
);
create table if not exists everlearn_snapshots (
    name text, position bigint, time double precision not null, content bytea not null, primary key (name, position)
);
"""
FIELDS = "position, time, kind, detail, samples, checksum"


def is_postgres(journal: str | None) -> bool:
    """Whether the address of a journal names PostgreSQL; raises a ValueError for another kind.

    >>> is_postgres("postgresql://host/database"), is_postgres(None)
    (True, False)
    """
    if journal is None:
        return False
    if not str(journal).startswith(("postgresql://", "postgres://")):
        raise ValueError(f"a journal is None or postgresql://user@host/database, not {journal!r}")
    return True


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ImportError("postgresql:// needs psycopg: run `pip install 'everlearn[postgres]'`") from None
    return psycopg


def has_learner(url: str, name: str) -> bool:
    """Whether a database has a learner of this name, which another process may use."""
    driver = _driver()
    try:
        with driver.connect(url, autocommit=True, connect_timeout=PATIENCE) as connection:
            if connection.execute("select to_regclass('everlearn_snapshots')").fetchone()[0] is None:
                return False
            query = "select 1 from everlearn_snapshots where name = %s limit 1"
            return connection.execute(query, (name,)).fetchone() is not None
    except driver.Error as error:
        raise LiveError(f"the database of {name} can't be used: {' '.join(str(error).split())}") from None


class Database:
    """A connection that owns one learner. A connection that breaks is made again, if nobody else took the learner.

    name: of the learner.
    """

    def __init__(self, url: str, name: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise ImportError(
                "postgresql:// needs psycopg: run `pip install 'everlearn[postgres]'`"
            ) from None
        self._psycopg: Any = psycopg
        self._url, self.name = url, name
        self._lock = threading.RLock()  # the journal and the snapshots are used in different threads
        self._connection: Any = None
        self.run(lambda cursor: cursor.execute(TABLES))

    def run(self, action: Callable[[Any], Result], retry: Callable[[Any], bool] | None = None) -> Result:
        """The result of an action in one transaction, which is durable when this returns.

        retry: after a broken connection, whether the action took place already; else the error is raised.
        """
        with self._lock:
            try:
                return self._attempt(action)
            except self._psycopg.OperationalError as error:
                self._drop()
                if retry is None:
                    raise self._error(error) from None
            except self._psycopg.Error as error:
                raise self._error(error) from None
            # It is not known whether the transaction was committed before the connection broke.
            try:
                if self._attempt(retry):
                    return None  # type: ignore[return-value]
                return self._attempt(action)
            except self._psycopg.Error as error:
                self._drop()
                raise self._error(error) from None

    def _attempt(self, action: Callable[[Any], Result]) -> Result:
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            return action(cursor)

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            connection = self._psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=PATIENCE,
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                options="-c synchronous_commit=on",
            )
            if not self._take(connection):
                connection.close()
                raise LiveError(
                    f"{self.name} in the database is in use by another process: close it there first"
                )
            self._connection = connection
        return self._connection

    def _take(self, connection: Any) -> bool:
        """Own the learner; the connection of a process that has just ended may last a moment longer."""
        end = time.monotonic() + MOMENT
        query = "select pg_try_advisory_lock(hashtextextended('everlearn ' || %s, 0))"
        while not connection.execute(query, (self.name,)).fetchone()[0]:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _error(self, error: Exception) -> LiveError:
        reason = " ".join(str(error).split())
        return LiveError(f"the database of {self.name} can't be used: {reason}; check it, and call again")

    def close(self) -> None:
        """Let others own the learner, and close the connection."""
        with self._lock:
            if self._connection is not None and not self._connection.closed:
                with contextlib.suppress(self._psycopg.Error):
                    self._connection.execute("select pg_advisory_unlock_all()")
            self._drop()


class PostgresJournal:
    """A journal in PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database, self._name = database, database.name

    # Entries.

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, all or none. After a broken connection, they are added once."""
        rows = [(self._name, *entry.row) for entry in entries]
        last = entries[-1]

        def add(cursor: Any) -> None:
            cursor.executemany(
                f"insert into everlearn_entries (name, {FIELDS}) values (%s{', %s' * 6})", rows
            )

        def is_there(cursor: Any) -> bool:
            found = cursor.execute(
                "select checksum from everlearn_entries where name = %s and position = %s",
                (self._name, last.position),
            ).fetchone()
            if found is not None and found[0] != last.row[5]:
                raise LiveError(f"another process has continued {self._name}: close this one")
            return found is not None

        self._database.run(add, is_there)

    def entries(self, after: int) -> Iterator[Entry]:
        """The entries with larger positions, in order; a damaged one raises a LiveError."""
        while True:
            rows = self._select("everlearn_entries where name = %s and position > %s", after, most=READ)
            if not rows:
                return
            for row in rows:
                entry = _entry(row)
                if entry.row[5] != row[5]:
                    raise LiveError(
                        f"the journal of {self._name} is damaged: entry {entry.position} has another checksum than "
                        "its content; restore a backup of the database"
                    )
                yield entry
            after = rows[-1][0]

    def _select(self, where: str, *values: Any, fields: str = FIELDS, most: int | None = None) -> list[Any]:
        limit = "" if most is None else f" limit {most}"

        def read(cursor: Any) -> list[Any]:
            query = f"select {fields} from {where} order by position{limit}"
            return list(cursor.execute(query, (self._name, *values)).fetchall())

        return self._database.run(read)

    def bounds(self) -> tuple[int, int]:
        """The position up to which entries were removed, and the position of the last entry."""

        def read(cursor: Any) -> tuple[int, int]:
            removed, last = cursor.execute(
                "select removed, greatest(removed, last, (select coalesce(max(position), 0) from everlearn_entries e "
                "where e.name = l.name)) from everlearn_learners l where name = %s",
                (self._name,),
            ).fetchone() or (0, 0)
            return removed, last

        return self._database.run(read)

    def refuse(self, position: int, reason: str) -> None:
        """Set an entry aside; only the last ones are kept."""
        here = (self._name, position)

        def move(cursor: Any) -> None:
            cursor.execute(
                f"insert into everlearn_refused (name, {FIELDS}, reason) select name, {FIELDS}, %s "
                "from everlearn_entries where name = %s and position = %s",
                (reason.replace("\0", " "), *here),
            )
            cursor.execute("delete from everlearn_entries where name = %s and position = %s", here)
            cursor.execute(
                "update everlearn_learners set last = greatest(last, %s) where name = %s",
                (position, self._name),
            )
            cursor.execute(
                "delete from everlearn_refused where name = %s and position not in (select position from "
                f"everlearn_refused where name = %s order by position desc limit {MOST_REFUSED})",
                (self._name, self._name),
            )

        self._database.run(move)

    def refused(self) -> list[Refused]:
        """The entries that were set aside last, the oldest first."""
        rows = self._select("everlearn_refused where name = %s", fields=f"{FIELDS}, reason")
        return [Refused(_entry(row), row[6]) for row in rows]

    def trim(self, until: int, most: int) -> bool:
        """Remove entries up to a position. All at once: others do not wait for it."""
        self._remove("position <= %s", until)
        return True

    def _remove(self, where: str, position: int, refused: Sequence[int] = ()) -> None:
        def remove(cursor: Any) -> None:
            cursor.execute(
                f"delete from everlearn_entries where name = %s and {where}", (self._name, position)
            )
            cursor.execute(
                "delete from everlearn_refused where name = %s and position = any(%s)",
                (self._name, list(refused)),
            )
            cursor.execute(
                "update everlearn_learners set removed = greatest(removed, %s) where name = %s",
                (position, self._name),
            )

        self._database.run(remove)

    def cut(self, after: int) -> None:
        """Remove the entries with larger positions."""

        def remove(cursor: Any) -> None:
            for table in ("entries", "refused"):
                words = f"delete from everlearn_{table} where name = %s and position > %s"
                cursor.execute(words, (self._name, after))
            cursor.execute("update everlearn_learners set last = %s where name = %s", (after, self._name))

        self._database.run(remove)

    def deletions(self) -> list[Entry]:
        """The entries of the kind "delete"."""
        return [_entry(row) for row in self._select("everlearn_entries where name = %s and kind = 'delete'")]

    def erase(self, until: int, refused: Sequence[int]) -> None:
        """Remove entries up to a position and these refused ones. PostgreSQL's own files keep them for a while."""
        self._remove("position <= %s", until, refused)

    # Environments.

    def environments(self) -> list[tuple[int, dict[str, Any]]]:
        """The environments in which entries were written, each with the position after which it began."""

        def read(cursor: Any) -> list[Any]:
            query = "select after, environment from everlearn_environments where name = %s order by number"
            return list(cursor.execute(query, (self._name,)).fetchall())

        return [(after, json.loads(text)) for after, text in self._database.run(read)]

    def add_environment(self, after: int, environment: dict[str, Any]) -> None:
        """Later entries are written in this environment."""

        def add(cursor: Any) -> None:
            cursor.execute(
                "delete from everlearn_environments where name = %s and after >= %s", (self._name, after)
            )
            cursor.execute(
                "insert into everlearn_environments (name, after, environment) values (%s, %s, %s)",
                (self._name, after, json.dumps(environment)),
            )

        self._database.run(add)

    def nbytes(self) -> int:
        """The size of the entries."""

        def measure(cursor: Any) -> int:
            (size,) = cursor.execute(
                "select coalesce(sum(octet_length(detail) + coalesce(octet_length(samples), 0)), 0) "
                "from everlearn_entries where name = %s",
                (self._name,),
            ).fetchone()
            return int(size)

        return self._database.run(measure)

    def copy_to(self, path: str) -> None:
        """Raise a LiveError: databases have backups of their own."""
        raise LiveError(f"{self._name} is in PostgreSQL: back up the database, with pg_dump for example")

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


def _entry(row: Sequence[Any]) -> Entry:
    position, at, kind, detail, samples, *_ = row
    return Entry(position, at, Change(kind, detail, None if samples is None else bytes(samples)))
