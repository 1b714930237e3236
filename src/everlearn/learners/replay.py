"""What learners with a softmax and a replay memory share: each batch is learnt jointly with a replayed one."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from everlearn.learners.additions import Additions, WithAdditions
from everlearn.learners.softmax import SoftmaxLearner, SoftmaxSettings
from everlearn.memory.base import ReplayMemory

__all__ = ["Rehearsal", "RehearsalSettings", "ReplayLearner", "ReplaySettings"]


@dataclasses.dataclass(frozen=True)
class ReplaySettings(SoftmaxSettings):
    """The settings of a learner that replays; where no benchmark is named, the defaults are Split-MNIST's."""

    memory_size: int = 2000
    """|M_r|, exemplars in the replay memory"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")


@dataclasses.dataclass(frozen=True)
class RehearsalSettings(Additions, ReplaySettings):
    """The same, with what can be added."""

    learning_rate: float = (
        SoftmaxSettings.learning_rate
    )  # else that of Additions, which is every learner's, wins
    """step size of plain SGD"""
    clip: float | None = SoftmaxSettings.clip
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""


class ReplayLearner(SoftmaxLearner):
    """Plain SGD on the mean cross-entropy of B_n ∪ B_M; a method says what kind of memory B_M comes from."""

    Settings = ReplaySettings
    settings: ReplaySettings
    Memory: ClassVar[type[ReplayMemory]]
    memory: ReplayMemory

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        self.memory = self.Memory(self.settings.memory_size, self.labels, self.generator)

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of cross-entropy on B = B_n ∪ B_M, the mean over both."""
        old, old_slots = replay
        self._fit(torch.cat([x, old]), torch.cat([slots, old_slots]))

    def passed(self, batch: int) -> set[int]:
        """B_n and B_M together."""
        return {batch + min(self.drawn(batch), len(self.memory))}

    def _open_classes(self, classes: int) -> None:
        super()._open_classes(classes)
        self.memory.open_classes(classes)


class Rehearsal(WithAdditions, ReplayLearner):
    """The same, with what can be added."""

    Settings = RehearsalSettings
    settings: RehearsalSettings
