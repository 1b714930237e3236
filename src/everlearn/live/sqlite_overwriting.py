"""Overwriting what a SQLite file and its log held: a deleted row may stay in free pages and in the log."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from everlearn.live.journal import LiveError

__all__ = ["BUSY", "copy_log", "fill_log", "log_of", "overwrite_free_pages", "overwrite_log"]

BUSY = "is locked by another process: wait until that ends, and call again"
ZEROS = 2**20  # bytes written at a time


def log_of(path: Path) -> Path:
    """The log of a database."""
    return path.with_name(f"{path.name}-wal")


def fill_log(connection: sqlite3.Connection, size: int) -> None:
    """Write zeros to the log, up to this size.

    The transaction is rolled back. Since it does not fit into the cache, it is in the log by then.
    """
    (usual,) = connection.execute("pragma cache_size").fetchone()
    connection.execute("pragma cache_size = 10")
    connection.execute("begin immediate")
    try:
        connection.execute("create table if not exists zeros (bytes blob)")
        _insert_zeros(connection, size)
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
        connection.execute(f"pragma cache_size = {usual}")


def overwrite_free_pages(connection: sqlite3.Connection) -> None:
    """Fill the free pages with zeros: they may hold rows that were removed without being overwritten."""
    free, size = (
        connection.execute(f"pragma {name}").fetchone()[0] for name in ("freelist_count", "page_size")
    )
    connection.execute("drop table if exists zeros")  # of a process that was killed here
    connection.execute("create table zeros (bytes blob)")
    _insert_zeros(connection, free * size)
    connection.execute("drop table zeros")


def copy_log(connection: sqlite3.Connection, path: Path, mode: str) -> None:
    """Copy the whole log to the database; "restart" then uses it from its beginning, "truncate" empties it."""
    busy, *_ = connection.execute(f"pragma wal_checkpoint({mode})").fetchone()
    if busy:
        raise LiveError(f"{path} {BUSY}")


def overwrite_log(connection: sqlite3.Connection, path: Path) -> None:
    """Fill a log that is used from its beginning with zeros, and sync them, since what is cut off is not."""
    log = log_of(path)
    try:
        fill_log(connection, log.stat().st_size + ZEROS)  # and more than the cache holds back
        with log.open("rb+") as file:
            os.fsync(file.fileno())
    except OSError as error:
        raise LiveError(f"{log} can't be overwritten ({error.strerror}): check the disk") from None


def _insert_zeros(connection: sqlite3.Connection, size: int) -> None:
    for _ in range(-(-size // ZEROS)):
        connection.execute("insert into zeros values (zeroblob(?))", (ZEROS,))
