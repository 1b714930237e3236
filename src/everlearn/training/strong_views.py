"""Views for contrastive learning: resized crops, mirror images, colours and grey, in tensor operations only."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from everlearn.networks import as_input
from everlearn.training.views import Change, image_size
from everlearn.training.warp import warped

__all__ = ["STRONG_VIEWS", "Recipe", "StrongViews", "inner_flips", "inner_rotations"]

LEVELS = 256  # how finely the area, the shape and the place of a crop are drawn
COLOURS = 64  # how finely each strength of a colour is drawn
LONGEST = 4 / 3  # the largest ratio of the sides of a crop
JITTER = (
    0.4,
    0.4,
    0.4,
    0.1,
)  # reach of brightness, contrast, saturation, and of hue as a share of the circle
LUMA = (0.299, 0.587, 0.114)  # the weights of red, green and blue in grey


class Recipe(NamedTuple):
    """What a view is made of.

    crop: the smallest area of a crop. flip: whether half of the images are mirrored.
    jitter: whether four of five images change their colours. grey: one of so many images becomes grey; 0 for none.
    """

    crop: float
    flip: bool
    jitter: bool
    grey: int


# By name, with the papers that use them.
STRONG_VIEWS = {
    "strong": Recipe(0.2, True, True, 5),  # SCR, PCR, CCL-DC, MKD
    "crop-flip-grey": Recipe(0.3, True, False, 4),  # OCM, OnPro
    "crop-grey": Recipe(0.3, False, False, 4),  # MOSE
    "large-crop-grey": Recipe(0.6, False, False, 5),  # GSA
    "large-crop-flip": Recipe(0.6, True, False, 0),  # CCL-DC, its first stage
}


class StrongViews(Change):
    """Random views by a recipe: each image is cropped and resized, then mirrored, coloured, or made grey.

    A crop has an area between the recipe's and 1, and a ratio of its sides between 3/4 and 4/3 with which it fits
    into the image; it is resized with bilinear interpolation. Colours change in the order brightness, contrast,
    saturation, hue, and only where an image has three channels. One number per image has all its random choices, as
    digits of different bases.

    shape: of one image, `[..., height, width]`; or flat, with `width` given.

    >>> views = StrongViews(Recipe(1.0, flip=True, jitter=False, grey=0), (2, 4))
    >>> image = torch.arange(8.0).view(1, 2, 4)
    >>> views(image, torch.tensor([0]))[0, 0]
    tensor([0., 1., 2., 3.])
    >>> views(image, torch.tensor([views.count(1) - 1]))[0, 0]  # the last digit says that it is mirrored
    tensor([3., 2., 1., 0.])
    """

    def __init__(self, recipe: Recipe | str, shape: tuple[int, ...], width: int | None = None) -> None:
        self._recipe = STRONG_VIEWS[recipe] if isinstance(recipe, str) else recipe
        name = f"the augmentation {recipe!r}" if isinstance(recipe, str) else "a view"
        self._size = image_size(name, shape, width)
        jitter = [5, COLOURS, COLOURS, COLOURS, COLOURS] if self._recipe.jitter else []
        self._bases = [*[LEVELS] * 4, *jitter, max(self._recipe.grey, 1), 2 if self._recipe.flip else 1]

    def count(self, images: int) -> int:
        """The product of the bases of all digits."""
        return math.prod(self._bases)

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image in the view of its number, as floats."""
        clipped = x.dtype == torch.uint8  # the range of other images is not known
        images = as_input(x).reshape(len(x), -1, *self._size)
        area, ratio, left, top, *colours, grey, flip = self._digits(numbers, images.dtype)
        images = self._crop(images, area, ratio, left, top, 1 - 2 * flip)
        if images.shape[1] == len(LUMA):
            if colours:
                images = _jitter(images, *colours, clipped=clipped)
            if self._recipe.grey:
                chosen = grey == self._recipe.grey - 1
                images = torch.where(_each(chosen), _grey(images), images)
        return images.reshape(x.shape)

    def _digits(self, numbers: Tensor, dtype: torch.dtype) -> list[Tensor]:
        digits = []
        for base in self._bases:
            digits.append((numbers % base).to(dtype))
            numbers = numbers // base
        return digits

    def _crop(
        self, images: Tensor, area: Tensor, ratio: Tensor, left: Tensor, top: Tensor, sign: Tensor
    ) -> Tensor:
        """A part of each image, resized to the whole; mirrored where the sign is negative."""
        area = self._recipe.crop + (1 - self._recipe.crop) * area / (LEVELS - 1)
        longest = (1 / area).log().clamp(max=math.log(LONGEST))  # with which the crop fits
        ratio = (longest * (2 * ratio / (LEVELS - 1) - 1)).exp()
        width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
        across = (1 - width) * (2 * left / (LEVELS - 1) - 1)
        down = (1 - height) * (2 * top / (LEVELS - 1) - 1)
        nothing = torch.zeros_like(area)
        return warped(images, [sign * width, nothing, across, nothing, height, down], outside="border")


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _grey(images: Tensor) -> Tensor:
    planes = zip(LUMA, images.unbind(1), strict=True)
    return sum((weight * plane for weight, plane in planes), torch.zeros_like(images[:, 0]))[
        :, None
    ].expand_as(images)


