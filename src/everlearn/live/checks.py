"""Checks of what a user gives to a live learner, before anything is written."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sized
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor, nn

from everlearn.core import delayed_labels, validation
from everlearn.core.columns import Columns
from everlearn.core.learner import Learner
from everlearn.core.row_selection import as_weights, labels_of
from everlearn.core.table import Table, as_table, is_dataframe, is_frame
from everlearn.core.validation import as_task
from everlearn.live.editing import can_rebuild
from everlearn.memory.labels import Label, shortened
from everlearn.messages import is_whole

__all__ = [
    "Checked",
    "as_flag",
    "as_position",
    "as_seconds",
    "as_source",
    "asked",
    "check_forget",
    "check_path",
    "check_request_id",
    "edited",
    "observed",
    "told",
]

Checked: TypeAlias = tuple[
    Tensor | Table | None, dict[str, Any]
]  # samples, and what else belongs to a change


def as_batch(learner: Learner, x: Any, where: str) -> Tensor | Table:
    """The samples as a tensor that the learner takes; a DataFrame as a table, which the learner encodes.

    With an encoder, they are its features, so that a replay of the journal does not need it.
    """
    x = validation.encoded(learner, x, where)
    if isinstance(x, Table) or is_frame(x):
        table = x if isinstance(x, Table) else as_table(x, where)
        check_table(learner, table, where)
        return table
    samples = validation.as_samples(x, where, keep_integers=isinstance(learner.given, nn.Module))
    validation.check_tensor(samples, where, learner.sample_shape, learner.sample_type)
    return samples


def check_table(learner: Learner, table: Table, where: str) -> None:
    """Raise a ValueError for a table that the learner can't encode."""
    if not len(table):
        raise ValueError(f"{where} got an empty batch")
    if learner.columns is None and learner.sample_shape is not None:
        raise ValueError(
            f"{where} got columns, but the first batch had no names of columns: give their numbers alone, as an array"
        )
    (learner.columns or Columns.of(table, where)).encode(table, where)


def as_ids(ids: Any, where: str, repeated: bool = False) -> list[Label]:
    """The ids of a batch as a list. repeated: whether an id may come twice."""
    shape = getattr(ids, "shape", ())
    if is_dataframe(ids) or (isinstance(shape, tuple) and len(shape) > 1):
        raise ValueError(
            f"{where} takes one id for each sample, not a {type(ids).__name__} with rows and columns: "
            'give one column, such as frame["id"]'
        )
    return delayed_labels.as_ids(ids, where, repeated)


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
    keys, right = as_ids(ids, where), None
    if kind == "correct":
        right = labels_of(learner, labels, where)
        same_length(keys, "ids", right, "labels", where)
        if None in right and learner.settings.missing_labels == "skip":
            raise ValueError(
                f"{where} got no label (None or NaN) for sample {right.index(None)}: give the right one"
            )
    if as_flag(rebuild, "rebuild"):
        can_rebuild(learner)
    return None, {"ids": keys, "labels": right, "rebuild": True if rebuild else None}


def same_length(first: Sized, of: str, second: Sized, name: str, where: str) -> None:
    """Raise a ValueError if there are not as many of the one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{where} got {len(first)} {of} but {len(second)} {name}")


def check_request_id(request: Any) -> None:
    """Raise a ValueError for a request id that is not a str."""
    if request is not None and not isinstance(request, str):
        raise ValueError(f"a request id is a str, not {shortened(request)}")


def as_source(source: Any) -> tuple[str, Any] | None:
    """The name of an outside source and the position in it, as JSON; raises a ValueError for anything else.

    >>> as_source(("orders", np.int64(1234)))
    ('orders', 1234)
    """
    if source is None:
        return None
    try:
        name, position = held = json.loads(json.dumps(source, default=_plain, allow_nan=False))
        valid = held == [*source] and isinstance(source, (tuple, list))  # what a replay would read
    except (TypeError, ValueError, RecursionError):
        valid = False
    if not valid or not isinstance(name, str) or position is None or isinstance(position, bool):
        raise ValueError(
            'source is a name and the position after this batch, as JSON, such as ("orders", 1234), '
            f"not {shortened(source)}"
        )
    return name, position


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError


def as_flag(value: Any, name: str) -> bool:
    """A setting that is on or off; raises a ValueError for anything but True and False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is True or False, not {shortened(value)}")
    return bool(value)


def as_position(position: Any, name: str) -> int:
    """A position in the journal; raises a ValueError for anything but a whole number."""
    if not is_whole(position, least=0):
        raise ValueError(f"{name} is a whole number of at least 0, not {shortened(position)}")
    return int(position)


def as_seconds(timeout: Any) -> float:
    """How long to wait; raises a ValueError for anything but a number of seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float, np.number)) or not timeout >= 0:
        raise ValueError(f"timeout is a number of seconds of at least 0, not {shortened(timeout)}")
    return float(timeout) if timeout < int(threading.TIMEOUT_MAX) else threading.TIMEOUT_MAX


def check_path(path: Any) -> None:
    """Raise a ValueError for a folder that is not a str or a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"a folder is given as a str or a Path, not {shortened(path)}")


def check_forget(learner: Learner, label: Label) -> None:
    """Raise a ValueError for a class that can't be forgotten."""
    if label not in learner.labels:
        raise ValueError(f"Live.forget got the label {shortened(label)}, which was never observed")
    if not learner.can_forget:
        raise ValueError(
            f"{learner.name} can't forget a class, since all its weights depend on every class: create a new learner"
        )
