"""What every learner can be told."""

from __future__ import annotations

import dataclasses

__all__ = ["Settings"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every learner can be told."""

    learning_rate: float = 0.01
    """step size of plain SGD"""
    iterations: int = 1
    """gradient steps per batch, each with fresh replay"""
    hidden: int = 400
    """units in each hidden layer, where the network is the MLP"""
    unknown: float | None = None
    """share of its own samples it may lose by answering "none of these" to what is too unlike; None never does"""
    waiting: int = 1000
    """samples that `ask` keeps until their labels are told; the oldest go first"""

    def __post_init__(self) -> None:
        self._check("learning_rate", self.learning_rate > 0, "above 0")
        self._check("iterations", self.iterations >= 1, "at least 1")
        self._check("hidden", self.hidden >= 1, "at least 1")
        self._check(
            "unknown", self.unknown is None or 0 <= self.unknown < 1, "None, or at least 0 and below 1"
        )
        self._check("waiting", self.waiting >= 1, "at least 1")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {expected}, not {getattr(self, name)!r}")
