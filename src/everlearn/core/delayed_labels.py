"""Delayed labels: a bounded number of samples is stored until their labels arrive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from everlearn.checkpoint import State
from everlearn.core.prediction import predict
from everlearn.core.row_selection import labels_of
from everlearn.core.validation import check_samples
from everlearn.encoders import Features
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label, as_labels, decode_label, encode_label, shortened
from everlearn.transaction import atomic

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Told", "WaitingSamples", "as_ids", "ask", "tell"]


class Told(NamedTuple):
    """The result of `tell`.

    learnt: the ids whose samples were learnt, as one batch.
    missing: the ids without a stored sample: never passed to `ask`, already labelled, or dropped for later samples.
    """

    learnt: list[Label]
    missing: list[Label]


class WaitingSamples:
    """The samples without labels so far, by id, the oldest first. Every change makes a new dict."""

    def __init__(self) -> None:
        self.samples: dict[Label, Tensor] = {}

    def __len__(self) -> int:
        return len(self.samples)

    def add(self, ids: Sequence[Label], x: Tensor, size: int) -> None:
        """Add samples, and drop all but the last `size`."""
        waiting = self.samples.copy()
        for key, sample in zip(ids, x, strict=True):
            waiting.pop(key, None)  # passed again: it is the newest now
            waiting[key] = sample.clone()
        for key in list(waiting)[: max(len(waiting) - size, 0)]:
            del waiting[key]
        self.samples = waiting

    def remove(self, ids: Iterable[Label]) -> None:
        """Remove the samples with these ids."""
        gone = set(ids)
        self.samples = {key: sample for key, sample in self.samples.items() if key not in gone}

    def keep_only(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """Drop samples of another shape or type, which arrived before the first batch and can't be learnt."""
        self.samples = {
            key: sample
            for key, sample in self.samples.items()
            if (tuple(sample.shape), sample.dtype) == (shape, dtype)
        }

    def nbytes(self) -> int:
        """Bytes of the samples."""
        return sum(sample.nbytes for sample in self.samples.values())

    def state(self) -> State:
        """The samples, and their ids as bytes of JSON; empty without samples."""
        if not self.samples:
            return {}
        ids = json.dumps([encode_label(key) for key in self.samples]).encode()
        return {
            "asked.ids": torch.frombuffer(bytearray(ids), dtype=torch.uint8),
            "asked.samples": torch.stack(list(self.samples.values())),
        }

    def restore(self, state: State) -> None:
        """Load a state that `state` returned."""
        if "asked.ids" in state:
            codes = json.loads(bytes(state["asked.ids"].tolist()))
            ids = as_ids([decode_label(code) for code in codes], "this state")
            self.samples = dict(zip(ids, state["asked.samples"].clone(), strict=True))


@atomic
def ask(learner: Learner, ids: Any, x: Any) -> list[Label]:
    """Predict, and store the last `waiting` samples by id until `tell` gives their labels."""
    name = type(learner).__name__
    x = check_samples(learner, x, "ask")
    keys = as_ids(ids, f"{name}.ask")
    if len(keys) != len(x):
        raise ValueError(f"{name}.ask got {len(x)} samples but {len(keys)} ids")
    first = next(iter(learner.waiting.samples.values()), None)
    if first is not None and (first.shape, first.dtype) != (x.shape[1:], x.dtype):
        raise ValueError(
            f"{name}.ask got samples of shape {list(x.shape[1:])} and {x.dtype}, but those "
            f"without labels so far are {list(first.shape)} and {first.dtype}"
        )
    predicted: list[Label] = predict(learner, Features(x)) if learner.labels else [UNKNOWN] * len(x)
    learner.waiting.add(keys, x, learner.settings.waiting)
    return predicted


@atomic
def tell(learner: Learner, ids: Any, y: Any, t: Any = None) -> Told:
    """Learn, as one batch, from samples given to `ask` earlier, now that their labels are known.

    >>> from everlearn import CoPE
    >>> learner = CoPE("mlp", waiting=2)
    >>> learner.ask(["first", "second", "third"], torch.randn(3, 8))
    [UNKNOWN, UNKNOWN, UNKNOWN]
    >>> learner.tell(["third", "first"], ["cat", "dog"])
    Told(learnt=['third'], missing=['first'])
    """
    name = type(learner).__name__
    keys, labels = as_ids(ids, f"{name}.tell"), labels_of(learner, y, f"{name}.tell")
    if len(keys) != len(labels):
        raise ValueError(f"{name}.tell got {len(keys)} ids but {len(labels)} labels")
    waiting = learner.waiting.samples
    label_of = dict(zip(keys, labels, strict=True))
    skips = learner.settings.missing_labels == "skip"
    learnt = [key for key in keys if key in waiting and not (skips and label_of[key] is None)]
    if learnt:
        samples = Features(torch.stack([waiting[key] for key in learnt]))
        learner.waiting.remove(learnt)  # first: a batch that a GPU has begun to learn can't be undone
        learner.observe(samples, [label_of[key] for key in learnt], t)
    return Told(learnt, [key for key in keys if key not in waiting])


def as_ids(ids: Any, where: str, repeated: bool = False) -> list[Label]:
    """The ids of a batch as a list. repeated: whether an id may come twice."""
    try:
        checked = as_labels(ids)
    except ValueError:
        raise ValueError(
            f"{where} takes a sequence of ids, each a str, int, float, bool, bytes, None or a tuple of these"
        ) from None
    seen: set[Label] = set()
    for key in checked:
        if key in seen and not repeated:
            raise ValueError(f"{where} got the id {shortened(key)} twice")
        seen.add(key)
    return checked
