"""What checks require: conditions, states that are equal, and calls that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.checkpoint import State
from everlearn.core.learner import Learner
from everlearn.testing.samples import samples

__all__ = [
    "BrokenPromise",
    "differing_parts",
    "refusal",
    "require",
    "require_same_predictions",
    "require_same_state",
    "state_copy",
]


class BrokenPromise(AssertionError):
    """What a learner does wrong, in a sentence."""


def require(holds: object, otherwise: str) -> None:
    """Raise a BrokenPromise unless a condition holds. An `assert` would be skipped by `python -O`."""
    if not holds:
        raise BrokenPromise(otherwise)


def refusal(kind: type[Exception], call: Callable[[], Any]) -> str | None:
    """What an error of this kind says, or None if the call raises none."""
    try:
        call()
    except kind as error:
        return str(error)
    return None


def state_copy(learner: Learner) -> State:
    """The state of a learner, in tensors of its own: those of `state_dict` may be the ones that it learns with."""
    state = learner.state_dict()
    return {key: part.clone() if isinstance(part, Tensor) else part for key, part in state.items()}


def differing_parts(before: State, after: State) -> str:
    """The names of what differs between two states."""
    keys = sorted(before.keys() | after.keys())
    return ", ".join(key for key in keys if not _same(before.get(key), after.get(key)))


def require_same_state(before: State, after: State, what: str) -> None:
    """Require that two states are equal. what: the call between the two."""
    parts = differing_parts(before, after)
    require(not parts, f"{what} changed the state: {parts}")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def require_same_predictions(one: Learner, other: Learner, what: str) -> None:
    """Require that two learners predict the same, if they have learnt anything. what: how the two differ."""
    if one.classes or other.classes:
        x = samples(20, seed=8)
        rows, others = one.predict_proba(x), other.predict_proba(x)
        require(np.array_equal(rows, others), f"{what} changed predict_proba")
