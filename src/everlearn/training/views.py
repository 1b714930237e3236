"""Random augmentation of images, on the device and in tensor operations only: one number per image chooses it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn.functional import pad

from everlearn.messages import nearest
from everlearn.networks import as_input

__all__ = [
    "AUGMENTATIONS",
    "Change",
    "Colours",
    "CutOut",
    "Mixtures",
    "Turns",
    "Views",
    "image_size",
    "mirrored",
    "shifted",
]

# How far an image is shifted at most, in pixels, and whether it may be mirrored as well.
AUGMENTATIONS = {"shift": (2, False), "crop-flip": (4, True)}

LEVELS = 256  # how finely the share of a mixture is drawn, and each strength of a colour
SHARES = 1000  # how finely the share of turned images is


def image_size(what: str, shape: tuple[int, ...], width: int | None = None) -> tuple[int, int]:
    """The height and width of images of this shape: its last two sizes, or of flat ones as `width` says.

    >>> image_size("the augmentation 'shift'", (784,), width=28)
    (28, 28)
    """
    if width is not None and len(shape) == 1 and shape[0] % width == 0:
        return shape[0] // width, width
    if len(shape) == 3 and shape[2] <= 4 < min(shape[:2]):
        raise ValueError(
            f"{what} takes images [channels, height, width], and {list(shape)} looks like [height, width, channels]: "
            "transpose them with x.movedim(-1, 1)"
        )
    if width is None and len(shape) >= 2:
        return shape[-2], shape[-1]
    raise ValueError(
        f"{what} takes images [..., height, width] without the setting `width`, or flat ones with a `width` "
        f"that divides their size, not samples of shape {list(shape)} with width={width}"
    )


def mirrored(x: Tensor, width: int) -> Tensor:
    """Each image with its left and right exchanged.

    >>> mirrored(torch.arange(6).view(1, 6), width=3)
    tensor([[2, 1, 0, 5, 4, 3]])
    """
    return x.reshape(x.shape[0], -1, width).flip(2).view(x.shape)


def shifted(x: Tensor, height: int, width: int, pixels: int) -> list[Tensor]:
    """The images moved up, down, to the left and to the right by this many pixels; what comes in is black.

    >>> up, down, left, right = shifted(torch.tensor([[1, 2, 3, 4]]), height=2, width=2, pixels=1)
    >>> up, left
    (tensor([[3, 4, 0, 0]]), tensor([[2, 0, 4, 0]]))
    """
    planes = pad(x.reshape(len(x), -1, height, width), (pixels,) * 4)
    starts = [(2 * pixels, pixels), (0, pixels), (pixels, 2 * pixels), (pixels, 0)]
    return [planes[..., top : top + height, left : left + width].reshape(x.shape) for top, left in starts]


class Change(ABC):
    """A random change of every image of a batch."""

    @abstractmethod
    def count(self, images: int) -> int:
        """The number of possible changes in a batch of this size."""

    @abstractmethod
    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Change each image as its number says."""

    def nbytes(self) -> int:
        """Bytes held."""
        return 0


class Views(Change):
    """All views of an augmentation: the image is shifted, padded with 0, and may be mirrored.

    shape: of one image, the last two sizes being its height and width; or flat, `[pixels]`, with `width` given.

    >>> views = Views("shift", (2, 3))
    >>> views.count(1)
    25
    >>> views(torch.arange(1, 7).view(1, 2, 3), torch.tensor([12]))  # the middle one is the image itself
    tensor([[[1, 2, 3],
             [4, 5, 6]]])
    >>> views(torch.arange(1, 7).view(1, 2, 3), torch.tensor([13]))
    tensor([[[2, 3, 0],
             [5, 6, 0]]])
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], width: int | None = None, device: torch.device | None = None
    ) -> None:
        if name not in AUGMENTATIONS:
            raise ValueError(f"there is no augmentation {name!r}{nearest(name, AUGMENTATIONS)}")
        height, width = image_size(f"the augmentation {name!r}", shape, width)
        reach, both_ways = AUGMENTATIONS[name]
        self._pixels = height * width
        shifts = torch.arange(-reach, reach + 1)
        rows = torch.arange(height) + shifts[:, None]  # [shifts, height]
        columns = torch.arange(width) + shifts[:, None]  # [shifts, width]
        if both_ways:
            columns = torch.cat([columns, columns.flip(1)])
        inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((columns >= 0) & (columns < width))[
            None, :, None, :
        ]
        place = rows[:, None, :, None] * width + columns[None, :, None, :]
        # For each view, which pixel of the image comes where; the one after the last is black.
        table = torch.where(inside, place, self._pixels).flatten(0, 1).flatten(1)
        self._table = table.to(device, torch.int16 if self._pixels < 2**15 else torch.int32)

    def count(self, images: int) -> int:
        """As many as the table has, whatever the batch."""
        return len(self._table)

    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image in the view of its number."""
        planes = math.prod(x.shape[1:]) // self._pixels
        places = self._table[numbers].long()[:, None].expand(-1, planes, -1)  # [images, channels, pixels]
        seen = pad(x.reshape(len(x), planes, self._pixels), (0, 1)).gather(2, places)
        return seen.view(x.shape)


