"""Labels to slots: the learner counts classes 0, 1, 2, … in the order it first sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import torch

from everlearn.labelcode import Label, decode_label, encode_label

__all__ = ["Label", "LabelTable", "as_labels", "decode_label", "encode_label"]

_PLAIN = (str, int, bool, bytes, type(None))


class LabelTable:
    """The labels seen so far, each with its slot.

    Labels are told apart as the keys of a dict are: 1, 1.0 and True are one label.

    >>> table = LabelTable()
    >>> table.add("cat"), table.add("dog"), table.slot("dog"), "bird" in table
    (0, 1, 1, False)
    """

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        self._slots: dict[Label, int] = {}
        for label in labels:
            self.add(label)

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

    def remove(self, label: Label) -> None:
        """Forget a label that was seen; the slots after its own move down by one.

        >>> table = LabelTable("abc")
        >>> table.remove("a")
        >>> table.slot("c"), table.add("a")
        (1, 2)
        """
        del self._slots[label]
        self._slots = {other: slot for slot, other in enumerate(self._slots)}

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
    """The labels of a batch as a list, or a ValueError that names the one that is none."""
    if isinstance(y, (torch.Tensor, np.ndarray)):
        y = y.tolist()
    if isinstance(y, (str, bytes, Set, Mapping)) or not isinstance(y, Iterable):
        raise ValueError(f"y is a sequence of labels, one for each sample, not {_shown(y)}")
    return [label if type(label) in _PLAIN else _label(label) for label in y]


def _label(label: Any) -> Label:
    if isinstance(label, np.generic):
        label = label.item()
    if type(label) in _PLAIN:
        return label  # type: ignore[no-any-return]
    if type(label) is float:
        if math.isnan(label):
            raise ValueError("NaN is no label: it does not equal itself")
        return label
    if type(label) is tuple:
        return tuple(_label(part) for part in label)
    raise ValueError(
        "a label is a str, int, float, bool, bytes, None or a tuple of these, "
        f"not {_shown(label)} of type {type(label).__name__}"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
