"""The columns of a learner's samples, where these come as DataFrames: by name, with categories encoded as one-hot.

The first frame determines the columns. Later ones may have them in any order; a list of dicts counts as a frame. A
column of categories gets a fixed number of inputs: the first categories have one each, in the order in which they are
first seen; when none is left, a further category shares the input that its checksum chooses. So the network keeps its
size, whatever comes.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from everlearn.arrays import LARGEST_VALUE
from everlearn.checkpoint import CheckpointError
from everlearn.core.input_kind import PLAIN
from everlearn.core.table import Table, as_table, is_frame
from everlearn.label_json import Label, decode_label, encode_label
from everlearn.memory.labels import as_labels, shortened

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["INPUTS", "Columns", "columns_in", "encode", "kind_of_records", "kind_of_rows", "rows_of"]

INPUTS = 32  # of a column of categories; more if the frame declares more
MOST_INPUTS = 2**20
LEARN = ("observe", "ask")  # the methods that add new categories; a prediction changes nothing

Slots = dict[Label, int]


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a learner's samples. It never changes: a new category makes a new one.

    names: of the columns, in the order of the inputs. inputs: how many inputs each has; 1 for a column of numbers.
    categories: the input of each category of a column; None for a column of numbers.

    >>> columns = Columns.of(Table(["size", "colour"], [np.array([1.0]), ["red"]]), "observe")
    >>> columns.width, columns.categories[1]
    (33, {'red': 0})
    >>> columns.encode(Table(["colour", "size"], [["blue"], np.array([5.0])]), "predict")[0, :3]
    tensor([5., 0., 0.])
    """

    names: tuple[Label, ...]
    inputs: tuple[int, ...]
    categories: tuple[Slots | None, ...]

    @classmethod
    def of(cls, table: Table, where: str) -> Columns:
        """The columns of the first frame."""
        is_list = [isinstance(part, list) for part in table.columns]
        inputs = cls._inputs(table)
        if sum(inputs) > MOST_INPUTS:
            raise ValueError(f"{where} got columns that need {sum(inputs):,} inputs, at most {MOST_INPUTS:,}")
        new = cls(tuple(table.names), inputs, tuple({} if listed else None for listed in is_list))
        return new.with_categories_of(table, where)

    @staticmethod
    def _inputs(table: Table) -> tuple[int, ...]:
        pairs = zip(table.columns, table.declared, strict=True)
        return tuple(max(INPUTS, declared) if isinstance(part, list) else 1 for part, declared in pairs)

    @classmethod
    def width_of(cls, table: Table) -> int:
        """The number of inputs that the columns of a first frame would have."""
        return sum(cls._inputs(table))

    @property
    def width(self) -> int:
        """The number of inputs in all."""
        return sum(self.inputs)

    def arranged(self, table: Table, where: str) -> list[Any]:
        """The values of a table's columns in the order of these; raises a ValueError if it has others."""
        if tuple(table.names) == self.names:
            return table.columns
        found = dict(zip(table.names, table.columns, strict=True))
        missing = [name for name in self.names if name not in found]
        extra = [name for name in table.names if name not in self.names]
        if missing or extra:
            parts = [f"lacks {_listed(missing)}"] * bool(missing) + [f"has {_listed(extra)} besides"] * bool(
                extra
            )
            raise ValueError(
                f"{where} got a frame that {' and '.join(parts)}: give the columns of the first one, in any order"
            )
        return [found[name] for name in self.names]

    def with_categories_of(self, table: Table, where: str) -> Columns:
        """The same columns, with the categories of a table that are new, as long as a column has room."""
        grown = list(self.categories)
        for place, values in enumerate(self.arranged(table, where)):
            slots, most = self.categories[place], self.inputs[place]
            if slots is None or len(slots) == most:
                continue
            new = [value for value in dict.fromkeys(_as_list(values)) if value not in slots]
            for value in new[: most - len(slots)]:
                grown[place] = {**(grown[place] or {}), value: len(grown[place] or {})}
        return (
            self
            if all(map(_is, grown, self.categories))
            else dataclasses.replace(self, categories=tuple(grown))
        )

    def check(self, table: Table, where: str) -> None:
        """Raise a ValueError for numbers in a column that holds categories only because it had no value so far."""
        for name, values, slots in zip(self.names, self.arranged(table, where), self.categories, strict=True):
            empty_so_far = slots is not None and not slots.keys() - {None}
            if empty_so_far and isinstance(values, np.ndarray) and not np.isnan(values).all():
                raise ValueError(
                    f"{where} got numbers in the column {shortened(name)}, which holds categories, since it had no "
                    "value so far: begin again with a frame that has one, or give text"
                )

    def encode(self, table: Table, where: str) -> Tensor:
        """A table as samples, `[rows, width]`. A category that is new where there is room is all zeros."""
        self.check(table, where)
        rows = np.zeros((len(table), self.width), np.float32)
        start = 0
        for name, values, inputs, slots in zip(
            self.names, self.arranged(table, where), self.inputs, self.categories, strict=True
        ):
            if slots is None:
                rows[:, start] = _as_numbers(values, name, where)
            else:
                places = [(row, _slot(value, slots, inputs)) for row, value in enumerate(_as_list(values))]
                known = np.array([(row, slot) for row, slot in places if slot is not None], np.intp).reshape(
                    -1, 2
                )
                rows[known[:, 0], start + known[:, 1]] = 1
            start += inputs
        return torch.from_numpy(rows)

    # Merging.

    def with_categories_in(self, other: Columns) -> Columns:
        """The same columns, with the categories of another learner's."""
        return self.with_categories_of(
            Table(
                other.names,
                [list(slots or ()) if slots is not None else np.zeros(0) for slots in other.categories],
            ),
            "merge",
        )

    def places_of(self, other: Columns) -> Tensor:
        """Which input here each input of another learner's columns is, `[width]`."""
        starts = dict(zip(self.names, np.cumsum([0, *self.inputs[:-1]]).tolist(), strict=True))
        places: list[int] = []
        for name, inputs, theirs in zip(other.names, other.inputs, other.categories, strict=True):
            place = self.names.index(name)
            own, most = self.categories[place], self.inputs[place]
            slots = list(range(inputs))
            if theirs is not None and own is not None:
                for category, slot in theirs.items():
                    here = _slot(category, own, most)
                    slots[slot] = slot if here is None else here
            places += [starts[name] + slot for slot in slots]
        return torch.tensor(places)

    def layout(self) -> dict[Label, tuple[int, bool]]:
        """The number of inputs of each column, and whether it holds categories: equal in learners that merge."""
        held = zip(self.inputs, (slots is not None for slots in self.categories), strict=True)
        return dict(zip(self.names, held, strict=True))

    # State.

    def as_json(self) -> list[Any]:
        """For the state's metadata: name, inputs and categories of each column."""
        return [
            [encode_label(name), inputs, None if slots is None else [encode_label(each) for each in slots]]
            for name, inputs, slots in zip(self.names, self.inputs, self.categories, strict=True)
        ]

    @classmethod
    def from_json(cls, given: Any) -> Columns:
        """The columns that `as_json` returned; raises a CheckpointError if they are not valid."""
        try:
            names, inputs, listed = zip(*given, strict=True)
            decoded = [
                None if part is None else as_labels([decode_label(code) for code in part]) for part in listed
            ]
            slots = tuple(
                None if part is None else {each: slot for slot, each in enumerate(part)} for part in decoded
            )
            columns = cls(tuple(as_labels([decode_label(code) for code in names])), inputs, slots)
            sizes = [len(part) if part is not None else 1 for part in decoded]
            valid = (
                len({*columns.names}) == len(names)
                and all(type(count) is int and 0 < count <= MOST_INPUTS for count in inputs)
                and all(size <= count for size, count in zip(sizes, inputs, strict=True))
                and all(count == 1 for count, part in zip(inputs, decoded, strict=True) if part is None)
                and all(
                    part is None or len(part) == len(own)
                    for part, own in zip(slots, map(_or_empty, decoded), strict=True)
                )
            )
        except (TypeError, ValueError, KeyError, AttributeError):
            valid = False
        if not valid:
            raise CheckpointError("this state's columns are not valid")
        return columns


