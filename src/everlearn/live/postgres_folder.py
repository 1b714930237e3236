"""Snapshots in PostgreSQL, beside the journal. The local folder holds copies of them; the database decides."""

from __future__ import annotations

import os
import time
from typing import Any

from everlearn.atomic_write import replace_file
from everlearn.checkpoint import State
from everlearn.live.folder import Folder, older_name
from everlearn.live.journal import LiveError
from everlearn.live.model import position_in
from everlearn.live.postgres_database import TABLES_OF_A_LEARNER, Database
from everlearn.live.upgrades import FORMAT

__all__ = ["PostgresFolder"]


class PostgresFolder(Folder):
    """A local folder whose snapshots are copies of those in the database."""

    def __init__(self, path: str | os.PathLike[str], database: Database) -> None:
        self._database, self._name = database, database.name
        super().__init__(path)

    @property
    def is_new(self) -> bool:
        """Whether the database has no learner of this name yet."""
        return self._format() is None

    def _format(self) -> int | None:
        def read(cursor: Any) -> int | None:
            query = (
                "select format from everlearn_learners l where name = %s and exists "
                "(select 1 from everlearn_snapshots s where s.name = l.name)"
            )
            found = cursor.execute(query, (self._name,)).fetchone()
            return None if found is None else int(found[0])

        return self._database.run(read)

    def _check_format(self) -> None:
        """Refuse a newer format, upgrade an older one; then make the local snapshots those of the database."""
        found = self._format()
        if found is not None and found > FORMAT:
            raise LiveError(
                f"{self._name} has format {found}, but this version of everlearn reads {FORMAT}: install a newer one"
            )
        if found is None:
            words = "insert into everlearn_learners (name, format) values (%s, %s) on conflict do nothing"
            self._database.run(lambda cursor: cursor.execute(words, (self._name, FORMAT)))
        with self._changing():
            for position in super().positions():
                super().snapshot(position).unlink()
            for position in self.positions():
                replace_file(self.snapshot(position), self._content(position))
        if found is not None and found < FORMAT:
            self._copy_as(older_name(self._name, found))
            self._upgrade_snapshots(found)
            words = "update everlearn_learners set format = %s where name = %s"
            self._database.run(lambda cursor: cursor.execute(words, (FORMAT, self._name)))

    def _copy_as(self, name: str) -> None:
        """Copy the learner in the database under another name."""

        def copy(cursor: Any) -> None:
            for table, columns in TABLES_OF_A_LEARNER.items():
                words = (
                    f"insert into {table} (name, {columns}) select %s, {columns} from {table} where name = %s"
                )
                cursor.execute(words, (name, self._name))

        self._database.run(copy)

    def _content(self, position: int) -> bytes:
        query = "select content from everlearn_snapshots where name = %s and position = %s"
        return self._database.run(
            lambda cursor: bytes(cursor.execute(query, (self._name, position)).fetchone()[0])
        )

    def finish(self) -> None:
        """Nothing to do: the first snapshot in the database completes it."""

    def positions(self) -> list[int]:
        """The positions of the snapshots in the database, the newest first."""
        query = "select position from everlearn_snapshots where name = %s order by position desc"
        rows = self._database.run(lambda cursor: cursor.execute(query, (self._name,)).fetchall())
        return [position for (position,) in rows]

    def write(self, state: State) -> None:
        """Write a snapshot, here and to the database."""
        super().write(state)
        position = position_in(state)
        content = self.snapshot(position).read_bytes()
        query = (
            "insert into everlearn_snapshots (name, position, time, content) values (%s, %s, %s, %s) "
            "on conflict (name, position) do update set content = excluded.content, time = excluded.time"
        )
        values = (self._name, position, time.time(), content)
        self._database.run(lambda cursor: cursor.execute(query, values), lambda _: False)

    def keep_newest(self) -> int:
        """Remove all snapshots but the newest two; returns the position of the older one."""
        older = super().keep_newest()
        self._remove("position < %s", older)
        return older

    def remove_after(self, position: int) -> None:
        """Remove the snapshots with larger positions."""
        super().remove_after(position)
        self._remove("position > %s", position)

    def erase_before(self, position: int) -> None:
        """Remove the snapshots with smaller positions; the local copies are overwritten first."""
        super().erase_before(position)
        self._remove("position < %s", position)

    def _remove(self, where: str, position: int) -> None:
        query = f"delete from everlearn_snapshots where name = %s and {where}"
        self._database.run(lambda cursor: cursor.execute(query, (self._name, position)))

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Raise a LiveError: databases have backups of their own."""
        raise LiveError(f"{self._name} is in PostgreSQL: back up the database, with pg_dump for example")
