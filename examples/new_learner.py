"""A method of your own, complete: replay with distillation from its own averaged weights.

python examples/new_learner.py
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.networks import as_input


@dataclasses.dataclass(frozen=True)
class SlowTeacherSettings(SoftmaxReplaySettings):
    """Each field is a setting in Python and a flag on the command line."""

    averaging: float = 0.99
    """decay per batch of the averaged weights, which teach and predict"""
    distillation: float = 0.3
    """weight of the distance to the teacher's logits, added to the cross-entropy"""


class SlowTeacher(Learner):
    """Replay with distillation from the learner's own averaged weights.

    >>> SlowTeacher(distillation=0.5).settings.averaging
    0.99

    After Arani, E. et al. Learning Fast, Learning Slow: A General Continual Learning Method. ICLR 2022.
    """

    name = "slow-teacher"
    Settings = SlowTeacherSettings
    Memory = BalancedMemory

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """CE(B_n ∪ B_M) + distillation · the mean of (logits(B_M) − the teacher's)²."""
        old, old_slots = replay
        logits = self.logits(as_input(torch.cat([x, old])))
        loss = cross_entropy(logits, torch.cat([slots, old_slots]))
        if len(old):  # the mean over an empty memory is not defined
            with torch.no_grad():
                taught = self.head.among_open(self.predictor(as_input(old)))
            loss = loss + self.settings.distillation * mse_loss(logits[len(x) :], taught)
        self.descend(loss)


if __name__ == "__main__":
    from everlearn import run, stream

    learner = SlowTeacher(memory_size=200, iterations=5, seed=0)
    print(f"{learner.name}: {run(learner, stream('split-digits', seed=0)).accuracy:.1%}")
