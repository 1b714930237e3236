"""CoPE-CE: CoPE with cross-entropy and a softmax in place of its prototypes and their loss."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from everlearn.core.learner import Learner
from everlearn.core.settings import BalancedReplaySettings, SoftmaxReplaySettings
from everlearn.memory.class_balanced import BalancedMemory

__all__ = ["CoPECE", "CoPECESettings"]


@dataclasses.dataclass(frozen=True)
class CoPECESettings(BalancedReplaySettings, SoftmaxReplaySettings):
    """The settings of CoPE-CE: those of softmax replay, and of the class-balanced memory."""

    learning_rate: float = SoftmaxReplaySettings.learning_rate  # else that of BalancedReplaySettings
    """step size of plain SGD"""
    clip: float | None = SoftmaxReplaySettings.clip
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""


class CoPECE(Learner):
    """CoPE's memory and sampling with cross-entropy and softmax: the effect of the balanced memory alone.

    Each batch is learnt jointly with as many exemplars, class-uniform from the class-balanced memory. Compared with
    `reservoir` it shows the effect of the memory; `cope` compared with it, that of the prototypes.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CoPECE("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']
    >>> learner.memory.counts()
    {'high': 5, 'low': 5}

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution: Learning Online from Non-Stationary
    Data Streams. ICCV 2021.
    """

    name = "cope-ce"
    Settings = CoPECESettings
    Memory = BalancedMemory
    weighs_samples = True

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of cross-entropy on B = B_n ∪ B_M, the mean over both."""
        old, old_slots = replay
        self.fit(torch.cat([x, old]), torch.cat([slots, old_slots]), self.weights(len(x), len(old)))
