"""Random views of images, on the device and in tensors alone: one number per image says which view."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from everlearn.words import nearest

__all__ = ["AUGMENTATIONS", "Views"]

# How far an image is shifted at most, in pixels, and whether it may be mirrored as well.
AUGMENTATIONS = {"shift": (2, False), "crop-flip": (4, True)}


class Views:
    """All views of an image that an augmentation knows: it is shifted, with 0 where nothing was, and may be mirrored.

    shape: of one image, the last two sizes being its height and width; or flat, `[pixels]`, with `width` given.

    >>> views = Views("shift", (2, 3))
    >>> views.count
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
        if width is not None and len(shape) == 1 and shape[0] % width == 0:
            height = shape[0] // width
        elif width is None and len(shape) >= 2:
            height, width = shape[-2:]
        else:
            raise ValueError(
                f"the augmentation {name!r} takes images, or flat ones with the setting `width` that divides their "
                f"size, not samples of shape {list(shape)} with width={width}"
            )
        reach, mirrored = AUGMENTATIONS[name]
        self._pixels = height * width
        shifts = torch.arange(-reach, reach + 1)
        rows = torch.arange(height) + shifts[:, None]  # [shifts, height]
        columns = torch.arange(width) + shifts[:, None]  # [shifts, width]
        if mirrored:
            columns = torch.cat([columns, columns.flip(1)])
        inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((columns >= 0) & (columns < width))[
            None, :, None, :
        ]
        place = rows[:, None, :, None] * width + columns[None, :, None, :]
        # For each view, which pixel of the image comes where; the one after the last is black.
        table = torch.where(inside, place, self._pixels).flatten(0, 1).flatten(1)
        self._table = table.to(device, torch.int16 if self._pixels < 2**15 else torch.int64)
        self.count = len(self._table)

    def nbytes(self) -> int:
        """Bytes held."""
        return self._table.nbytes

    def __call__(self, x: Tensor, views: Tensor) -> Tensor:
        """Each image in the view of this number."""
        planes = math.prod(x.shape[1:]) // self._pixels
        places = self._table[views].long()[:, None].expand(-1, planes, -1)  # [images, planes, pixels]
        seen = pad(x.reshape(len(x), planes, self._pixels), (0, 1)).gather(2, places)
        return seen.view(x.shape)