def rows_of(learner: Learner, x: Any, method: str) -> Any:
    """A frame, dicts or a table as samples; anything else as it is. Methods that learn add new categories."""
    if not isinstance(x, Table):
        if not is_frame(x):
            return x
        x = as_table(x, f"{type(learner).__name__}.{method}")
        if learner.columns is not None:  # not for a table, which may be from the journal of an older version
            learner.columns.check(x, f"{type(learner).__name__}.{method}")
    where = f"{type(learner).__name__}.{method}"
    if learner.columns is None and learner.sample_shape is not None:
        raise ValueError(
            f"{where} got columns, but the first batch had no names of columns: give their numbers alone, as an array"
        )
    if not len(x):
        raise ValueError(f"{where} got an empty batch")
    columns = learner.columns
    columns = Columns.of(x, where) if columns is None else columns
    if method in LEARN:
        columns = columns.with_categories_of(x, where)
    rows = columns.encode(x, where)
    if method in LEARN:
        learner.columns = columns
    return rows


def encode(learner: Learner, x: Any) -> Tensor:
    """A DataFrame as the learner encodes it, `[rows, inputs]`: what its memory and an exported file take."""
    if learner.columns is None:
        raise ValueError(f"{type(learner).__name__}.encode needs columns: observe a DataFrame first")
    rows: Tensor = rows_of(learner, x, "encode")
    return rows


