"""Checks of what a user gives to a live learner, before anything is written."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, TypeAlias

from torch import Tensor, nn

from everlearn.core import validation
from everlearn.core.delayed_labels import as_ids
from everlearn.core.learner import Learner
from everlearn.core.row_selection import as_weights, labels_of
from everlearn.core.table import Table, as_table, is_frame
from everlearn.core.validation import as_task
from everlearn.live.editing import can_rebuild
from everlearn.memory.labels import as_labels, shortened

__all__ = ["Checked", "asked", "check_request_id", "edited", "observed", "told"]

Checked: TypeAlias = tuple[
    Tensor | Table | None, dict[str, Any]
]  # samples, and what else belongs to a change


def as_batch(learner: Learner, x: Any, where: str) -> Tensor | Table:
    """The samples as a tensor that the learner takes; a DataFrame as a table, which the learner encodes.

    With an encoder, they are its features, so that a replay of the journal does not need it.
    """
    x = validation.encoded(learner, x, where)
    if is_frame(x):
        return as_table(x, where)
    samples = validation.as_samples(x, where, keep_integers=isinstance(learner.given, nn.Module))
    validation.check_tensor(samples, where, learner.sample_shape, learner.sample_type)
    return samples


def observed(learner: Learner, x: Any, y: Any, ids: Any, t: Any, sample_weight: Any) -> Checked:
    """A batch to learn from."""
    where = "Live.observe"
    samples, labels = as_batch(learner, x, where), labels_of(learner, y, where)
    same_length(samples, "samples", labels, "labels", where)
    keys = None if ids is None else as_ids(ids, where, repeated=True)
    if keys is not None:
        same_length(samples, "samples", keys, "ids", where)
    weights = None if sample_weight is None else as_weights(sample_weight, len(samples), where).tolist()
    task = None if t is None else as_task(t, where)
    return samples, {"labels": labels, "ids": keys, "t": task, "weights": weights}


def asked(learner: Learner, ids: Any, x: Any) -> Checked:
    """A batch to predict and to keep by id."""
    samples, keys = as_batch(learner, x, "Live.ask"), as_ids(ids, "Live.ask")
    same_length(samples, "samples", keys, "ids", "Live.ask")
    return samples, {"ids": keys}


def told(learner: Learner, ids: Any, y: Any, t: Any) -> Checked:
    """The labels of samples that were asked."""
    keys, labels = as_ids(ids, "Live.tell"), labels_of(learner, y, "Live.tell")
    same_length(keys, "ids", labels, "labels", "Live.tell")
    return None, {"ids": keys, "labels": labels, "t": None if t is None else as_task(t, "Live.tell")}


def edited(learner: Learner, kind: str, ids: Any, rebuild: bool, labels: Any = None) -> Checked:
    """Samples to delete, or whose labels to correct."""
    where = f"Live.{kind}"
    keys, right = as_ids(ids, where), as_labels(labels) if kind == "correct" else None
    if right is not None:
        same_length(keys, "ids", right, "labels", where)
    if rebuild:
        can_rebuild(learner)
    return None, {"ids": keys, "labels": right, "rebuild": rebuild or None}


def same_length(first: Sized, of: str, second: Sized, name: str, where: str) -> None:
    """Raise a ValueError if there are not as many of the one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{where} got {len(first)} {of} but {len(second)} {name}")


def check_request_id(request: Any) -> None:
    """Raise a ValueError for a request id that is not a str."""
    if request is not None and not isinstance(request, str):
        raise ValueError(f"a request id is a str, not {shortened(request)}")
