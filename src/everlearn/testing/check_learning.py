"""Promises about learning: what a batch changes, and what it draws from."""

from __future__ import annotations

import functools
import math
import pickle
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from everlearn.core.learner import Learner
from everlearn.testing.requirements import refusal, require, require_same_state, state_copy
from everlearn.testing.samples import Subject, batches, revisit, samples, teach, teach_all

__all__ = ["bad_batches", "failing_step", "revisiting", "same_seed"]

# What a user may send by mistake, and a part of the sentence that answers it.
BAD_BATCHES: dict[str, tuple[Any, Any]] = {
    "of shape [2, 5] but the network takes [*, 6]": (torch.zeros(2, 5), ["a", "b"]),
    "of shape [6], but it takes a batch": (torch.zeros(6), ["a"]),
    "NaN or infinite values": (torch.tensor([[0, 0, 0, 0, 0, math.nan]]), ["a"]),
    "or infinite values in x": (torch.tensor([[0, 0, 0, 0, 0, math.inf]]), ["a"]),
    "got an empty batch": (torch.zeros(0, 6), []),
    "got 2 samples but 3 labels": (torch.zeros(2, 6), ["a", "b", "c"]),
    "a label is a str, int": (torch.zeros(2, 6), ["a", object()]),
    "y is a sequence of labels": (torch.zeros(2, 6), {"a", "b"}),
    "for each sample, not {'a': 1, 'b': 2}": (torch.zeros(2, 6), {"a": 1, "b": 2}),
    "of shape [], but it takes a batch": (torch.tensor(3.0), ["a"]),
    "array of numbers, not str": ("hello", ["a"]),
    "but this learner began with torch.float32": (torch.zeros(2, 6, dtype=torch.uint8), ["a", "b"]),
}


def bad_batches(subject: Subject) -> None:
    """A batch that can't be learnt gets one sentence, and changes nothing."""
    learner = subject.taught()
    before = state_copy(learner)
    for sentence, (x, y) in BAD_BATCHES.items():
        said = refusal(ValueError, functools.partial(teach, learner, x, y))
        require(said is not None, f"a batch was learnt that should be refused: '... {sentence} ...'")
        one = sentence in str(said) and "\n" not in str(said)
        require(one, f"expected '... {sentence} ...', got {said!r}")
        require_same_state(before, learner.state_dict(), f"a refused batch ('... {sentence} ...')")


def failing_step(subject: Subject) -> str | None:
    """A step that fails after it was done is undone."""
    called = [
        _fails_and_is_undone(subject, "step", "a step"),
        _fails_and_is_undone(subject, "learn", "a batch"),
    ]
    return None if any(called) else "observe calls neither step nor learn"


def _fails_and_is_undone(subject: Subject, method: str, what: str) -> bool:
    """Let a method fail after it was done; returns whether it was called at all."""
    learner = subject.taught()
    before, done, calls = state_copy(learner), getattr(learner, method), []

    def failing(*arguments: Any) -> None:
        calls.append(done(*arguments))
        raise InterruptedError

    vars(learner)[method] = failing
    said = refusal(InterruptedError, lambda: teach(learner, *next(batches(seed=9)), 2))
    if calls:
        require(said is not None, f"observe hides an error of {method}")
        require_same_state(before, learner.state_dict(), f"{what} that failed")
    return bool(calls)


def revisiting(subject: Subject) -> None:
    """A batch that is revisited is neither stored nor counted."""
    learner = subject.taught()
    before = state_copy(learner)
    counted = (learner.batches, learner.samples)
    revisit(learner, *next(batches(seed=5)), 2)
    require((learner.batches, learner.samples) == counted, "revisit counts its samples")
    stored = [key for key in before if key.startswith("memory.")]
    after = learner.state_dict()
    kept = {key: after[key] for key in stored if key in after}
    require_same_state({key: before[key] for key in stored}, kept, "revisit")


def same_seed(subject: Subject) -> None:
    """The same seed gives the same numbers, and the global generator is not used."""
    with _global_generators(seed=1):
        first = state_copy(_used(subject))
    with _global_generators(seed=2):
        second = _used(subject)
    require_same_state(first, second.state_dict(), "a second run with the same seed")


def _used(subject: Subject) -> Learner:
    """A learner that has done everything that might draw random numbers."""
    learner, before = subject.make(), _random_states()
    calls: dict[str, Callable[[], Any]] = {
        "observe": lambda: teach_all(learner),
        "predict": lambda: learner.predict(samples(20)),
        "predict_proba": lambda: learner.predict_proba(samples(20)),
        "revisit": lambda: revisit(learner, *next(batches(seed=5)), 2),
        "end_horizon": learner.end_horizon,
        "predict after end_horizon": lambda: learner.predict(samples(20)),
    }
    for name, call in calls.items():
        call()
        drawn = [source for source, state in _random_states().items() if state != before[source]]
        require(not drawn, f"{name} draws from the global generator of {' and '.join(drawn)}")
    return learner


def _random_states() -> dict[str, bytes]:
    """The states of the global generators."""
    states = {
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state(),
        "Python": random.getstate(),
    }
    return {source: pickle.dumps(state) for source, state in states.items()}


@contextmanager
def _global_generators(seed: int) -> Iterator[None]:
    """A context in which the global generators have this seed."""
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])
