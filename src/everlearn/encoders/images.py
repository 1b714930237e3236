"""Batches of images in the layouts that people have, as the tensors that image models take."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from everlearn.arrays import as_tensor

__all__ = ["as_array", "as_images", "prepared", "resized"]

PLAIN_MODES = ("L", "RGB", "I", "I;16", "F")  # images of PIL that have one or three channels


def prepared(x: Any, prepare: Callable[[Tensor], Tensor]) -> Tensor:
    """Images as a model takes them, in one tensor.

    x: as in `as_images`; in a list, images of PIL, and images of different sizes, too.
    prepare: a function of images of one size that gives them the size of the model.

    >>> prepared([np.zeros((8, 6)), np.ones((9, 9, 3))], lambda images: resized(images, 4)).shape
    torch.Size([2, 3, 4, 4])
    """
    if not isinstance(x, (list, tuple)):
        return prepare(as_images(x))
    images = [as_array(image) for image in x]
    if len({np.shape(image) for image in images}) == 1:
        return prepare(as_images(images))
    return torch.cat([prepare(as_images([image])) for image in images])


def as_array(image: Any) -> Any:
    """An image of PIL as an array, `[height, width]` or `[height, width, 3]`; anything else as it is."""
    if not type(image).__module__.startswith("PIL."):
        return image
    return np.asarray(image if image.mode in PLAIN_MODES else image.convert("RGB"))


def as_images(x: Any) -> Tensor:
    """Images as `[n, 3, height, width]` in float32, from 0 to 1.

    x: bytes from 0 to 255, or numbers from 0 to 1; `[n, channels, height, width]`, `[n, height, width, channels]`,
        `[n, height, width]` or flat squares `[n, pixels]`, with one or three channels.

    >>> as_images(torch.full((2, 8, 8), 255, dtype=torch.uint8)).shape
    torch.Size([2, 3, 8, 8])
    """
    images = as_tensor(x)
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
