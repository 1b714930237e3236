"""The calls that change a learner, and the state that each of them finds."""

from __future__ import annotations

import copy
import functools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from everlearn.learners import registry
from interrupting.outside import frozen, in_another_thread
from interrupting.subjects import TROUBLE, batch, make, task

__all__ = ["CALLS", "OtherChanged", "at_start", "begun", "can_call", "done", "users_calls", "with_state"]

Call = Callable[[Any], Any]


class OtherChanged(Exception):
    """A learner that another one took in did not stay as it was."""


def _merge(learner: Any) -> None:
    other = _other(learner)
    before = frozen(other.state_dict())
    try:
        learner.merge(other)
    finally:
        sys.settrace(None)
        after = in_another_thread(other.state_dict)
        if after is None or frozen(after) != before:
            raise OtherChanged("the other learner has changed, or stays locked")


def _other(learner: Any) -> Any:
    other = make(learner.name, _variant_of(learner), seed=1)
    for seed, labels in enumerate(("abab", "aeea")):
        other.observe(*batch(labels, 50 + seed), task(other))
    return other


def _variant_of(learner: Any) -> str:
    if isinstance(learner.given, nn.Module):
        return "own network"
    if getattr(learner.settings, "averaging", 0) == 0.9 and callable(learner.settings.augmentation):
        return "additions"
    if learner.settings.unknown is not None:
        return "additions"
    return "plain" if learner.settings.iterations == 2 else "one iteration"


CALLS: dict[str, Call] = {
    "first": lambda learner: learner.observe(*batch("abab", 9), task(learner)),
    "observe": lambda learner: learner.observe(*batch("abca", 10), task(learner, 1)),
    "new label": lambda learner: learner.observe(*batch("dabd", 11), task(learner, 2)),
    "new labels": lambda learner: learner.observe(*batch("defghij", 12), task(learner, 2)),
    "revisit": lambda learner: learner.revisit(*batch("bcab", 13), task(learner, 1)),
    "ask": lambda learner: learner.ask(["p", "r", "s", "t"], batch("abca", 14)[0]),
    "tell": lambda learner: learner.tell(["p", "no", "q"], ["a", "a", "d"], task(learner, 2)),
    "forget": lambda learner: learner.forget("b"),
    "merge": _merge,
    "end_horizon": lambda learner: learner.end_horizon(),
    "load_state_dict": lambda learner: learner.load_state_dict(_loaded(learner.name, _variant_of(learner))),
}


def can_call(name: str, call: str) -> bool:
    """Whether a learner knows the call at all."""
    if call == "forget":
        return registry()[name].can_forget
    return call != "merge" or make(name).memory is not None


@functools.cache
def _loaded(name: str, variant: str) -> dict[str, Any]:
    state: dict[str, Any] = _other(make(name, variant)).state_dict()
    return state


def begun(name: str, variant: str, call: str) -> dict[str, Any]:
    """The state that a call finds."""
    return _taught(name, variant, 0 if call == "first" else 4)


@functools.cache
def _taught(name: str, variant: str, batches: int) -> dict[str, Any]:
    learner = make(name, variant)
    for seed, labels in enumerate(("abab", "abba", "cabc", "bcac")[:batches]):
        learner.observe(*batch(labels, seed), task(learner, seed // 2))
    if batches:
        learner.ask(["p", "q"], batch("ad", 8)[0])
    state: dict[str, Any] = learner.state_dict()
    return state


def done(name: str, variant: str, call: str) -> dict[str, Any]:
    """The state that a call leaves."""
    return _clean(name, variant, call)[0]


def users_calls(name: str, variant: str, call: str, kind: str) -> int:
    """How often a call uses the user's own code of this kind."""
    return _clean(name, variant, call)[1][kind]


@functools.cache
def _clean(name: str, variant: str, call: str) -> tuple[dict[str, Any], Counter[str]]:
    TROUBLE.expect()
    CALLS[call](at_start(name, variant, call))  # makes the other learners that it needs
    learner = at_start(name, variant, call)
    TROUBLE.expect()
    CALLS[call](learner)
    counts = Counter(TROUBLE.counts)
    state: dict[str, Any] = learner.state_dict()
    return state, counts


def at_start(name: str, variant: str, call: str) -> Any:
    """A learner in the state that a call finds."""
    learner = _at_start(name, variant, call == "first")
    # A generator of its own: torch does not free the copies of one.
    generator = torch.Generator().set_state(learner.generator.get_state())
    return copy.deepcopy(learner, {id(learner.generator): generator})


@functools.cache
def _at_start(name: str, variant: str, first: bool) -> Any:
    return with_state(name, variant, begun(name, variant, "first" if first else "observe"))


def with_state(name: str, variant: str, state: dict[str, Any]) -> Any:
    """A learner that was given this state."""
    learner = make(name, variant)
    learner.load_state_dict(state)
    return learner
