"""How many samples pass the network at once where there are many."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["chunk_size"]

CHUNK = 1000  # samples per forward pass, which bounds the memory that a prediction needs
PIXELS = 100_000  # of all images of a forward pass on a CPU
FEWEST = 4


def chunk_size(learner: Learner) -> int:
    """Samples per forward pass.

    On a CPU, so few images that what a convolution computes of them stays in the cache: with 97 images of CIFAR at a
    time, each takes half as long as with 1,000.
    """
    shape = learner.sample_shape or ()
    if len(shape) < 3 or learner.device.type != "cpu":
        return CHUNK
    return min(max(PIXELS // math.prod(shape[-2:]), FEWEST), CHUNK)
