"""RandAugment: random changes of geometry and colour in a row, the same for all images of a batch. Tensors only.

Cubuk, E. D. et al. RandAugment: Practical Automated Data Augmentation with a Reduced Search Space. NeurIPS 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from everlearn.training.warp import warped

__all__ = ["OPERATIONS", "rand_augment"]

LEVELS = 30  # a strength is a share of this
OPERATIONS = (
    "identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate", "brightness", "colour", "contrast",
    "sharpness", "posterise", "solarise", "auto-contrast", "equalise",
)  # fmt: skip


def rand_augment(images: Tensor, operations: Tensor, signs: Tensor, strength: int) -> Tensor:
    """The images after each of these operations, one after the other.

    images: `[images, channels, height, width]`, with values from 0 to 1; if there are others, black and white are the
    smallest and the largest value of all. operations: indices in `OPERATIONS`, `[n]`. signs: 0 or 1, for those that
    go both ways, `[n]`. strength: from 0 to 30.

    >>> image = torch.tensor([[[[0.0, 0.5], [0.25, 1.0]]]])
    >>> rand_augment(image, torch.tensor([OPERATIONS.index("solarise")]), torch.tensor([0]), strength=15)
    tensor([[[[0.0000, 0.5000],
              [0.2500, 0.0000]]]])
    """
    share = strength / LEVELS
    black, white = images.amin().clamp(max=0), images.amax().clamp(min=1)
    images = (images - black) / (white - black)
    for operation, sign in zip(operations.unbind(), (1 - 2 * signs).unbind(), strict=True):
        images = _coloured(_moved(images, operation, sign, share), operation, sign, share)
    return images * (white - black) + black


def _is(operation: Tensor, name: str) -> Tensor:
    return operation == OPERATIONS.index(name)


def _moved(images: Tensor, operation: Tensor, sign: Tensor, share: float) -> Tensor:
    """Sheared from the first row or column on, shifted or turned, by the nearest pixel; black comes in."""
    one = sign.to(images.dtype)
    nothing, angle = torch.zeros_like(one), one * math.radians(30 * share)
    height, width = images.shape[-2:]

    def where(name: str, value: Tensor, otherwise: Tensor) -> Tensor:
        return torch.where(_is(operation, name), value, otherwise)

    straight = where("rotate", angle.cos(), torch.ones_like(one))
    # In pixels a shear is the same both ways; in the units of the grid the sides of the image come in.
    across = where("shear-x", -one * 0.3 * share * height / width, nothing)
    down = where("shear-y", -one * 0.3 * share * width / height, nothing)
    steps = [float(int(150 / 331 * size * share)) * 2 / size for size in (width, height)]
    right = where("translate-x", -one * steps[0], across)
    low = where("translate-y", -one * steps[1], down)
    across = where("rotate", -angle.sin() * height / width, across)
    down = where("rotate", angle.sin() * width / height, down)
    moved = warped(images, [straight, across, right, down, straight, low], mode="nearest")
    first, last = OPERATIONS.index("shear-x"), OPERATIONS.index("rotate")
    return torch.where((operation >= first) & (operation <= last), moved, images)


def _coloured(images: Tensor, operation: Tensor, sign: Tensor, share: float) -> Tensor:
    """Every change of colours, of which the operation chooses one, or none."""
    factor = 1 + 0.9 * share * sign.to(images.dtype)
    grey = _grey(images)
    kept = {
        "brightness": images * factor,
        "colour": torch.lerp(grey.expand_as(images), images, factor),
        "contrast": torch.lerp(grey.mean((1, 2, 3), keepdim=True).expand_as(images), images, factor),
        "sharpness": torch.lerp(_blurred(images), images, factor),
        "posterise": _posterised(images, 8 - round(4 * share)),
        "solarise": torch.where(images >= 1 - share, 1 - images, images) if share else images,
        "auto-contrast": _stretched(images),
        "equalise": _equalised(images),
    }
    for name, changed in kept.items():
        images = torch.where(_is(operation, name), changed.clamp(0, 1), images)
    return images


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue)[:, None]


def _blurred(images: Tensor) -> Tensor:
    """Each inner pixel as the mean of its neighbours, in which it counts five times; the border stays."""
    height, width = images.shape[-2:]
    if min(height, width) < 3:
        return images
    # Not by a convolution: a GPU may round its factors to fewer bits.
    total = 4 * images[..., 1:-1, 1:-1]
    for down in range(3):
        for right in range(3):
            total = total + images[..., down : height - 2 + down, right : width - 2 + right]
    inner = total / 13
    inside = pad(torch.ones_like(inner), (1, 1, 1, 1))
    return torch.where(inside > 0, pad(inner, (1, 1, 1, 1)), images)


def _posterised(images: Tensor, bits: int) -> Tensor:
    """Only the highest bits of each value."""
    step = 1 << (8 - bits)
    return (images * 255).round().div(step).floor().mul(step / 255)


def _stretched(images: Tensor) -> Tensor:
    """Each plane from 0 to 1."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    return torch.where(high > low, (images - low) / (high - low).clamp(min=1e-12), images)


def _equalised(images: Tensor) -> Tensor:
    """The values of each plane in equal shares, by the histogram of its bytes."""
    values = (images * 255).round().long().clamp(0, 255).flatten(2)  # [images, channels, pixels]
    counts = values.new_zeros(*values.shape[:2], 256).scatter_add(2, values, torch.ones_like(values))
    last = (counts > 0).long().cumsum(2).argmax(2, keepdim=True)  # the largest value there is
    step = (counts.sum(2, keepdim=True) - counts.gather(2, last)) // 255
    table = (counts.cumsum(2) - counts + step // 2) // step.clamp(min=1)
    found = table.clamp(0, 255).gather(2, values)
    return torch.where(step > 0, found, values).view(images.shape).to(images.dtype) / 255
