"""Labels that come late: what was asked waits, within bounds, until its label is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from everlearn.checkpoint import State
from everlearn.labelcode import UNKNOWN
from everlearn.memory.labels import Label, as_labels, decode_label, encode_label

if TYPE_CHECKING:
    from everlearn.learners.base import Learner

__all__ = ["Asked", "Told", "ask", "tell"]


class Told(NamedTuple):
    """What became of the labels that were told.

    learnt: the ids whose samples were learnt, as one batch.
    missing: the ids of which no sample waits: never asked, told already, or so long ago that later ones took
        their place.
    """

    learnt: list[Label]
    missing: list[Label]


class Asked:
    """The samples that wait for their labels, by id, the oldest first."""

    def __init__(self) -> None:
        self.samples: dict[Label, Tensor] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, ids: Sequence[Label], x: Tensor, size: int) -> None:
        """Keep these, and of all that wait only the last `size`."""
        for key, sample in zip(ids, x, strict=True):
            self.samples.pop(key, None)  # asked again: it now is the newest
            self.samples[key] = sample.clone()
        for key in list(self.samples)[: max(len(self) - size, 0)]:
            del self.samples[key]

    def nbytes(self) -> int:
        """Bytes of the samples that wait."""
        return sum(sample.nbytes for sample in self.samples.values())

    def state(self) -> State:
        """The samples, and their ids as bytes of JSON; nothing where nothing waits."""
        if not self.samples:
            return {}
        ids = json.dumps([encode_label(key) for key in self.samples]).encode()
        return {
            "asked.ids": torch.frombuffer(bytearray(ids), dtype=torch.uint8),
            "asked.samples": torch.stack(list(self.samples.values())),
        }

    def restore(self, state: State) -> None:
        """Take up a state that `state` gave."""
        if "asked.ids" in state:
            ids = [decode_label(code) for code in json.loads(bytes(state["asked.ids"].tolist()))]
            self.samples = dict(zip(ids, state["asked.samples"].clone(), strict=True))


def ask(learner: Learner, ids: Any, x: Any) -> list[Label]:
    """Predict samples, and keep them by their ids until their labels are told."""
    x = learner._samples(x, "ask")
    ids = _ids(learner, ids, "ask")
    if len(ids) != len(x):
        raise ValueError(f"{type(learner).__name__}.ask got {len(x)} samples but {len(ids)} ids")
    waiting = next(iter(learner.asked.samples.values()), None)
    if waiting is not None and (waiting.shape, waiting.dtype) != (x.shape[1:], x.dtype):
        raise ValueError(
            f"{type(learner).__name__}.ask got samples of shape {list(x.shape[1:])} and {x.dtype}, while those "
            f"that wait for their labels are {list(waiting.shape)} and {waiting.dtype}"
        )
    predicted: list[Label] = learner.predict(x) if learner.labels else [UNKNOWN] * len(x)
    learner.asked.add(ids, x, learner.settings.waiting)
    return predicted


def tell(learner: Learner, ids: Any, y: Any, t: Any) -> Told:
    """Learn from what was asked by these ids, as one batch."""
    ids, labels = _ids(learner, ids, "tell"), as_labels(y)
    if len(ids) != len(labels):
        raise ValueError(f"{type(learner).__name__}.tell got {len(ids)} ids but {len(labels)} labels")
    waiting = learner.asked.samples
    learnt = [key for key in ids if key in waiting]
    if learnt:
        x = torch.stack([waiting[key] for key in learnt])
        learner.observe(x, [label for key, label in zip(ids, labels, strict=True) if key in waiting], t)
    for key in learnt:
        del waiting[key]
    return Told(learnt, [key for key in ids if key not in learnt])


def _ids(learner: Learner, ids: Any, method: str) -> list[Label]:
    try:
        checked = as_labels(ids)
    except ValueError:
        raise ValueError(
            f"{type(learner).__name__}.{method} takes a sequence of ids, each a str, int, float, bool, bytes, "
            f"None or a tuple of these"
        ) from None
    if len(set(checked)) < len(checked):
        twice = next(key for place, key in enumerate(checked) if key in checked[:place])
        raise ValueError(f"{type(learner).__name__}.{method} got the id {twice!r} twice")
    return checked