def kind_of_rows(learner: Learner) -> str | None:
    """The kind of samples that come as frames, which are never images; None without columns."""
    return None if learner.columns is None else kind_of_records(learner)


def kind_of_records(learner: Learner) -> str:
    """The kind of samples whose features have names."""
    if not isinstance(learner.given, str):
        return PLAIN
    return "embeddings" if learner.given == "identity" else "rows"


def columns_in(meta: dict[str, Any]) -> Columns | None:
    """The columns in the metadata of a state; raises a CheckpointError if they do not fit the samples."""
    if "columns" not in meta:
        return None
    columns = Columns.from_json(meta["columns"])
    if meta["sample_shape"] not in (None, [columns.width]):
        raise CheckpointError(f"this state's columns have {columns.width} inputs, unlike its sample_shape")
    return columns


def _slot(category: Label, slots: Slots, inputs: int) -> int | None:
    """The input of a category; None if it is new and there is room for it."""
    slot = slots.get(category)
    if slot is None and len(slots) == inputs:
        if isinstance(category, bool) or (isinstance(category, float) and category.is_integer()):
            category = int(category)
        content = json.dumps(encode_label(category))
        return zlib.crc32(content.encode(errors="surrogatepass")) % inputs
    return slot


def _as_list(values: Any) -> list[Label]:
    if isinstance(values, list):
        return values
    return [None if value != value else value for value in values.tolist()]


def _as_numbers(values: Any, name: Label, where: str) -> Any:
    if isinstance(values, list):
        word = next((value for value in values if value is not None), None)
        if word is not None:
            raise ValueError(
                f"{where} got {shortened(word)} in the column {shortened(name)}, which held numbers in the first "
                "frame"
            )
        values = np.full(len(values), np.nan)
    if len(values) and not -LARGEST_VALUE <= values.min() <= values.max() <= LARGEST_VALUE:  # or NaN
        raise _not_a_number(values, name, where)
    return values.astype(np.float32)


def _not_a_number(values: Any, name: Label, where: str) -> ValueError:
    """The error for the first value of a column that is missing, infinite or too large."""
    row = int(np.flatnonzero(~(np.abs(values) <= LARGEST_VALUE))[0])
    what = "no value" if np.isnan(values[row]) else f"{values[row]}"
    finite = np.isfinite(values[row])
    advice = f"scale it to at most {LARGEST_VALUE:.0e}" if finite else "fill it in, or leave the row out"
    return ValueError(f"{where} got {what} in the column {shortened(name)}, row {row}: {advice}")


def _listed(names: Sequence[Label]) -> str:
    shown = ", ".join(shortened(name) for name in names[:5])
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"the column{'s' if len(names) > 1 else ''} {shown}{more}"


def _is(one: object, other: object) -> bool:
    return one is other


def _or_empty(part: list[Label] | None) -> list[Label]:
    return part or []
