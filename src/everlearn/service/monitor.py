"""Test, then train: how well a model predicts samples that it is about to learn from."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from everlearn.label_json import UNKNOWN, Label

__all__ = ["Mistake", "Monitor"]

WINDOW = 1000  # samples in the rolling figures
POINTS = 400  # of the accuracy over time
MISTAKES = 24
SECONDS = 120  # of the rate over time


class Mistake(NamedTuple):
    """A sample that was predicted wrongly before it was learnt."""

    sample: NDArray[Any] | dict[Label, Any] | str  # by column, where these have names
    label: Label
    predicted: Label
    position: int
    time: float


class Monitor:
    """Rolling figures over the samples observed since the service started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.window: deque[tuple[Label, Label]] = deque(maxlen=WINDOW)  # labels and predictions
        self.points: list[tuple[int, float, int, float]] = []  # position, time, samples, rolling accuracy
        self.mistakes: deque[Mistake] = deque(maxlen=MISTAKES)
        self.samples = self.right = self.unknown = 0
        self._rates: dict[int, int] = {}  # samples learnt in each second since 1970
        self._every = 20  # samples between two points
        self._next = self._every

    def arrived(self, samples: int) -> None:
        """Samples were learnt."""
        second = int(time.time())
        with self._lock:
            self._rates[second] = self._rates.get(second, 0) + samples
            if len(self._rates) > 2 * SECONDS:
                self._rates = dict(list(self._rates.items())[SECONDS:])

    def rates(self) -> list[tuple[int, int]]:
        """The seconds of the last two minutes, and the samples learnt in each; the current one is left out."""
        now = int(time.time())
        with self._lock:
            counts = dict(self._rates)
        first = max(now - SECONDS, min(counts, default=now))
        return [(second, counts.get(second, 0)) for second in range(first, now)]

    def record(
        self, x: Sequence[Any], labels: Sequence[Label], predicted: Sequence[Label], position: int
    ) -> None:
        """Labels of samples, and what was predicted before they were learnt."""
        now = time.time()
        with self._lock:
            for sample, label, answer in zip(x, labels, predicted, strict=True):
                self.window.append((label, answer))
                self.samples += 1
                self.right += label == answer
                self.unknown += answer is UNKNOWN
                if label != answer:
                    kept = sample if isinstance(sample, dict | str) else np.array(sample)
                    self.mistakes.append(Mistake(kept, label, answer, position, now))
            if self.samples >= self._next:
                self.points.append((position, now, self.samples, self._rolling()))
                if len(self.points) > POINTS:
                    self.points, self._every = self.points[1::2], 2 * self._every
                self._next = self.samples + self._every

    def _rolling(self) -> float:
        return sum(label == answer for label, answer in self.window) / len(self.window)

    def rolling_accuracy(self) -> float | None:
        """The share of right predictions among the last ones; None without any."""
        with self._lock:
            return self._rolling() if self.window else None

    def pairs(self) -> list[tuple[Label, Label]]:
        """The last labels and predictions."""
        with self._lock:
            return list(self.window)

    def last_mistakes(self) -> list[Mistake]:
        """The last wrong predictions, the oldest first."""
        with self._lock:
            return list(self.mistakes)

    def samples_per_second(self, seconds: int = 10) -> float:
        """The rate at which samples were learnt in the last full seconds."""
        recent = self.rates()[-seconds:]
        return sum(count for _, count in recent) / len(recent) if recent else 0.0
