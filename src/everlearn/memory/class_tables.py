"""Random exemplars of every class, drawn on the host for a device that chooses among classes later."""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory

__all__ = ["draw_of_every_class"]


def draw_of_every_class(
    memory: ReplayMemory, classes: int, count: int, generator: torch.Generator
) -> tuple[Integers, Integers]:
    """Rows and slots of `count` random exemplars of each class, with replacement: two tables `[classes, count]`.

    A class without exemplars, or that does not exist yet, gets random ones of any class. The memory is not empty.
    """
    rows, slots = memory.kept()
    order = np.argsort(slots, kind="stable")
    counts = np.bincount(slots, minlength=classes)[:classes]
    starts = np.cumsum(counts) - counts
    sizes = np.where(counts > 0, counts, len(rows))
    starts = np.where(counts > 0, starts, 0)
    random = torch.randint(2**62, (classes, count), generator=generator).numpy()
    chosen = order[starts[:, None] + random % sizes[:, None]]
    return rows[chosen], slots[chosen]
