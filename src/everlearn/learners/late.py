"""Labels that come late: what was asked waits, within bounds, until its label is told."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from everlearn.label_json import UNKNOWN
from everlearn.learners.predicting import Predicting
from everlearn.memory.labels import Label, as_labels
from everlearn.transaction import atomic

__all__ = ["Asking", "Told"]


class Told(NamedTuple):
    """What became of the labels that were told.

    learnt: the ids whose samples were learnt, as one batch.
    missing: the ids of which no sample waits: never asked, told already, or so long ago that later ones took
        their place.
    """

    learnt: list[Label]
    missing: list[Label]


class Asking(Predicting):
    """The part of a learner that predicts first and is told the labels later."""

    @atomic
    def ask(self, ids: Any, x: Any) -> list[Label]:
        """Predict, and remember what was asked until its labels are told; before the first label, all is UNKNOWN.

        ids: what to call each sample, of the kinds that labels are. Only the last `waiting` samples are kept.
        """
        x = self._samples(x, "ask")
        ids = self._ids(ids, "ask")
        if len(ids) != len(x):
            raise ValueError(f"{type(self).__name__}.ask got {len(x)} samples but {len(ids)} ids")
        waiting = next(iter(self.asked.samples.values()), None)
        if waiting is not None and (waiting.shape, waiting.dtype) != (x.shape[1:], x.dtype):
            raise ValueError(
                f"{type(self).__name__}.ask got samples of shape {list(x.shape[1:])} and {x.dtype}, while those "
                f"that wait for their labels are {list(waiting.shape)} and {waiting.dtype}"
            )
        predicted: list[Label] = self.predict(x) if self.labels else [UNKNOWN] * len(x)
        self.asked.add(ids, x, self.settings.waiting)
        return predicted

    @atomic
    def tell(self, ids: Any, y: Any, t: Any = None) -> Told:
        """Learn from samples that were asked, now that their labels are known, as one batch.

        Ids of which no sample waits, since it was never asked, told already or forgotten, are in the report.

        >>> from everlearn import CoPE
        >>> learner = CoPE("mlp", waiting=2)
        >>> learner.ask(["first", "second", "third"], torch.randn(3, 8))
        [UNKNOWN, UNKNOWN, UNKNOWN]
        >>> learner.tell(["third", "first"], ["cat", "dog"])
        Told(learnt=['third'], missing=['first'])
        """
        ids, labels = self._ids(ids, "tell"), as_labels(y)
        if len(ids) != len(labels):
            raise ValueError(f"{type(self).__name__}.tell got {len(ids)} ids but {len(labels)} labels")
        waiting = self.asked.samples
        learnt = [key for key in ids if key in waiting]
        missing = [key for key in ids if key not in waiting]
        if learnt:
            x = torch.stack([waiting[key] for key in learnt])
            self._observe(x, [label for key, label in zip(ids, labels, strict=True) if key in waiting], t)
            self.asked.remove(learnt)
        return Told(learnt, missing)

    def _ids(self, ids: Any, method: str) -> list[Label]:
        where = f"{type(self).__name__}.{method}"
        try:
            checked = as_labels(ids)
        except ValueError:
            raise ValueError(
                f"{where} takes a sequence of ids, each a str, int, float, bool, bytes, None or a tuple of these"
            ) from None
        if len(set(checked)) < len(checked):
            twice = next(key for place, key in enumerate(checked) if key in checked[:place])
            raise ValueError(f"{where} got the id {twice!r} twice")
        return checked
