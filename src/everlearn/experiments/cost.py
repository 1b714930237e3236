"""What a method costs while it learns: how many images pass a network for each new image."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from everlearn.learners import find

__all__ = ["images_per_new_image"]

CLASSES, TASKS, BATCHES = 20, 2, 12
NETWORK = "cnn"


def images_per_new_image(learner: str, settings: Mapping[str, Any], batch_size: int = 10) -> float:
    """The images that enter a network while a batch is learnt, divided by the size of the batch.

    Teachers and peers count, with or without a gradient; predictions do not. Counted on the last batch of a second
    task, when the memory has many exemplars, on random images of 8 x 8 with a small network: the number depends
    neither on the size of an image nor on the network.

    settings: those of the learner; others are left out.

    >>> images_per_new_image("reservoir", {"replayed": 20, "iterations": 2})
    6.0
    """
    kind = find(learner)
    fields = kind.Settings.__dataclass_fields__
    chosen = dict(settings) | {"outputs": CLASSES, "memory_size": 200, "precision": "full"}
    chosen = {key: value for key, value in chosen.items() if key in fields}
    model: Any = kind(NETWORK, device="cpu", **chosen)
    generator = torch.Generator().manual_seed(0)
    counted = 0

    def count(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal counted
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:  # the first layer
            counted += len(inputs[0])

    hook = register_module_forward_pre_hook(count)
    try:
        for i in range(TASKS * BATCHES):
            t = i // BATCHES
            first, last = t * CLASSES // TASKS, (t + 1) * CLASSES // TASKS
            y = torch.randint(first, last, (batch_size,), generator=generator)
            x = torch.randint(0, 256, (batch_size, 3, 8, 8), dtype=torch.uint8, generator=generator)
            counted = 0
            model.observe(x, y.tolist(), t if "t" in model.needs else None)
    finally:
        hook.remove()
    return counted / batch_size
