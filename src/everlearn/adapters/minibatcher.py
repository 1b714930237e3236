"""Collect single records into mini-batches for a learner; features may appear and disappear."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn.adapters.common import check_batch_size, deserialize, serialize
from everlearn.adapters.feature_columns import FeatureColumns, check_matrix, checked_values
from everlearn.adapters.grow_inputs import grow_inputs
from everlearn.core.columns import kind_of_records
from everlearn.core.learner import Learner
from everlearn.core.row_selection import labels_of
from everlearn.core.setup import add_classes
from everlearn.core.validation import check_batch
from everlearn.messages import counted

__all__ = ["MiniBatcher"]

Rows = NDArray[np.float32]


class MiniBatcher:
    """Passes records to a learner in batches of `batch_size`; until a batch is full, its records wait.

    A record is a mapping of features to numbers. A missing feature counts as 0. A new feature gets a column; when all
    columns are in use, the learner's input doubles. A new label is added to the learner's classes at once, before its
    batch is full. Invalid input raises an error before anything changes.
    """

    def __init__(self, learner: Learner, batch_size: int) -> None:
        check_batch_size(batch_size)
        if "t" in learner.needs or learner.horizon.extent != "batch":
            raise ValueError(
                f"the learner {learner.name!r} needs to know where a task ends, which single records do not tell; "
                "use another one, such as cope, mir or reservoir"
            )
        self.learner = learner
        self.batch_size = batch_size
        self.columns = FeatureColumns()
        self._rows: Rows = np.zeros((batch_size, 0), np.float32)
        self._labels: list[Any] = []  # of the waiting rows

    def __len__(self) -> int:
        """How many records are waiting."""
        return len(self._labels)

    # Learning

    def learn_one(self, record: Mapping[Hashable, Any], label: Any) -> None:
        """Learn from a record as soon as its batch is full."""
        values = checked_values(record)
        (label,) = labels_of(self.learner, [label], "learn_one")
        self._learn(tuple(record), values, label)

    def learn_many(
        self, names: Sequence[Hashable], values: NDArray[np.float64], labels: Sequence[Any]
    ) -> None:
        """Learn from many records, one after another; NaN stands for a missing feature."""
        if len(values) != len(labels):
            raise ValueError(
                f"there are {counted(len(values), 'record')} but {counted(len(labels), 'label')}"
            )
        check_matrix(names, values)
        labels = labels_of(self.learner, labels, "learn_many")
        if labels:
            used = np.flatnonzero((~np.isnan(values)).any(axis=0)).tolist()
            self._check([names[column] for column in used], labels)
        for row, label in zip(values.tolist(), labels, strict=True):
            record = {name: value for name, value in zip(names, row, strict=True) if value == value}
            self._learn(tuple(record), checked_values(record), label)

    def learn_waiting(self) -> None:
        """Learn from the waiting records now, although their batch is not full."""
        if self._labels:
            # A copy, because a memory on the CPU may keep a reference to the rows.
            self.learner.observe(self._rows[: len(self._labels)].copy(), self._labels)
            self._labels = []

    def _learn(self, names: tuple[Hashable, ...], values: NDArray[np.float32], label: Any) -> None:
        """Learn from a record that has passed all checks of its own."""
        columns, is_known = self.columns.indices(names)
        if is_known is not None or label not in self.learner.labels or not len(self.columns):
            self._add(names, [label])
            columns, _ = self.columns.indices(names)
        self._append(columns, values, label)

    def _append(self, columns: NDArray[np.intp], values: NDArray[np.float32], label: Any) -> None:
        row = self._rows[len(self._labels)]
        row.fill(0)
        row[columns] = values
        self._labels.append(label)
        if len(self._labels) == self.batch_size:
            try:
                self.learn_waiting()
            except ValueError as error:
                self._labels = []  # they would stop all later records
                raise ValueError(f"{error} ({self.batch_size} records are left out)") from None
            except BaseException:
                self._labels.pop()
                raise

    def _check(self, names: Sequence[Hashable], labels: list[Any]) -> int:
        """Check features and labels, and return the number of inputs that they need."""
        needed = len(self.columns) + len(self.columns.new(names))
        width = self._width or _module_width(self.learner.given) or needed
        if needed == 0:
            raise ValueError("the first record has no features; at least one is needed")
        if needed > width:
            if isinstance(self.learner.given, nn.Module):
                raise ValueError(
                    f"the network has {width} inputs, and the feature {self.columns.new(names)[-1]!r} is one more; "
                    'make it wider, or use network="mlp", whose input grows'
                )
            width = max(needed, 2 * width)
        check_batch(self.learner, np.zeros((len(labels), self._width or width), np.float32), labels)
        return width

    def _add(self, names: Sequence[Hashable], labels: list[Any]) -> None:
        """Check new features and labels, then add them."""
        width = self._check(names, labels)
        if self._width not in (0, width):
            grow_inputs(self.learner, width)
        # Each label twice, because batch norm can't run on a single sample.
        zeros = np.zeros((2 * len(labels), width), np.float32)
        add_classes(self.learner, zeros, labels * 2, kind_of_records(self.learner))
        self.columns.add(names)
        if self._rows.shape[1] < width:
            rows = np.zeros((self.batch_size, width), np.float32)
            rows[:, : self._rows.shape[1]] = self._rows
            self._rows = rows

    @property
    def _width(self) -> int:
        """How many inputs the learner has; 0 before the first record."""
        return int(self._rows.shape[1])

    # Prediction

    def row(self, record: Mapping[Hashable, Any]) -> Rows:
        """A record as an input of the learner, `[1, width]`; features that were never learnt are ignored."""
        values = checked_values(record)
        columns, is_known = self.columns.indices(tuple(record))
        row: Rows = np.zeros((1, self._width), np.float32)
        row[0, columns] = values if is_known is None else values[is_known]
        return row

    def rows(self, names: Sequence[Hashable], values: NDArray[np.float64]) -> Rows:
        """Many records as inputs of the learner; NaN stands for a missing feature."""
        check_matrix(names, values)
        columns, is_known = self.columns.indices(tuple(names))
        rows: Rows = np.zeros((len(values), self._width), np.float32)
        rows[:, columns] = np.nan_to_num(values if is_known is None else values[:, is_known])
        return rows

    # Pickling

    def __getstate__(self) -> dict[str, Any]:
        waiting = len(self._labels)
        return {
            "learner": serialize(self.learner),
            # The machine that loads it may have another GPU, or none.
            "device": "auto" if self.learner.device.type in ("cuda", "mps") else str(self.learner.device),
            "batch_size": self.batch_size,
            "features": self.columns.names,
            "rows": self._rows[:waiting].copy(),
            "labels": self._labels,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.learner = deserialize(state["learner"], state["device"])
        self.batch_size = state["batch_size"]
        self.columns = FeatureColumns()
        for name in state["features"]:
            self.columns.add([name])
        waiting, width = state["rows"].shape
        self._rows = np.zeros((self.batch_size, width), np.float32)
        self._rows[:waiting] = state["rows"]
        self._labels = list(state["labels"])


def _module_width(network: str | nn.Module) -> int | None:
    """How many inputs a module has, by its first linear layer; None if unknown."""
    if isinstance(network, str):
        return None
    return next((part.in_features for part in network.modules() if isinstance(part, nn.Linear)), None)
