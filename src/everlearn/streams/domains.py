"""Scenarios in which every task has all classes and is a domain: the same things look different."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from everlearn.streams.dataset_stream import Arrangement, Concept, Look, Stretch
from everlearn.streams.task_split import Source

__all__ = ["Permutation", "Rotation", "permuted", "rotated"]

ROTATED_DOMAINS = 5


def permuted(source: Source, amount: float) -> Arrangement:
    """`amount` domains: the first as it is, each other one with a permutation of the inputs of its own."""
    order = source.shuffled()
    inputs = source.x[0].numel()
    others = [Permutation(torch.randperm(inputs, generator=source.generator)) for _ in range(int(amount) - 1)]
    return _domain_after_domain(source, order, [None, *others])


def rotated(source: Source, amount: float) -> Arrangement:
    """Five domains: the first as it is, each other one turned `amount` degrees further."""
    others = [Rotation(i * amount) for i in range(1, ROTATED_DOMAINS)]
    return _domain_after_domain(source, source.shuffled(), [None, *others])


def _domain_after_domain(source: Source, order: Tensor, looks: Sequence[Look | None]) -> Arrangement:
    """The samples are dealt out among the domains, so each is sent once; each domain has all test samples."""
    if len(looks) > len(order):
        raise ValueError(f"{len(order)} samples can't make {len(looks)} domains; choose a smaller amount")
    parts = order.tensor_split(len(looks))
    stretches = tuple(Stretch(parts[t], t, look) for t, look in enumerate(looks))
    everything = torch.cat(source.held_out)
    return Arrangement(stretches, tuple(Concept(everything, look) for look in looks))


@dataclasses.dataclass(frozen=True, eq=False)
class Permutation:
    """Samples with their inputs rearranged.

    >>> Permutation(torch.tensor([2, 0, 1]))(torch.tensor([[10, 20, 30]]))
    tensor([[30, 10, 20]])
    """

    places: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """These samples, rearranged."""
        return x.flatten(1)[:, self.places].reshape(x.shape)


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Pictures turned anticlockwise about their middle; what turns in from outside is 0.

    Pictures are `[n, height, width]`, `[n, channels, height, width]`, or flat if they are square.

    >>> Rotation(90)(torch.tensor([[1, 2, 3, 4]], dtype=torch.uint8))  # 1 2 over 3 4
    tensor([[2, 4, 1, 3]], dtype=torch.uint8)
    """

    degrees: float

    def __call__(self, x: Tensor) -> Tensor:
        """These pictures, turned."""
        if self.degrees % 360 == 0 or len(x) == 0:
            return x
        height, width = x.shape[-2:] if x.ndim > 2 else _square(x.shape[1])
        # All turn alike, so they are the channels of one picture: one grid serves them all.
        pictures = x.reshape(1, -1, height, width).float()
        sine, cosine = math.sin(math.radians(self.degrees)), math.cos(math.radians(self.degrees))
        # The grid's axes span -1 to 1 whatever the sides, so a turn must undo their ratio.
        turn = torch.tensor([[[cosine, -sine * height / width, 0.0], [sine * width / height, cosine, 0.0]]])
        grid = affine_grid(turn, list(pictures.shape), align_corners=False)
        turned = grid_sample(pictures, grid, align_corners=False)
        return (turned if x.is_floating_point() else turned.round()).to(x.dtype).reshape(x.shape)


def _square(inputs: int) -> tuple[int, int]:
    side = math.isqrt(inputs)
    if side * side != inputs:
        raise ValueError(f"samples of {inputs} inputs are no square pictures, so they can't be turned")
    return side, side
