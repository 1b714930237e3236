"""A task identifier t inferred from the stream itself, for a stream that hides it."""

from __future__ import annotations

from collections.abc import Sequence

from everlearn.memory.labels import Label

__all__ = ["Novelty"]


class Novelty:
    """Starts a new t when new labels arrive, or when the learner's error before learning rises and stays high.

    New labels within `patience` batches of the last new ones belong to the same t. The Page-Hinkley test detects
    a rise: the sum of the error above its mean, less `slack` per batch, exceeds `threshold`.

    >>> novelty = Novelty(patience=2)
    >>> [novelty.identify([label], None) for label in "aabbbbbcd"]
    [0, 0, 0, 0, 0, 0, 0, 1, 1]

    Page, E. S. Continuous inspection schemes. Biometrika, 1954.
    """

    def __init__(self, patience: int = 10, slack: float = 0.05, threshold: float = 5.0) -> None:
        self.patience, self.slack, self.threshold = patience, slack, threshold
        self.t = 0
        self._seen: set[Label] = set()
        self._since_new = 0
        self._reset()

    def identify(self, labels: Sequence[Label], correct: Sequence[bool] | None) -> int:
        """The t of this batch. correct: which of its samples were predicted correctly before it was learnt."""
        new = not self._seen.issuperset(labels)
        self._seen.update(labels)
        self._since_new += 1
        if new:
            if self._since_new > self.patience:
                self._next()
            self._since_new = 0
        elif correct and self._since_new > self.patience and self._rises(correct):
            self._next()
        return self.t

    def _next(self) -> None:
        self.t += 1
        self._reset()

    def _reset(self) -> None:
        self._batches, self._mean, self._sum, self._least = 0, 0.0, 0.0, 0.0

    def _rises(self, correct: Sequence[bool]) -> bool:
        error = 1 - sum(correct) / len(correct)
        self._batches += 1
        self._mean += (error - self._mean) / self._batches
        self._sum += error - self._mean - self.slack
        self._least = min(self._least, self._sum)
        return self._sum - self._least > self.threshold
