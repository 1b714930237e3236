"""Experience replay from a reservoir, a simple and strong baseline."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings, TurnedSettings
from everlearn.memory.reservoir import ReservoirMemory

__all__ = ["Reservoir", "ReservoirSettings"]


@dataclasses.dataclass(frozen=True)
class ReservoirSettings(SoftmaxReplaySettings, TurnedSettings):
    """The settings of softmax replay; images may be turned."""


class Reservoir(Learner):
    """Experience replay: each batch is learnt jointly with as many exemplars from a reservoir.

    The reservoir is a uniform sample of the stream (Vitter's Algorithm R), and replay is uniform over it: a frequent
    class is stored and replayed often.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = Reservoir("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']
    >>> sum(learner.memory.counts().values())
    10

    Chaudhry, A. et al. On Tiny Episodic Memories in Continual Learning. 2019.
    Vitter, J. S. Random Sampling with a Reservoir. ACM Transactions on Mathematical Software, 1985.
    """

    name = "reservoir"
    Settings = ReservoirSettings
    Memory = ReservoirMemory
    weighs_samples = True

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of cross-entropy on B = B_n ∪ B_M, the mean over both."""
        old, old_slots = replay
        self.fit(torch.cat([x, old]), torch.cat([slots, old_slots]), self.weights(len(x), len(old)))
