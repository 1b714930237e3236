"""ER-ACE: experience replay whose new samples push only against the classes that come with them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import UNSEEN, weighted_cross_entropy
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import as_input

__all__ = ["ERACE"]


class ERACE(Learner):
    """Experience replay with an asymmetric cross-entropy.

    New samples are compared only with the classes of their batch, so that they do not push the features of old
    classes away; replayed samples are compared with all classes. The two means are added. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = ERACE("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Caccia, L. et al. New Insights on Reducing Abrupt Representation Change in Online Continual Learning. ICLR 2022.
    """

    name = "er-ace"
    Settings = SoftmaxReplaySettings
    Memory = ReservoirMemory
    weighs_samples = True

    def forward_sizes(self, batch: int) -> set[int]:
        """The size of B_n; B_M passes by itself, if it has more than one sample."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on CE(B_n, the classes in B_n) + CE(B_M, all classes)."""
        old, old_slots = replay
        logits = self.logits(as_input(x))
        arrives = torch.zeros_like(logits[0], dtype=torch.bool).scatter(0, slots, True)
        loss = weighted_cross_entropy(self, torch.where(arrives, logits, UNSEEN), slots)
        if len(old) > self.may_reject:  # batch norm can't take a single sample
            loss = loss + cross_entropy(self.logits(as_input(old)), old_slots)
        self.descend(loss)