def _jitter(images: Tensor, applied: Tensor, *strengths: Tensor, clipped: bool) -> Tensor:
    """Brightness, contrast about the mean of grey, saturation about grey, then hue; four of five images."""
    brightness, contrast, saturation, hue = (
        _each(reach * (2 * strength / (COLOURS - 1) - 1))
        for reach, strength in zip(JITTER, strengths, strict=True)
    )

    def within(changed: Tensor) -> Tensor:
        return changed.clamp(0, 1) if clipped else changed

    changed = within(images * (1 + brightness))
    mean = _grey(changed).mean((1, 2, 3), keepdim=True)
    changed = within(mean + (changed - mean) * (1 + contrast))
    changed = within(torch.lerp(_grey(changed), changed, 1 + saturation))
    return torch.where(_each(applied > 0), _turn_hue(changed, hue), images)


def _turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """The hue of every pixel moved by a share of the circle; its largest and its smallest plane stay."""
    red, green, blue = images.unbind(1)
    largest, smallest = images.amax(1), images.amin(1)
    chroma = largest - smallest
    divisor = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        largest == red,
        (green - blue) / divisor,
        torch.where(largest == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    offsets = torch.arange(5, 0, -2, dtype=images.dtype, device=images.device)
    place = (offsets.view(1, 3, 1, 1) + hue[:, None] + 6 * turn) % 6
    share = torch.minimum(place, 4 - place).clamp(0, 1)
    return largest[:, None] - chroma[:, None] * share


def inner_flips(x: Tensor) -> Tensor:
    """The images, then all of them mirrored: `[2 · images, ...]`, for images of `[channels, height, width]`.

    >>> inner_flips(torch.arange(4).view(1, 1, 2, 2)).flatten(1)
    tensor([[0, 1, 2, 3],
            [1, 0, 3, 2]])
    """
    return torch.cat([x, x.flip(-1)])


def inner_rotations(x: Tensor) -> Tensor:
    """Each image with its left half, its right half, both or neither turned by 180°, in all rotations of the whole.

    `[16 · images, ...]` for square images `[channels, height, width]`; `[8 · images, ...]` for others, which have two
    rotations of the same shape.

    >>> inner_rotations(torch.zeros(2, 3, 4, 4)).shape
    torch.Size([32, 3, 4, 4])
    """
    left, right = x.tensor_split(2, dim=-1)
    turned_left, turned_right = left.flip(-1, -2), right.flip(-1, -2)
    halves = [(left, right), (turned_left, right), (turned_left, turned_right), (left, turned_right)]
    inner = torch.cat([torch.cat(both, dim=-1) for both in halves])
    turns = range(4) if x.shape[-1] == x.shape[-2] else range(0, 4, 2)
    return torch.cat([inner.rot90(turn, (-2, -1)) for turn in turns])
