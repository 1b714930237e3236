"""Merge the memory of another learner into a learner."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from everlearn.core.class_means import refresh_means
from everlearn.core.forget import copy_before_writing
from everlearn.core.locking import synchronized
from everlearn.core.state import encoder_version, identity
from everlearn.core.validation import check_room
from everlearn.memory.labels import shortened
from everlearn.messages import differing
from everlearn.transaction import atomic

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["check_merge", "merge_learner", "merge_memory"]

# The tensors of a state with a value for each input, which the columns give a meaning.
ENCODED = ("memory.samples", "standardisation.mean", "standardisation.variance", "asked.samples")


def merge_learner(learner: Learner, other: Learner) -> None:
    """Merge the memory of another learner into this one; the other is not changed. The weights stay."""
    name = type(learner).__name__
    if type(other) is not type(learner) or other is learner:
        kind = "itself" if other is learner else type(other).__name__
        raise ValueError(f"{name}.merge takes another {name}, not {kind}")
    # Both locks are always acquired in the same order, so that two threads can't deadlock.
    if id(learner) < id(other):
        _change(learner, other)
    else:
        _while_unchanged(other, lambda: _change(learner, other))


@atomic
def _change(learner: Learner, other: Learner) -> None:
    _while_unchanged(other, lambda: _merge(learner, other))


@synchronized
def _while_unchanged(learner: Learner, function: Callable[[], None]) -> None:
    """Call a function while no other thread changes this learner."""
    function()


def _merge(learner: Learner, other: Learner) -> None:
    _check(learner, other)
    learner.settle()
    other.settle()
    if learner.columns != other.columns:
        other = _with_columns_of(learner, other)
    copy_before_writing(learner)
    learner.invalidate()
    new = learner.labels.new(other.classes)
    if new:
        learner.labels.extend(new)
        learner.open_classes(len(learner.labels))
    learner.merge_from(other, np.array(learner.labels.slots(other.classes), np.int64))
    learner.batches += other.batches
    learner.samples += other.samples
    learner.unlabelled += other.unlabelled


def _with_columns_of(learner: Learner, other: Learner) -> Learner:
    """Let a learner know the categories of another one; returns a copy of that with its samples encoded the same."""
    assert learner.columns is not None and other.columns is not None
    learner.columns = learner.columns.with_categories_in(other.columns)
    places, state = learner.columns.places_of(other.columns), other.state_dict()
    for name, part in state.items():
        if name in ENCODED:
            there = part.cpu()
            state[name] = torch.zeros_like(there).index_add_(there.ndim - 1, places, there)
    meta = {**json.loads(state["meta"]), "columns": learner.columns.as_json()}
    given = copy.deepcopy(other.given)
    twin = type(other)(given, seed=other.seed, device=str(other.device), **vars(other.settings))
    twin.load_state_dict({**state, "meta": json.dumps(meta)})
    return twin


def merge_memory(learner: Learner, other: Any, slots: NDArray[np.int64]) -> None:
    """Merge what another learner stores. slots: the slot here of each of its classes; all are open."""
    learner.memory.merge(other.memory, slots)
    if learner.standardisation is not None:
        learner.standardisation.merge(other.standardisation)
    if learner.calibration is not None:
        learner.calibration.merge(other.calibration, slots)
    learner.newest += other.batches  # they count from now on, but this network has not learnt from them
    refresh_means(learner)


def check_merge(learner: Learner, other: Any) -> None:
    """Raise a ValueError if the method can't merge this learner."""


def _check(learner: Learner, other: Learner) -> None:
    """Raise a ValueError if the learner can't be merged, before anything changes."""
    name = type(learner).__name__
    if learner.memory is None and type(learner).merge_from is merge_memory:
        raise ValueError(f"{learner.name} has no memory, so there is nothing to merge")
    mine, theirs = (
        {"encoder": None, **identity(each), "version of the encoder": encoder_version(each)}
        for each in (learner, other)
    )
    for part in mine:
        if mine[part] != theirs[part]:
            here, there = differing(mine[part], theirs[part])
            raise ValueError(
                f"{name}.merge takes a learner with the same {part}: {here!r} here, {there!r} there"
            )
    for each in (learner, other):
        if not each.labels:
            raise ValueError(f"{name}.merge takes learners that have both observed a batch")
    if (learner.sample_shape, learner.sample_type) != (other.sample_shape, other.sample_type):
        shapes = [f"{list(each.sample_shape or ())} of {each.sample_type}" for each in (learner, other)]
        raise ValueError(
            f"{name}.merge takes a learner of the same samples: {shapes[0]} here, {shapes[1]} there"
        )
    layouts = [None if each.columns is None else each.columns.layout() for each in (learner, other)]
    if layouts[0] != layouts[1]:
        raise ValueError(
            f"{name}.merge takes a learner of the same columns: {shortened(layouts[0])} here, "
            f"{shortened(layouts[1])} there"
        )
    # Without the calibration, which learners of images from older states do not have.
    options = [dataclasses.replace(each.options, calibration="none") for each in (learner, other)]
    if options[0] != options[1]:
        kinds = f"{learner.input_kind} here, {other.input_kind} there"
        raise ValueError(f"{name}.merge takes a learner of the same kind of samples: {kinds}")
    check_room(learner, len(learner.labels) + len(learner.labels.new(other.classes)))
    learner.check_merge(other)
