"""Experience replay from a reservoir, the simplest baseline that remembers, and a strong one."""

from __future__ import annotations

from everlearn.learners.replay import Rehearsal
from everlearn.memory.reservoir import ReservoirMemory

__all__ = ["Reservoir"]


class Reservoir(Rehearsal):
    """Experience replay: each batch is learnt jointly with as many exemplars from a reservoir.

    The reservoir is a uniform sample of the stream (Vitter's Algorithm R), and replay is uniform over it:
    a class that sends much is kept and replayed much.

    >>> import torch
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
    Memory = ReservoirMemory
