"""Domain-incremental scenarios: every task has all classes, and its inputs look different."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from everlearn.streams.dataset_stream import Arrangement, Concept, Segment, Transform
from everlearn.streams.task_split import TaskSplit

__all__ = ["Permutation", "Rotation", "permuted", "rotated"]

ROTATED_DOMAINS = 5


def permuted(source: TaskSplit, amount: float) -> Arrangement:
    """`amount` domains: the first is unchanged, each other one has its own permutation of the inputs."""
    order = source.shuffled()
    inputs = source.x[0].numel()
    others = [Permutation(torch.randperm(inputs, generator=source.generator)) for _ in range(int(amount) - 1)]
    return _arrange(source, order, [None, *others])


def rotated(source: TaskSplit, amount: float) -> Arrangement:
    """Five domains: the first is unchanged, each next one is rotated by another `amount` degrees."""
    others = [Rotation(i * amount) for i in range(1, ROTATED_DOMAINS)]
    return _arrange(source, source.shuffled(), [None, *others])


def _arrange(source: TaskSplit, order: Tensor, transforms: Sequence[Transform | None]) -> Arrangement:
    """Divide the training samples among the domains; each domain has all test samples."""
    if len(transforms) > len(order):
        raise ValueError(
            f"{len(order)} samples can't make {len(transforms)} domains; choose a smaller amount"
        )
    parts = order.tensor_split(len(transforms))
    segments = tuple(Segment(parts[t], t, transform) for t, transform in enumerate(transforms))
    held_out = torch.cat(source.held_out)
    return Arrangement(segments, tuple(Concept(held_out, transform) for transform in transforms))


@dataclasses.dataclass(frozen=True, eq=False)
class Permutation:
    """Permutes the inputs of each sample.

    >>> Permutation(torch.tensor([2, 0, 1]))(torch.tensor([[10, 20, 30]]))
    tensor([[30, 10, 20]])
    """

    order: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Permute these samples."""
        return x.flatten(1)[:, self.order].reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Rotates images anticlockwise around their centre; pixels from outside the image are 0.

    Images are `[n, height, width]`, `[n, channels, height, width]`, or flat if they are square.

    >>> Rotation(90)(torch.tensor([[1, 2, 3, 4]], dtype=torch.uint8))  # 1 2 over 3 4
    tensor([[2, 4, 1, 3]], dtype=torch.uint8)
    """

    degrees: float

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate these images."""
        if self.degrees % 360 == 0 or len(x) == 0:
            return x
        height, width = x.shape[-2:] if x.ndim > 2 else _square(x.shape[1])
        # As channels of a single image, all of them are rotated with one grid.
        images = x.reshape(1, -1, height, width).float()
        sine, cosine = math.sin(math.radians(self.degrees)), math.cos(math.radians(self.degrees))
        # The axes of the grid span -1 to 1 whatever the sides of the image, so the ratio of the sides is undone.
        rotation = torch.tensor(
            [[[cosine, -sine * height / width, 0.0], [sine * width / height, cosine, 0.0]]]
        )
        grid = affine_grid(rotation, list(images.shape), align_corners=False)
        rotated_images = grid_sample(images, grid, align_corners=False)
        return (
            (rotated_images if x.is_floating_point() else rotated_images.round()).to(x.dtype).reshape(x.shape)
        )


def _square(inputs: int) -> tuple[int, int]:
    side = math.isqrt(inputs)
    if side * side != inputs:
        raise ValueError(f"samples of {inputs} inputs are not square images and can't be rotated")
    return side, side
