"""Batches of images in the layouts that people have, as the tensors that image models take."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

__all__ = ["as_images", "resized"]


def as_images(x: Any) -> Tensor:
    """Images as `[n, 3, height, width]` in float32, from 0 to 1.

    x: bytes from 0 to 255, or numbers from 0 to 1; `[n, channels, height, width]`, `[n, height, width, channels]`,
        `[n, height, width]` or flat squares `[n, pixels]`, with one or three channels.

    >>> as_images(torch.full((2, 8, 8), 255, dtype=torch.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """
    images = torch.as_tensor(x)
    side = math.isqrt(images.shape[1]) if images.ndim == 2 else 0
    if images.ndim == 2 and side**2 == images.shape[1]:
        images = images.view(-1, side, side)
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"it takes images, [n, 3, height, width] or [n, 1, height, width], not {list(images.shape)}"
        )
    if images.dtype == torch.uint8:
        images = images.float() / 255
    elif not images.is_floating_point():
        raise ValueError(f"it takes images as bytes, or as numbers from 0 to 1, not as {images.dtype}")
    elif not (float(images.min()) >= -1e-3 and float(images.max()) <= 1 + 1e-3):
        raise ValueError(
            "it takes images as numbers from 0 to 1, but these have others: give bytes, or x / 255"
        )
    return images.float().expand(-1, 3, -1, -1)


def resized(images: Tensor, size: int, mode: str = "bilinear") -> Tensor:
    """Images enlarged or reduced to a square. mode: `bilinear`, or `bicubic`, which is sharper."""
    if images.shape[2:] == (size, size):
        return images
    reduced = min(images.shape[2:]) > size
    scaled = interpolate(images, (size, size), mode=mode, align_corners=False, antialias=reduced)
    return scaled.clamp(0, 1)  # bicubic interpolation overshoots at edges
