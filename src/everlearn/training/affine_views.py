"""Affine views of images: turned, scaled, sheared and shifted, in tensor operations only."""

from __future__ import annotations

import math

from torch import Tensor

from everlearn.networks import as_input
from everlearn.training.views import Change, image_size
from everlearn.training.warp import warped

__all__ = ["AffineViews"]

LEVELS = 64  # how finely each of the five strengths is drawn
ANGLE = math.radians(15)
SCALE = 0.15  # as a share of the size
SHEAR = 0.15  # shift of the columns per row
SHIFT = 2.0  # pixels


class AffineViews(Change):
    """Each image turned by up to 15°, scaled by 1 ± 0.15, sheared by up to 0.15, and shifted by up to 2 pixels.

    Turned about its centre, with bilinear interpolation; what comes from outside is black. It suits digits and
    letters, which a mirror image would make others. One number per image has all its random choices, as five digits.

    shape: of one image, `[..., height, width]`; or flat, with `width` given.

    >>> views = AffineViews((28, 28))
    >>> views.count(1) == 64**5
    True
    """

    def __init__(self, shape: tuple[int, ...], width: int | None = None) -> None:
        self._size = image_size("the augmentation 'affine'", shape, width)

    def count(self, images: int) -> int:
        """Five digits."""
        return LEVELS**5

    def __call__(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Each image in the view of its number, as floats."""
        images = as_input(x).reshape(len(x), -1, *self._size)
        height, width = self._size
        digits = [(numbers // LEVELS**place % LEVELS).to(images.dtype) for place in range(5)]
        angle, scale, shear, across, down = (2 * digit / (LEVELS - 1) - 1 for digit in digits)
        cosine, sine = (ANGLE * angle).cos(), (ANGLE * angle).sin()
        size = 1 + SCALE * scale
        # Where in the image each pixel of the view comes from, in units in which the image reaches from -1 to 1.
        place = [
            *(cosine / size, (SHEAR * shear * cosine - sine) / size * (height / width)),
            *(2 * SHIFT / width * across, sine / size * (width / height)),
            *((SHEAR * shear * sine + cosine) / size, 2 * SHIFT / height * down),
        ]
        return warped(images, place).reshape(x.shape)
