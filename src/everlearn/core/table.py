"""Rows with named columns of numbers or categories, from a DataFrame of pandas or polars, or a list of dicts."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.memory.labels import Label, as_labels, is_missing, shortened

__all__ = ["Column", "Table", "as_table", "is_dataframe", "is_frame"]

Column = NDArray[np.float64] | list[Label]
"""Numbers, NaN where one is missing; or categories, None where one is missing."""


class Table:
    """Rows with named columns.

    names: of the columns. columns: the values of each. declared: how many categories the frame declares for it, or 0.

    >>> table = Table(["size", "colour"], [np.array([1.0, 2.0]), ["red", None]])
    >>> len(table), table[[1]].columns
    (2, [array([2.]), [None]])
    """

    def __init__(
        self, names: Sequence[Label], columns: Sequence[Column], declared: Sequence[int] | None = None
    ) -> None:
        self.names, self.columns = list(names), list(columns)
        self.declared = [0] * len(self.names) if declared is None else list(declared)

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def __getitem__(self, rows: Any) -> Table:
        """The rows with these numbers, or of this slice."""
        order = np.arange(len(self))[rows]
        parts = [
            part[order] if isinstance(part, np.ndarray) else [part[row] for row in order]
            for part in self.columns
        ]
        return Table(self.names, parts, self.declared)

    @property
    def has_categories(self) -> bool:
        """Whether a column holds categories."""
        return any(isinstance(part, list) for part in self.columns)


def is_frame(x: Any) -> bool:
    """Whether x has rows with named columns: a DataFrame, or a list of dicts.

    >>> is_frame([{"size": 1.0, "colour": "red"}]), is_frame([[1.0, 2.0]])
    (True, False)
    """
    return _is_records(x) or is_dataframe(x)


def _is_records(x: Any) -> bool:
    return isinstance(x, (list, tuple)) and len(x) > 0 and isinstance(x[0], Mapping)


def is_dataframe(x: Any) -> bool:
    """Whether x is a DataFrame of pandas or polars, which need not be installed; a LazyFrame counts, too."""
    kind = type(x)
    return kind.__name__ in ("DataFrame", "LazyFrame") and kind.__module__.split(".")[0] in (
        "pandas",
        "polars",
    )


def as_table(frame: Any, where: str) -> Table:
    """Rows with named columns as a table; raises a ValueError for other values than numbers, text and categories."""
    if _is_records(frame):
        return _table_of_records(frame, where)
    if type(frame).__name__ == "LazyFrame":
        raise ValueError(f"{where} takes x as a DataFrame, not a LazyFrame: give x.collect()")
    names = _names(list(frame.columns), where)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{where} got two columns named {shortened(next(iter(twice)))}: rename one of them")
    if not names:
        raise ValueError(f"{where} got a DataFrame without columns")
    read = _polars_column if type(frame).__module__.startswith("polars") else _pandas_column
    series = [frame[name] for name in frame.columns]
    parts = [read(each, name, where) for each, name in zip(series, names, strict=True)]
    return Table(names, [values for values, _ in parts], [declared for _, declared in parts])


def _table_of_records(records: Sequence[Any], where: str) -> Table:
    """A list of dicts as a table. All must have the same names, in any order; a missing value is None."""
    names = list(records[0])
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise ValueError(f"{where} got dicts, but row {row} is of type {type(record).__name__}")
        if record.keys() != records[0].keys():
            name = next(iter(record.keys() ^ records[0].keys()))
            raise ValueError(
                f"{where} got dicts of which only some have {shortened(name)}: give all the same names, and None for "
                "a missing value"
            )
    if not names:
        raise ValueError(f"{where} got dicts without values")
    columns = [_objects([record[name] for record in records], name, where) for name in names]
    return Table(_names(names, where), columns)


def _names(names: list[Any], where: str) -> list[Label]:
    try:
        return as_labels(names)
    except ValueError:
        raise ValueError(
            f"{where} takes columns named by text or numbers, not {shortened(names)}: name them by text"
        ) from None


def _pandas_column(series: Any, name: Label, where: str) -> tuple[Column, int]:
    kind = series.dtype
    if hasattr(kind, "categories"):
        return _categories(series.tolist(), name, where), len(kind.categories)
    if kind.kind in "biuf":
        return series.to_numpy(dtype=np.float64, na_value=np.nan), 0
    if kind.kind == "O":
        return _objects(series.tolist(), name, where), 0
    raise _not_taken(name, kind, where)


def _polars_column(series: Any, name: Label, where: str) -> tuple[Column, int]:
    kind = series.dtype
    if kind.is_numeric() or str(kind) == "Boolean":
        return np.array(series.to_list(), np.float64), 0
    if str(kind).partition("(")[0] in ("String", "Categorical", "Enum", "Null"):
        declared = len(kind.categories) if str(kind).startswith("Enum") else 0
        return _categories(series.to_list(), name, where), declared
    raise _not_taken(name, kind, where)


def _objects(values: list[Any], name: Label, where: str) -> Column:
    """Values of any type: numbers if all are, else categories."""
    held = [value for value in values if not is_missing(value)]
    if held and all(isinstance(value, (numbers.Real, np.bool_)) for value in held):
        return np.array([np.nan if is_missing(value) else _float(value) for value in values])
    return _categories(values, name, where)


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf  # which is refused, with its place


def _categories(values: list[Any], name: Label, where: str) -> list[Label]:
    try:
        return as_labels([None if is_missing(value) else value for value in values])
    except ValueError:
        raise ValueError(
            f"{where} takes categories that are text, numbers or bytes, but the column {shortened(name)} has others"
        ) from None


def _not_taken(name: Label, kind: Any, where: str) -> ValueError:
    return ValueError(
        f"{where} takes columns of numbers, text or categories, but {shortened(name)} is of {kind}: "
        "turn it into numbers or text, or leave it out"
    )