class Colours(Change):
    """Each image with its brightness, contrast and saturation multiplied by 1 ± up to `reach`.

    Contrast is about the image's mean, saturation about the mean over its channels, if it is
    `[channels, height, width]`.
    Nothing is cut off at black or white: it is not known where these are in samples that come scaled.

    >>> colours = Colours(0.5)
    >>> colours(torch.tensor([[0.2, 0.4]]), torch.tensor([0]))  # brightness and contrast by a half
    tensor([[0.1250, 0.1750]])
    """

    def __init__(self, reach: float) -> None:
        self._reach = reach

    def count(self, images: int) -> int:
        """Three strengths in one number."""
        return LEVELS**3

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image with the strengths of its number, the last digit being that of its brightness."""
        x = as_input(x)
        each = (-1, *[1] * (x.dim() - 1))
        digits = [(numbers // LEVELS**place % LEVELS).to(x.dtype).view(each) for place in range(3)]
        brightness, contrast, saturation = (
            1 + self._reach * (2 * digit / (LEVELS - 1) - 1) for digit in digits
        )
        if x.dim() == 4:
            x = torch.lerp(x.mean(1, keepdim=True).expand_as(x), x, saturation)
        mean = x.flatten(1).mean(1).view(each)
        return torch.lerp(mean.expand_as(x), x, contrast).mul_(brightness)


class CutOut(Change):
    """Each image with a black square of this side, centred at a random pixel; it may reach over the edge.

    >>> cut = CutOut(2, height=3, width=3)
    >>> cut(torch.arange(1, 10).view(1, 1, 3, 3), torch.tensor([4]))
    tensor([[[[0, 0, 3],
              [0, 0, 6],
              [7, 8, 9]]]])

    DeVries, T. and Taylor, G. W. Improved Regularization of Convolutional Neural Networks with Cutout. 2017.
    """

    def __init__(self, side: int, height: int, width: int) -> None:
        self._side, self._height, self._width = side, height, width

    def count(self, images: int) -> int:
        """A pixel for the centre."""
        return self._height * self._width

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image with a square whose centre is the pixel of its number."""
        rows = self._covered(numbers // self._width, self._height)
        columns = self._covered(numbers % self._width, self._width)
        covered = (rows[:, :, None] & columns[:, None, :])[:, None]  # [images, 1, height, width]
        planes = x.reshape(len(x), -1, self._height, self._width)
        return planes.masked_fill(covered, 0).view(x.shape)

    def _covered(self, centres: Tensor, size: int) -> Tensor:
        """Which of the rows, or columns, the square covers, `[images, size]`."""
        places = torch.arange(size, device=centres.device) - (centres - self._side // 2)[:, None]
        return (places >= 0) & (places < self._side)


class Mixtures(Change):
    """Each image with up to `reach` of another image of the batch in it.

    >>> mixtures = Mixtures(0.5)
    >>> mixtures(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([1 * 256 + 255, 1 * 256 + 255]))
    tensor([[0.5000, 0.5000],
            [1.0000, 1.0000]])
    """

    def __init__(self, reach: float) -> None:
        self._reach = reach

    def count(self, images: int) -> int:
        """In one number which other image is mixed in, and how much of it."""
        return images * LEVELS

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image with some of the one that its number names."""
        x = as_input(x)
        share = numbers % LEVELS * (self._reach / (LEVELS - 1))
        return torch.lerp(x, x[numbers // LEVELS], share.view(-1, *[1] * (x.dim() - 1)).to(x.dtype))


class Turns(Change):
    """A share of the images turned by one, two or three quarters of a circle, anticlockwise.

    >>> turns = Turns(0.5, height=2, width=2)
    >>> turns(torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4]]), torch.tensor([999, 0]))
    tensor([[1, 2, 3, 4],
            [2, 4, 1, 3]])
    """

    def __init__(self, share: float, height: int, width: int, device: torch.device | None = None) -> None:
        if height != width:
            raise ValueError(f"the setting `turned` takes square images, not {height} x {width} pixels")
        self._turned = round(share * SHARES)
        places = torch.arange(height * width).view(height, width)
        self._table = torch.stack([places.rot90(turns).flatten() for turns in range(4)]).to(device)

    def count(self, images: int) -> int:
        """In one number whether an image is turned, and how often."""
        return 3 * SHARES

    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def turns(self, numbers: Tensor) -> Tensor:
        """How often each image is turned, from 0 to 3."""
        return torch.where(numbers % SHARES < self._turned, 1 + numbers // SHARES, 0)

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image turned as often as its number says."""
        planes = x.reshape(len(x), -1, self._table.shape[1])
        places = self._table[self.turns(numbers)][:, None].expand_as(planes)
        return planes.gather(2, places).view(x.shape)
