"""The newest state of a live learner for predictions, which never wait for a change to be applied."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.core.learner import Learner
from everlearn.core.snapshot import Snapshot
from everlearn.label_json import Label
from everlearn.live.journal import LiveError
from everlearn.live.model import Model
from everlearn.networks import as_input
from everlearn.randomness import DrawFrom

__all__ = ["LiveSnapshot", "Publisher", "check_copies"]

# A copy of the learner takes at most one part in so many of the time, and this many seconds lie between two.
SHARE, LEAST_SECONDS = 10, 0.02
READERS = 10.0  # seconds after a prediction in which copies are made without being waited for


class LiveSnapshot:
    """A live learner at one position, for predictions only; any number of threads may use it.

    position: the last change in the journal that it includes.
    """

    def __init__(self, snapshot: Snapshot | Learner, position: int) -> None:
        self._snapshot, self.position = snapshot, position
        self.batches, self.samples, self.settings = snapshot.batches, snapshot.samples, snapshot.settings

    @property
    def classes(self) -> list[Label]:
        """The labels seen by then, in the order first seen."""
        return self._snapshot.classes

    def exemplars(self) -> dict[Label, int]:
        """The number of exemplars of each class in the replay memory."""
        return self._snapshot.exemplars()

    def predict(self, x: Any, confidence: bool = False) -> Any:
        """The label of each sample; with `confidence`, a pair of labels and their probabilities."""
        labels = self._snapshot.predict(x)
        return (labels, self._snapshot.predict_proba(x).max(1)) if confidence else labels

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return self._snapshot.predict_proba(x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made."""
        return self._snapshot.embed(x)


class Publisher:
    """Keeps a copy of the learner for predictions, and renews it as long as there are predictions.

    wake: makes the thread that changes the learner call `between` soon.
    error: why the last copy could not be made; None if it could.
    """

    def __init__(self, model: Model, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._wanted: list[int] = []  # the positions that somebody waits for
        self._failures = 0  # copies that could not be made
        self.error: str | None = None
        self._read_at = -READERS  # when somebody last asked for a copy
        self._next = 0.0  # when the next copy may be made that nobody waits for
        self._closed = False
        self.replace(model)

    def latest(self, position: int) -> LiveSnapshot:
        """The newest copy at hand. position: where the learner is now; an older copy is renewed soon."""
        self._read_at = time.monotonic()
        if self.published.position < position:
            self._wake()
        return self.published

    def at_least(self, position: int, timeout: float) -> LiveSnapshot:
        """A copy that includes a position; waits until there is one, or one can't be made."""
        if self.published.position >= position:
            return self.latest(position)
        with self._changed:
            failures = self._failures
            self._wanted.append(position)
            self._wake()
            try:
                self._changed.wait_for(
                    lambda: self.published.position >= position or self._closed or self._failures > failures,
                    timeout,
                )
            finally:
                self._wanted.remove(position)
            if self.published.position < position and self._failures > failures:
                raise LiveError(f"the learner can't be copied for predictions: {self.error}")
        if self.published.position < position:
            raise TimeoutError(f"position {position} was not reached within {timeout:g} seconds")
        return self.latest(position)

    def between(self, model: Model) -> float | None:
        """Make a new copy if somebody needs one; returns the seconds after which to call this again, if any.

        If it can't be made, those who wait for it get the error; the learner itself is as it was.
        """
        now = time.monotonic()
        if self.published.position == model.position:
            return None
        if self._is_waited_for(model.position) or (now < self._read_at + READERS and now >= self._next):
            try:
                self.replace(model)
            except Exception as error:  # such as no memory left
                with self._changed:
                    self.error = f"{type(error).__name__}: {error}"
                    self._failures += 1
                    self._changed.notify_all()
            return None
        return self._next - now if now < self._read_at + READERS else None

    def _is_waited_for(self, position: int) -> bool:
        """Whether somebody waits for a copy of the learner at this position."""
        with self._changed:
            return any(self.published.position < wanted <= position for wanted in self._wanted)

    def replace(self, model: Model) -> None:
        """Make a new copy."""
        started = time.monotonic()
        try:
            snapshot = LiveSnapshot(model.learner.snapshot(), model.position)
        finally:
            ended = time.monotonic()
            self._next = ended + max(SHARE * (ended - started), LEAST_SECONDS)
        with self._changed:
            self.published, self.error = snapshot, None
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def check_copies(learner: Learner, x: Tensor | None = None) -> None:
    """Raise a ValueError for a network of a user's own that can't be copied, also after it has computed something.

    x: samples to try it with; by default zeros like those that the learner has seen, if any.
    """
    if not isinstance(learner.given, nn.Module):
        return
    if x is None and learner.sample_shape is not None:
        x = torch.zeros(2, *learner.sample_shape, dtype=learner.sample_type)
    try:
        network = copy.deepcopy(learner.given)
        if x is not None:
            # Its own errors are for `observe` to report, in other words.
            with torch.enable_grad(), DrawFrom(torch.Generator()), contextlib.suppress(Exception):
                network.to(learner.device).train()(as_input(x.to(learner.device)))
        copy.deepcopy(network)
    except Exception as error:
        raise ValueError(
            f"the network {type(learner.given).__name__} can't be copied, as predictions in other threads need it "
            f"({type(error).__name__}: {error}): let it keep no results of forward, or detached ones"
        ) from error
