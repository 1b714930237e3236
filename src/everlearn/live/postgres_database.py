"""A connection to PostgreSQL that owns one learner, and the tables that it uses.

One process at a time owns a learner, by an advisory lock that PostgreSQL releases when its connection ends.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from everlearn.live.journal import LiveError

__all__ = ["TABLES_OF_A_LEARNER", "Database", "has_learner", "is_postgres"]

Result = TypeVar("Result")

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
# All columns but the name of the learner and a number that PostgreSQL gives.
TABLES_OF_A_LEARNER = {
    "everlearn_learners": "format, removed, last",
    "everlearn_entries": "position, time, kind, detail, samples, checksum",
    "everlearn_refused": "position, time, kind, detail, samples, checksum, reason",
    "everlearn_environments": "after, environment",
    "everlearn_snapshots": "position, time, content",
}


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
        self._psycopg = _driver()
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
