"""Records as rows: which column a feature has."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Columns", "check_matrix", "check_values"]

LARGEST = float(np.finfo(np.float32).max)
PATTERNS = 1000  # so many sets of features are remembered at a time

Places = tuple[NDArray[np.intp], list[bool] | None]


class Columns:
    """A column for each feature, in the order they came; features that came together are sorted.

    So the order of the features within a record makes no difference.

    >>> columns = Columns(["b", "a"])
    >>> columns.add(["d", "a", "c"])
    >>> columns.names
    ['a', 'b', 'c', 'd']
    """

    def __init__(self, names: Iterable[Hashable] = ()) -> None:
        self._column: dict[Hashable, int] = {}
        self._places: dict[tuple[Hashable, ...], Places] = {}
        self.add(names)

    def __len__(self) -> int:
        return len(self._column)

    @property
    def names(self) -> list[Hashable]:
        """The features, by column."""
        return list(self._column)

    def new(self, names: Iterable[Hashable]) -> list[Hashable]:
        """The features among these that have no column yet, in the order they would get one."""
        return sorted({*names} - self._column.keys(), key=lambda name: (type(name).__name__, str(name)))

    def add(self, names: Iterable[Hashable]) -> None:
        """Give the new ones among these features a column."""
        for name in self.new(names):
            self._column[name] = len(self._column)
        self._places.clear()

    def places(self, names: tuple[Hashable, ...]) -> Places:
        """The columns of those features that have one, and, if some have none, which do.

        Records tend to have the same features again and again, so the answer is remembered.
        """
        known = self._places.get(names)
        if known is None:
            has = [name in self._column for name in names]
            columns = [self._column[name] for name in names if name in self._column]
            known = np.array(columns, np.intp), None if all(has) else has
            if len(self._places) >= PATTERNS:
                self._places.clear()
            self._places[names] = known
        return known


def check_values(record: Mapping[Any, Any]) -> None:
    """Refuse a record with a value that is no finite float32."""
    if not isinstance(record, Mapping):
        raise ValueError(
            f"a record is a dict from the names of features to numbers, not {type(record).__name__}"
        )
    for name, value in record.items():
        try:
            if -LARGEST <= value <= LARGEST:
                continue
        except (TypeError, ValueError):
            pass
        raise _refused(name, value)


def check_matrix(names: Sequence[Hashable], values: NDArray[np.float64]) -> None:
    """Refuse records with a value that is no finite float32; NaN stands for a missing feature."""
    too_large = np.argwhere(np.abs(values) > LARGEST)
    if len(too_large):
        record, column = too_large[0]
        raise _refused(names[column], float(values[record, column]))


def _refused(name: Hashable, value: Any) -> ValueError:
    return ValueError(
        f"the feature {name!r} is {value!r}, but a feature is a finite number: encode it, scale it or leave it "
        "out before it comes here (a feature that is left out counts as 0)"
    )
