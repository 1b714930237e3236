"""A journal in PostgreSQL, so that another machine can continue where this one died."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from everlearn.live.entries import Entry
from everlearn.live.journal import MOST_REFUSED, LiveError, Refused, checked, refused_in
from everlearn.live.postgres_database import Database

__all__ = ["PostgresJournal"]

READ = 64  # rows fetched at a time
FIELDS = "position, time, kind, detail, samples, checksum"


class PostgresJournal:
    """A journal in PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database, self._name = database, database.name
        self.added = 0

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
            if found is not None and found[0] != last.checksum:
                raise LiveError(f"another process has continued {self._name}: close this one")
            return found is not None

        self._database.run(add, is_there)
        self.added += sum(len(entry.change.samples or entry.change.detail) for entry in entries)

    def entries(self, after: int) -> Iterator[Entry]:
        """The entries with larger positions, in order; a damaged one raises a LiveError."""

        def read(after: int) -> list[Any]:
            return self._select("everlearn_entries where name = %s and position > %s", after, most=READ)

        return checked(read, after, f"the journal of {self._name}", "restore a backup of the database")

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
        return [refused_in(row) for row in rows]

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
        return [
            Entry.of(row) for row in self._select("everlearn_entries where name = %s and kind = 'delete'")
        ]

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
