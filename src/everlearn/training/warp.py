"""Affine maps of images, in elementwise operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

__all__ = ["warped"]


def warped(images: Tensor, rows: Sequence[Tensor], mode: str = "bilinear", outside: str = "zeros") -> Tensor:
    """Each image, with its pixels taken from where an affine map says.

    The pixel at (x, y) comes from (a x + b y + c, d x + e y + f), in units in which the image reaches from -1 to 1.
    There is no matrix product: it may round differently in a CUDA graph, and the nearest pixel would be another one.

    images: `[images, channels, height, width]`. rows: a, b, c, d, e and f, `[images]` or `[1]` each.
    mode, outside: of interpolation, and of what lies outside, as in `torch.nn.functional.grid_sample`.

    >>> nothing, one = torch.zeros(1), torch.ones(1)
    >>> warped(torch.tensor([[[[1.0, 2.0]]]]), [-one, nothing, nothing, nothing, one, nothing])
    tensor([[[[2., 1.]]]])
    """
    x, y = (_centres(size, images) for size in reversed(images.shape[-2:]))
    a, b, c, d, e, f = (row.view(-1, 1, 1) for row in rows)
    down = y[:, None]
    grid = torch.stack([a * x + b * down + c, d * x + e * down + f], dim=-1)
    grid = grid.expand(len(images), -1, -1, -1)
    return grid_sample(images, grid, mode=mode, padding_mode=outside, align_corners=False)


def _centres(size: int, images: Tensor) -> Tensor:
    """The centres of this many pixels between -1 and 1."""
    return (2 * torch.arange(size, dtype=images.dtype, device=images.device) + 1) / size - 1
