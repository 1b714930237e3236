"""Checks of what a user gives to a live learner, before anything is written."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from torch import Tensor, nn

from everlearn.core import validation
from everlearn.core.delayed_labels import as_ids
from everlearn.core.learner import Learner
from everlearn.core.row_selection import labels_of
from everlearn.core.table import Table, as_table, is_frame
from everlearn.core.validation import as_task
from everlearn.label_json import Label
from everlearn.memory.labels import shortened

__all__ = ["as_batch", "as_labelled", "check_request_id", "same_length"]


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


def as_labelled(
    learner: Learner, x: Any, y: Any, ids: Any, t: Any, where: str
) -> tuple[Tensor | Table, list[Label], list[Label] | None, int | None]:
    """A batch to learn from: samples, labels, ids and task, checked."""
    samples, labels = as_batch(learner, x, where), labels_of(learner, y, where)
    same_length(samples, "samples", labels, "labels", where)
    keys = None if ids is None else as_ids(ids, where, repeated=True)
    if keys is not None:
        same_length(samples, "samples", keys, "ids", where)
    return samples, labels, keys, None if t is None else as_task(t, where)


def same_length(first: Sized, of: str, second: Sized, name: str, where: str) -> None:
    """Raise a ValueError if there are not as many of the one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{where} got {len(first)} {of} but {len(second)} {name}")


def check_request_id(request: Any) -> None:
    """Raise a ValueError for a request id that is not a str."""
    if request is not None and not isinstance(request, str):
        raise ValueError(f"a request id is a str, not {shortened(request)}")
