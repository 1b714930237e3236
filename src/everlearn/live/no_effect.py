"""Calls that change nothing: they get their result and are not journaled.

A `tell` or `correct` of ids without a sample is journaled all the same: it costs little, and a retry after a kill
gets the same result.
"""

from __future__ import annotations

from typing import Any

from everlearn.live import editing
from everlearn.live.checks import check_forget
from everlearn.live.entries import Change
from everlearn.live.model import Model
from everlearn.live.results import Corrected, Deleted, LiveTold
from everlearn.live.storage import Storage

__all__ = ["result_without_effect"]


def result_without_effect(model: Model, storage: Storage, change: Change) -> Any:
    """The result of a change that would change nothing; None if it changes something.

    Raises a ValueError for a class that can't be forgotten.
    """
    ids = list(change.ids or ())
    if change.kind == "forget":
        check_forget(model.learner, change.labels[0])
    if "source" in change.values or "rebuild" in change.values:  # a position to store, a network to train
        return None
    if change.kind == "tell" and not ids:
        return LiveTold.make([], [], [], [])
    if change.kind == "correct" and not ids:
        return Corrected(0, [], [], False, editing.KEPT)
    if change.kind == "delete" and not storage.holds(model, ids):
        if ids:  # files may still have bytes of samples that were trimmed long ago
            storage.sweep()
        return Deleted(0, 0, ids, [], False, editing.KEPT)
    return None
