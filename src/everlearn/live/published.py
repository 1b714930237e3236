"""The newest state of a live learner for predictions, which never wait for a change to be applied."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core.learner import Learner
from everlearn.core.snapshot import Snapshot
from everlearn.label_json import Label
from everlearn.live.model import Model

__all__ = ["LiveSnapshot", "Publisher"]

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
    """

    def __init__(self, model: Model, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._changed = threading.Condition()
        self._wanted = -1  # the position that somebody waits for
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
        """A copy that includes a position; waits until there is one."""
        if self.published.position >= position:
            return self.latest(position)
        with self._changed:
            self._wanted = max(self._wanted, position)
            self._wake()
            self._changed.wait_for(lambda: self.published.position >= position or self._closed, timeout)
        if self.published.position < position:
            raise TimeoutError(f"position {position} was not reached within {timeout:g} seconds")
        return self.latest(position)

    def between(self, model: Model) -> float | None:
        """Make a new copy if somebody needs one; returns the seconds after which to call this again, if any."""
        now = time.monotonic()
        if self.published.position == model.position:
            return None
        if self.published.position < self._wanted or (now < self._read_at + READERS and now >= self._next):
            self.replace(model)
            return None
        return self._next - now if now < self._read_at + READERS else None

    def replace(self, model: Model) -> None:
        """Make a new copy."""
        started = time.monotonic()
        snapshot = LiveSnapshot(model.learner.snapshot(), model.position)
        ended = time.monotonic()
        self._next = ended + max(SHARE * (ended - started), LEAST_SECONDS)
        with self._changed:
            self.published = snapshot
            if self._wanted <= model.position:
                self._wanted = -1
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
