"""Turn records (dicts of features) into rows: which column belongs to which feature."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from everlearn.arrays import LARGEST_VALUE

__all__ = ["FeatureColumns", "check_matrix", "checked_values"]

CACHED_FEATURE_SETS = 1000

Indices = tuple[NDArray[np.intp], list[bool] | None]


class FeatureColumns:
    """One column for each feature, in order of appearance; features that appear together are sorted.

    So the order of the features within a record makes no difference.

    >>> columns = FeatureColumns(["b", "a"])
    >>> columns.add(["d", "a", "c"])
    >>> columns.names
    ['a', 'b', 'c', 'd']
    """

    def __init__(self, names: Iterable[Hashable] = ()) -> None:
        self._column: dict[Hashable, int] = {}
        self._cache: dict[tuple[Hashable, ...], Indices] = {}
        self.add(names)

    def __len__(self) -> int:
        return len(self._column)

    @property
    def names(self) -> list[Hashable]:
        """The name of the feature in each column."""
        return list(self._column)

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """Those of these features that have no column yet, in the order of their future columns."""
        return sorted({*names} - self._column.keys(), key=lambda name: (type(name).__name__, str(name)))

    def add(self, names: Iterable[Hashable]) -> None:
        """Add a column for each of these features that has none."""
        for name in self.new(names):
            self._column[name] = len(self._column)
        self._cache.clear()

    def indices(self, names: tuple[Hashable, ...]) -> Indices:
        """The columns of the known features, and a mask of the known ones (None if all are).

        The result is cached, because most records have the same features as earlier ones.
        """
        found = self._cache.get(names)
        if found is None:
            is_known = [name in self._column for name in names]
            columns = [self._column[name] for name in names if name in self._column]
            found = np.array(columns, np.intp), None if all(is_known) else is_known
            if len(self._cache) >= CACHED_FEATURE_SETS:
                self._cache.clear()
            self._cache[names] = found
        return found


def checked_values(record: Mapping[Any, Any]) -> NDArray[np.float32]:
    """The values of a record, `[features]`; raises a ValueError if one is not a number that a learner takes."""
    if not isinstance(record, Mapping):
        raise ValueError(f"a record must be a dict of feature names and numbers, not {type(record).__name__}")
    for name, value in record.items():
        try:
            if -LARGEST_VALUE <= value <= LARGEST_VALUE:
                continue
        except (TypeError, ValueError):
            pass
        raise _invalid_value(name, value)
    try:
        values = np.array(list(record.values()), np.float32)
    except (TypeError, ValueError):
        values = np.zeros((0, 0), np.float32)
    if values.ndim != 1:  # one of them is an array
        raise _invalid_value(*next((name, value) for name, value in record.items() if np.ndim(value)))
    return values


def check_matrix(names: Sequence[Hashable], values: NDArray[np.float64]) -> None:
    """Raise a ValueError if a value is not a number that a learner takes; NaN stands for a missing feature."""
    too_large = np.argwhere(np.abs(values) > LARGEST_VALUE)
    if len(too_large):
        record, column = too_large[0]
        raise _invalid_value(names[column], float(values[record, column]))


def _invalid_value(name: Hashable, value: Any) -> ValueError:
    return ValueError(
        f"the feature {name!r} is {value!r}, but a feature must be a finite number of at most {LARGEST_VALUE:.0e}; "
        "encode it, scale it or leave it out (a missing feature counts as 0)"
    )
