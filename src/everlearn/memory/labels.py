"""Labels to slots: a learner numbers the classes 0, 1, 2, … in the order in which it first sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import torch

from everlearn.label_json import Label, decode_label, encode_label

__all__ = [
    "Label",
    "LabelTable",
    "as_labels",
    "decode_label",
    "encode_label",
    "is_missing",
    "shape_of",
    "shortened",
]

_PLAIN = (str, bool, bytes, type(None))
MOST_BITS = 1024  # the largest integer label; a larger one can't be written as JSON
DEEPEST = 16


class LabelTable:
    """The labels seen so far, each with its slot.

    Labels are compared like the keys of a dict: 1, 1.0 and True are the same label.

    >>> table = LabelTable()
    >>> table.add("cat"), table.add("dog"), table.slot("dog"), "bird" in table
    (0, 1, 1, False)
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self._slots: dict[Label, int] = {}
        self.extend(labels)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, label: Label) -> bool:
        return label in self._slots

    @property
    def labels(self) -> list[Label]:
        """All labels, by slot."""
        return list(self._slots)

    def add(self, label: Label) -> int:
        """The slot of a label, a new one if it was never seen."""
        return self._slots.setdefault(label, len(self._slots))

    def extend(self, labels: Iterable[Label]) -> None:
        """Give slots to new labels. The internal dict is replaced, so that references to the old one stay valid."""
        slots = dict(self._slots)
        for label in labels:
            slots.setdefault(label, len(slots))
        self._slots = slots

    def remove(self, label: Label) -> None:
        """Remove a label; the slots after its own move down by one.

        >>> table = LabelTable("abc")
        >>> table.remove("a")
        >>> table.slot("c"), table.add("a")
        (1, 2)
        """
        left = [other for other in self._slots if other != label]
        self._slots = {other: slot for slot, other in enumerate(left)}

    def slot(self, label: Label) -> int:
        """The slot of a label that was seen."""
        return self._slots[label]

    def slots(self, labels: Iterable[Label]) -> list[int]:
        """The slots of labels that were all seen."""
        return [self._slots[label] for label in labels]

    def new(self, labels: Iterable[Label]) -> list[Label]:
        """The labels among these that were never seen, once each, in order."""
        return [label for label in dict.fromkeys(labels) if label not in self._slots]


def as_labels(y: Any) -> list[Label]:
    """The labels of a batch as a list; raises a ValueError that names the first invalid one."""
    if type(y) is not list and len(shape := shape_of(y)) > 1:
        raise ValueError(
            f"y is a sequence of labels, one for each sample, not of shape {list(shape)}{_column_of(y, shape)}"
        )
    if isinstance(y, (torch.Tensor, np.ndarray)):
        try:
            y = y.tolist()
        except (RuntimeError, NotImplementedError):
            raise ValueError(
                "y is a tensor whose values can't be read: give a dense one on a device"
            ) from None
    if isinstance(y, (str, bytes, Set, Mapping)) or not isinstance(y, Iterable):
        raise ValueError(f"y is a sequence of labels, one for each sample, not {shortened(y)}")
    least, most = -(2**63), 2**63
    return [
        label if (kind := type(label)) in _PLAIN or (kind is int and least <= label < most) else _label(label)
        for label in y
    ]


def shape_of(values: Any) -> tuple[int, ...]:
    """The shape of an array, a tensor, a series or a DataFrame; empty for anything else."""
    try:
        shape = getattr(values, "shape", ())
    except RuntimeError:  # a nested tensor
        return ()
    return shape if isinstance(shape, tuple) else ()


def _column_of(y: Any, shape: tuple[int, ...]) -> str:
    """How to get the labels out of an array with one column, or of a DataFrame."""
    if hasattr(y, "columns"):
        name = next(iter(y.columns), "label")
        return f": give a column of the {type(y).__name__} itself, y[{shortened(name)}]"
    return ": give y[:, 0]" if shape[1:] == (1,) else ""


def _label(label: Any, depth: int = 0) -> Label:
    if isinstance(label, np.generic):
        label = label.item()
    if type(label) in _PLAIN:
        return label  # type: ignore[no-any-return]
    if type(label) is int:
        if label.bit_length() > MOST_BITS:
            raise ValueError(
                f"a label that is an integer has at most {MOST_BITS} bits, not {label.bit_length()}"
            )
        return label
    if type(label) is float:
        if math.isnan(label):
            raise ValueError("NaN is not a valid label: it does not equal itself")
        return label
    if type(label) is tuple:
        if depth == DEEPEST:
            raise ValueError(f"a label is a tuple of tuples at most {DEEPEST} deep")
        return tuple(_label(part, depth + 1) for part in label)
    raise ValueError(
        "a label is a str, int, float, bool, bytes, None or a tuple of these, "
        f"not {shortened(label)} of type {type(label).__name__}"
    )


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, and NA and NaT of pandas.

    >>> is_missing(None), is_missing(float("nan")), is_missing("nan"), is_missing(0)
    (True, True, False, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))


def shortened(value: Any) -> str:
    """The repr of a value, in at most 60 characters."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, a tuple too deep, an object of a user's own
        text = f"a value of type {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
