"""Rows with named columns over HTTP: a DataFrame of a client is the same table for the learner of the service.

In JSON, samples are objects, `{"x": [{"amount": 1, "country": "NO"}]}`; or lists of values with the names apart,
`{"columns": ["amount", "country"], "x": [[1, "NO"]]}`. An array of numbers has its names in the field columns, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.core.table import Column, Table, as_table, is_frame
from everlearn.label_json import Label
from everlearn.memory.labels import as_labels, is_missing, shortened
from everlearn.service.wire import WireError, decode_labels, encode_labels

__all__ = ["encode_table", "read_table", "table_given"]


def read_table(x: Any, columns: Any, categories: Any) -> Table:
    """The table in a body.

    x: rows as objects, as lists, or as an array. columns: the names, unless rows are objects. categories: for each
    column the number of its categories, 0 if that is not known, or null for numbers; by default, a column holds
    numbers if all its values are numbers.
    """
    if isinstance(x, np.ndarray) and x.ndim == 2 and categories is None:
        return _table_of_array(x, _names([], columns))
    rows: list[Any] = x.tolist() if isinstance(x, np.ndarray) else x
    if not isinstance(rows, list):
        raise WireError("x must be a list of samples")
    names = _names(rows, columns)
    rows = [_values(row, number, names) for number, row in enumerate(rows)]
    declared = _declared(categories, len(names))
    parts = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    held = [
        _column(list(part), name, count) for part, name, count in zip(parts, names, declared, strict=True)
    ]
    return Table(names, held, [count or 0 for count in declared])


def _table_of_array(x: NDArray[Any], names: list[Label]) -> Table:
    if x.shape[1] != len(names):
        raise WireError(
            f"x has the shape {list(x.shape)}, which does not fit the number of columns, {len(names)}"
        )
    return Table(names, list(x.T.astype(np.float64)))


def _names(rows: list[Any], columns: Any) -> list[Label]:
    """The names of the columns: given apart, or those of the first sample."""
    if columns is None:
        columns = list(rows[0])
    names = as_labels(decode_labels(columns, "columns"))
    seen: set[Label] = set()
    for name in names:
        if name in seen:
            raise WireError(f"there are two columns named {shortened(name)}: rename one of them")
        seen.add(name)
    if not names:
        raise WireError("a sample needs a column at least")
    return names


def _values(row: Any, number: int, names: Sequence[Label]) -> list[Any]:
    """The values of a sample, in the order of the names."""
    if isinstance(row, list) and len(row) == len(names):
        return row
    if not isinstance(row, dict):
        raise WireError(f"sample {number} of x must have one value for each column, {len(names)} in all")
    for name in names:
        if name not in row:
            raise WireError(f"sample {number} of x lacks the column {shortened(name)}")
    if len(row) > len(names):
        known = set(names)
        extra = next(name for name in row if name not in known)
        raise WireError(f"sample {number} of x has the column {shortened(extra)} besides")
    return [row[name] for name in names]


def _declared(categories: Any, columns: int) -> list[int | None]:
    if categories is None:
        return [None] * columns
    valid = isinstance(categories, list) and all(
        count is None or (type(count) is int and count >= 0) for count in categories
    )
    if not valid or len(categories) != columns:
        raise WireError("categories must be a list with a whole number or null for each column")
    return list(categories)


def _column(values: list[Any], name: Label, declared: int | None) -> Column:
    """A column of numbers, if all of them are and no categories are declared; else of categories."""
    cells: list[Any] = decode_labels(values, f"the column {shortened(name)}")
    try:
        held = [cell for cell in cells if cell is not None]
        if declared is None and held and all(isinstance(cell, (int, float)) for cell in held):
            return np.array([np.nan if cell is None else float(cell) for cell in cells])
        return as_labels([None if is_missing(cell) else cell for cell in cells])
    except (ValueError, OverflowError) as error:
        raise WireError(f"the column {shortened(name)} can't be read: {error}") from None


def table_given(x: Any, where: str) -> Table | None:
    """A DataFrame, a list of dicts or a table that a client is given, as a table; None if x is anything else."""
    if isinstance(x, Table):
        return x
    return as_table(x, where) if is_frame(x) else None


def encode_table(table: Table) -> tuple[NDArray[Any] | list[Any], dict[str, Any]]:
    """A table as `x` and further fields of a body: an array if all columns are numbers, else rows of values."""
    names = {"columns": encode_labels(table.names)}
    if not table.has_categories:
        return np.stack(table.columns, 1), names  # type: ignore[arg-type]
    parts = [encode_labels(part if isinstance(part, list) else map(_number, part)) for part in table.columns]
    counts = [
        count if isinstance(part, list) else None
        for part, count in zip(table.columns, table.declared, strict=True)
    ]
    return [list(row) for row in zip(*parts, strict=True)], {**names, "categories": counts}


def _number(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
