"""Single records are gathered into batches, and features may come and go: a learner as River's users know them."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn.adapters.columns import Columns, check_matrix, check_values
from everlearn.adapters.common import check_batch_size, freeze, thaw
from everlearn.adapters.grow_inputs import widen
from everlearn.core.learner import Learner
from everlearn.memory.labels import as_labels

__all__ = ["Gathering"]

Rows = NDArray[np.float32]


class Gathering:
    """A learner that is told one record at a time, and learns when `batch_size` of them wait.

    A record is a mapping of features to numbers. A feature that is missing counts as 0; one that is new gets a
    column, and the learner's input twice the room when there is none left. A new label is among the learner's
    classes at once, before its batch is full. What is refused is refused before anything changes.
    """

    def __init__(self, learner: Learner, batch_size: int) -> None:
        check_batch_size(batch_size)
        if "t" in learner.needs or learner.horizon.extent != "batch":
            raise ValueError(
                f"the learner {learner.name!r} must be told where a task ends, but single records tell no tasks: "
                "take another one, cope, mir or reservoir say"
            )
        self.learner = learner
        self.batch_size = batch_size
        self.columns = Columns()
        self._rows: Rows = np.zeros((batch_size, 0), np.float32)
        self._labels: list[Any] = []  # of the rows that wait

    def __len__(self) -> int:
        """How many records wait."""
        return len(self._labels)

    # Learning.

    def tell(self, record: Mapping[Hashable, Any], label: Any) -> None:
        """The truth about a record."""
        check_values(record)
        names = tuple(record)
        places, has = self.columns.places(names)
        try:
            known = has is None and label in self.learner.labels and len(self.columns) > 0
        except TypeError:  # it can't be hashed, so it is no label: the learner has the words for it
            known = False
        if not known:
            self._admit(names, [label])
            places, _ = self.columns.places(names)
        self._put(places, list(record.values()), label)

    def tell_many(
        self, names: Sequence[Hashable], values: NDArray[np.float64], labels: Sequence[Any]
    ) -> None:
        """The truth about many records, one after another; NaN stands for a missing feature."""
        if len(values) != len(labels):
            raise ValueError(f"there are {len(values)} records but {len(labels)} labels")
        check_matrix(names, values)
        if len(labels):
            self._check(names, as_labels(labels))
        for row, label in zip(values.tolist(), labels, strict=True):
            self.tell({name: value for name, value in zip(names, row, strict=True) if value == value}, label)

    def learn_waiting(self) -> None:
        """Learn from what waits now, though the batch is not full."""
        if self._labels:
            # A copy, since a memory on the CPU may hold on to what it is given.
            self.learner.observe(self._rows[: len(self._labels)].copy(), self._labels)
            self._labels = []

    def _put(self, places: NDArray[np.intp], values: list[Any], label: Any) -> None:
        row = self._rows[len(self._labels)]
        row.fill(0)
        row[places] = values
        self._labels.append(label)
        if len(self._labels) == self.batch_size:
            try:
                self.learn_waiting()
            except BaseException:
                self._labels.pop()
                raise

    def _check(self, names: Sequence[Hashable], labels: list[Any]) -> int:
        """How wide the input must be for these features; or why they or the labels can't be taken."""
        needed = len(self.columns) + len(self.columns.new(names))
        width = self._width or _own_width(self.learner.given) or needed
        if needed == 0:
            raise ValueError("the first record has no features: at least one is needed to begin")
        if needed > width:
            if isinstance(self.learner.given, nn.Module):
                raise ValueError(
                    f"the network takes {width} features, and {self.columns.new(names)[-1]!r} is one more: "
                    'make it wider, or take network="mlp", whose input grows'
                )
            width = max(needed, 2 * width)
        self.learner.accept(np.zeros((len(labels), self._width or width), np.float32), labels)
        return width

    def _admit(self, names: Sequence[Hashable], labels: list[Any]) -> None:
        """Make room for new features and new labels, after all checks."""
        labels = as_labels(labels)
        width = self._check(names, labels)
        if self._width not in (0, width):
            widen(self.learner, width)
        # Twice, since batch-norm can't be tried on a single sample.
        self.learner.welcome(np.zeros((2 * len(labels), width), np.float32), labels * 2)
        self.columns.add(names)
        if self._rows.shape[1] < width:
            rows = np.zeros((self.batch_size, width), np.float32)
            rows[:, : self._rows.shape[1]] = self._rows
            self._rows = rows

    @property
    def _width(self) -> int:
        """How many features the learner takes, 0 before the first record."""
        return int(self._rows.shape[1])

    # Predicting.

    def row(self, record: Mapping[Hashable, Any]) -> Rows:
        """A record as the learner takes it, `[1, width]`; features that were never told of have no say."""
        check_values(record)
        places, has = self.columns.places(tuple(record))
        row: Rows = np.zeros((1, self._width), np.float32)
        row[0, places] = list(record.values() if has is None else itertools.compress(record.values(), has))
        return row

    def rows(self, names: Sequence[Hashable], values: NDArray[np.float64]) -> Rows:
        """Many records as the learner takes them; NaN stands for a missing feature."""
        check_matrix(names, values)
        places, has = self.columns.places(tuple(names))
        rows: Rows = np.zeros((len(values), self._width), np.float32)
        rows[:, places] = np.nan_to_num(values if has is None else values[:, has])
        return rows

    # Pickling.

    def __getstate__(self) -> dict[str, Any]:
        waiting = len(self._labels)
        return {
            "learner": freeze(self.learner),
            # The machine that takes it up may have another GPU, or none.
            "device": "auto" if self.learner.device.type == "cuda" else str(self.learner.device),
            "batch_size": self.batch_size,
            "features": self.columns.names,
            "rows": self._rows[:waiting].copy(),
            "labels": self._labels,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.learner = thaw(state["learner"], state["device"])
        self.batch_size = state["batch_size"]
        self.columns = Columns()
        for name in state["features"]:
            self.columns.add([name])
        waiting, width = state["rows"].shape
        self._rows = np.zeros((self.batch_size, width), np.float32)
        self._rows[:waiting] = state["rows"]
        self._labels = list(state["labels"])


def _own_width(network: str | nn.Module) -> int | None:
    """How many features a network of one's own takes: what its first linear layer does."""
    if isinstance(network, str):
        return None
    return next((part.in_features for part in network.modules() if isinstance(part, nn.Linear)), None)
