"""What a journal can do. `SQLiteJournal` is one; a journal on a database server has the same functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from types import NoneType
from typing import Any, Protocol

from everlearn.live.entries import Change, Entry, checksum_of

__all__ = ["MOST_REFUSED", "EntryError", "Journal", "LiveError", "Refused", "checked", "refused_in"]

MOST_REFUSED = 100  # refused entries that a journal keeps
# The types of position, time, kind, detail, samples and checksum.
TYPES: tuple[type | tuple[type, ...], ...] = (int, float, str, str, (bytes, NoneType), int)


class LiveError(RuntimeError):
    """The journal or a snapshot can't be read or written; nothing that was acknowledged is lost."""


class EntryError(LiveError):
    """An entry of the journal can't be read or replayed. position: of the entry. cause: why."""

    def __init__(self, words: str, position: int, cause: Exception) -> None:
        super().__init__(f"{words}, or leave this entry out with open_live(folder, skip=[{position}])")
        self.position, self.cause = position, cause


@dataclasses.dataclass(frozen=True)
class Refused:
    """A change that the learner refused: it was set aside and is not replayed.

    entry: the change, with its position, time, labels, ids and samples. reason: the error.
    """

    entry: Entry
    reason: str


def checked(
    read: Callable[[int], Sequence[Sequence[Any]]], after: int, name: str, remedy: str
) -> Iterator[Entry]:
    """The entries with larger positions, in order; a damaged one raises a LiveError.

    read: the next rows after a position. name, remedy: of the journal, and what to do if it is damaged.
    """
    while rows := read(after):
        for row in rows:
            if _is_damaged(row):
                reason = f"entry {row[0]} has another checksum than its content"
                raise EntryError(f"{name} is damaged: {reason}; {remedy}", row[0], LiveError(reason))
            yield Entry.of(row)
        after = rows[-1][0]


def refused_in(row: Sequence[Any]) -> Refused:
    """The refused entry in a row; a damaged one has no content, since none of it can be trusted."""
    if _is_damaged(row):
        at = row[1] if isinstance(row[1], float) else 0.0
        return Refused(Entry(row[0], at, Change(str(row[2]), "{}", None)), str(row[6]))
    return Refused(Entry.of(row), row[6])


def _is_damaged(row: Sequence[Any]) -> bool:
    """Whether a value has another type or the row another checksum; before anything in it is decoded."""
    right = all(isinstance(value, kind) for value, kind in zip(row, TYPES, strict=False))
    return not right or checksum_of(*row[:5]) != row[5]


class Journal(Protocol):
    """All changes since the older snapshot, in order. Each function is one transaction, durable when it returns.

    It is used by one thread at a time. Errors of the storage are raised as a `LiveError`.

    added: the bytes of the entries that were added since it was opened.
    """

    added: int

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries, all or none."""

    def entries(self, after: int) -> Iterator[Entry]:
        """The entries with larger positions, in order; refused ones are left out."""

    def bounds(self) -> tuple[int, int]:
        """The position up to which entries were removed, and the position of the last entry."""

    def refuse(self, position: int, reason: str) -> None:
        """Set an entry aside: it is not replayed."""

    def refused(self) -> list[Refused]:
        """The entries that were set aside last, the oldest first."""

    def trim(self, until: int, most: int) -> bool:
        """Remove entries up to a position, at most so many of them; whether all are removed."""

    def cut(self, after: int) -> None:
        """Remove the entries with larger positions."""

    def deletions(self) -> list[Entry]:
        """The entries of the kind "delete": each is erased with all before it once a snapshot follows it."""

    def erase(self, until: int, refused: Sequence[int]) -> None:
        """Remove entries up to a position and these refused ones, and overwrite their bytes in all files."""

    def environments(self) -> list[tuple[int, dict[str, Any]]]:
        """The environments in which entries were written, each with the position after which it began."""

    def add_environment(self, after: int, environment: dict[str, Any]) -> None:
        """Later entries are written in this environment."""

    def nbytes(self) -> int:
        """The size of its files or tables."""

    def copy_to(self, path: str) -> None:
        """Write a consistent copy of the journal, as a file that `SQLiteJournal` opens."""

    def close(self) -> None:
        """Release the files or the connection."""
