"""The model of a table as a reader sees it; the terminal, HTML, Markdown, LaTeX and CSV are written from it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal

from everlearn.experiments.significance import Summary
from everlearn.paper.formatting import number, signed

__all__ = ["Column", "Entry", "Row", "TableView", "name", "number_entry", "summary_entry"]

Style = Literal["best", "significant", "failed", "small", "code", "name", "wide", "parts"]


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of a table: a mean with its standard deviation, or a text.

    digits, signed: how the mean is printed. note: printed after it. below: lines below it, in HTML only.
    link: an anchor of the page. title: a tooltip. method: the method whose colour stands before it.
    mark: an arrow where the mean lies above or below the paper's; "none" leaves room for one.
    sort: what a table is sorted by, if not the mean. span: how many columns it takes.
    """

    text: str = ""
    mean: float | None = None
    std: float | None = None
    digits: int = 2
    signed: bool = False
    note: str = ""
    below: tuple[str, ...] = ()
    link: str = ""
    title: str = ""
    method: str = ""
    mark: Literal["above", "below", "none"] | None = None
    style: tuple[Style, ...] = ()
    sort: float | str | None = None
    span: int = 1

    @property
    def shown(self) -> str:
        """The text, or the mean as it is printed."""
        if self.text or self.mean is None:
            return self.text
        return signed(self.mean, self.digits) if self.signed else number(self.mean, self.digits)

    @property
    def deviation(self) -> str:
        """The standard deviation as it is printed, with ±; empty where there is none."""
        return "" if self.std is None else f"± {number(self.std, self.digits)}"

    @property
    def plain(self) -> str:
        """All of it on one line."""
        return " ".join(filter(None, (self.shown, self.deviation, self.note)))

    @property
    def sorted_by(self) -> float | str:
        """What a table is sorted by; empty where there is no value."""
        return next((value for value in (self.sort, self.mean) if value is not None), "")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column. group: the heading that it shares with its neighbours. starts: whether a line stands before it."""

    name: str
    group: str = ""
    starts: bool = False
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A row: its heading and an entry for each column, or fewer where one spans several."""

    head: Entry
    entries: tuple[Entry, ...]


@dataclasses.dataclass(frozen=True)
class TableView:
    """A table. corner: the heading of the rows' names. foot: a row that stays last, however the others are sorted."""

    corner: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    foot: Row | None = None

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The headings above the columns and how many columns each spans; empty if no column has one."""
        if not any(column.group for column in self.columns):
            return []
        places = enumerate(self.columns)
        runs = itertools.groupby(places, key=lambda item: item[1].group or f"\0{item[0]}")
        found = [(title, len(list(columns))) for title, columns in runs]
        return [("" if title.startswith("\0") else title, span) for title, span in found]

    @property
    def placed(self) -> list[list[tuple[Entry, Column]]]:
        """The entries of each row, each with the column where it begins."""
        return [_placed(row.entries, self.columns) for row in self.rows]

    @property
    def placed_foot(self) -> list[tuple[Entry, Column]]:
        """The entries of the foot, each with the column where it begins."""
        return [] if self.foot is None else _placed(self.foot.entries, self.columns)


def _placed(entries: Sequence[Entry], columns: Sequence[Column]) -> list[tuple[Entry, Column]]:
    starts = itertools.accumulate((entry.span for entry in entries[:-1]), initial=0)
    return [(entry, columns[start]) for entry, start in zip(entries, starts, strict=True)]


def name(text: str, link: str = "", method: str = "", sort: str | None = None) -> Entry:
    """An entry with the name of a method, a stream or a setting, printed as the paper writes it."""
    return Entry(text, link=link, method=method, style=("name",), sort=text if sort is None else sort)


def number_entry(value: float | None, digits: int = 2, signed: bool = False, link: str = "") -> Entry:
    """An entry with a number, or a dash where there is none."""
    return Entry("–") if value is None else Entry(mean=value, digits=digits, signed=signed, link=link)


def summary_entry(summary: Summary, expected: int, link: str = "", best: bool = False) -> Entry:
    """Mean ± standard deviation; n where it is not the expected number of seeds."""
    note = "" if summary.n == expected else f"n = {summary.n}"
    return Entry(mean=summary.mean, std=summary.std, note=note, link=link, style=("best",) if best else ())
