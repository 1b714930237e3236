"""How many images each method passes through its network for one new image, in a protocol.

    python benchmarks/images_per_new_image.py P1 [LEARNERS]

Counted on random images of 8 x 8 with the slim ResNet18: the number depends neither on the size nor on the content of
an image, nor on the network. Every image that enters a network of the learner in training counts, with or without a
gradient, also in a teacher or a peer; predictions do not.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from everlearn.experiments.protocol import protocol
from everlearn.learners import find

CLASSES, TASKS, BATCHES = 20, 2, 12


def images_per_new_image(learner: str, name: str) -> float:
    """Of the last batches of a second task, when the memory has many exemplars."""
    used = protocol(name)
    stream = next(iter(used.memory_sizes))
    settings = used.settings(learner, stream) | {
        "network": "slim-resnet18",
        "outputs": CLASSES,
        "memory_size": 200,
    }
    fields = find(learner).Settings.__dataclass_fields__
    settings = {key: value for key, value in settings.items() if key in fields}
    model: Any = find(learner)("slim-resnet18", device="cpu", **settings)
    generator = torch.Generator().manual_seed(0)
    counted = 0

    def count(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal counted
        if isinstance(module, nn.Conv2d) and module.in_channels == 3:  # the first layer
            counted += len(inputs[0])

    hook = register_module_forward_pre_hook(count)
    for i in range(TASKS * BATCHES):
        t = i // BATCHES
        y = torch.randint(
            t * CLASSES // TASKS, (t + 1) * CLASSES // TASKS, (used.batch_size,), generator=generator
        )
        x = torch.randint(0, 256, (used.batch_size, 3, 8, 8), dtype=torch.uint8, generator=generator)
        counted = 0
        model.observe(x, y.tolist(), t if "t" in model.needs else None)
    hook.remove()
    return counted / used.batch_size


def main() -> None:
    """Print a table."""
    name = sys.argv[1] if len(sys.argv) > 1 else "P1"
    print(f"images per new image in {name}, counted on the last batch of {TASKS} tasks of {BATCHES} batches")
    for learner in sys.argv[2:] or protocol(name).learners:
        print(f"{learner:10s} {images_per_new_image(learner, name):7.1f}", flush=True)


if __name__ == "__main__":
    main()
