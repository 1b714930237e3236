"""Promises about the state of a learner: it is complete, and nobody else changes it."""

from __future__ import annotations

import copy
import tempfile
from pathlib import Path

from torch import nn

from everlearn.core.learner import Learner
from everlearn.learners import load
from everlearn.networks import is_own
from everlearn.testing.requirements import (
    differing_parts,
    require,
    require_same_predictions,
    require_same_state,
    state_copy,
)
from everlearn.testing.samples import Subject, batches, revisit, samples, teach

__all__ = ["copying", "earlier_states", "resuming"]

TASK = 2  # batches, after which a horizon ends


def resuming(subject: Subject) -> None:
    """A run that is stopped at any batch, saved, loaded and resumed is bit-identical."""
    for stop in (0, 1, 2, 5):
        whole, first = subject.make(), subject.make()
        for learner in (whole, first):
            _teach_from(learner, 0, stop)
        second = _loaded(subject, first)
        require_same_state(first.state_dict(), second.state_dict(), f"save and load after {stop} batches")
        require_same_predictions(whole, second, f"save and load after {stop} batches")
        for learner in (whole, second):
            _teach_from(learner, stop, 6)
        require_same_state(whole.state_dict(), second.state_dict(), f"a stop after {stop} batches")
        require_same_predictions(whole, second, f"a stop after {stop} batches")


def _teach_from(learner: Learner, start: int, end: int) -> None:
    """Teach some of the batches, with the end of each horizon."""
    for i, (x, y) in enumerate(batches()):
        if start <= i < end:
            teach(learner, x, y, i // TASK)
            if i % TASK == TASK - 1:
                learner.end_horizon()


def _loaded(subject: Subject, learner: Learner) -> Learner:
    network: str | nn.Module | None = subject.new_network()
    if isinstance(network, str) and not is_own(network):
        network = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        learner.save(path)
        return load(path, network=network, device="cpu", learner=subject.kind)


def earlier_states(subject: Subject) -> None:
    """A state that was taken does not change when the learner goes on."""
    learner = subject.taught()
    taken, before = learner.state_dict(), state_copy(learner)
    learner.predict(samples(20))
    for i, (x, y) in enumerate(batches(seed=4)):
        teach(learner, x, y, 3 + i // 4)
        revisit(learner, x, y, 3 + i // 4)
    learner.end_horizon()
    parts = differing_parts(before, taken)
    require(not parts, f"what state_dict returned changes when the learner goes on: {parts}")


def copying(subject: Subject) -> None:
    """A copy learns what the learner would have learnt, and the learner is not changed."""
    learner = subject.taught()
    before = state_copy(learner)
    other = copy.copy(learner)
    require_same_state(before, other.state_dict(), "copy.copy")
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=4)):
        teach(other, x, y, 3 + i // 4)
    require_same_state(before, learner.state_dict(), "teaching a copy")
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=4)):
        teach(learner, x, y, 3 + i // 4)
    require_same_state(other.state_dict(), learner.state_dict(), "teaching a copy, then the learner")
