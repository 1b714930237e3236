"""Affine views against their definition, one pixel at a time."""

import math

import pytest
import torch

from everlearn import CoPE
from everlearn.training.affine_views import AffineViews

STILL = sum(31 * 64**place for place in range(5))  # nearly nothing changes: 31.5 would be the middle


def at(image, row, column):
    """Bilinear interpolation at a place; black outside."""
    height, width = image.shape
    top, left = math.floor(row), math.floor(column)
    total = 0.0
    for y, down in ((top, 1 - (row - top)), (top + 1, row - top)):
        for x, across in ((left, 1 - (column - left)), (left + 1, column - left)):
            if 0 <= y < height and 0 <= x < width:
                total += down * across * image[y, x].item()
    return total


@pytest.mark.parametrize("number", [0, STILL, 123456789, 987654321, 64**5 - 1])
def test_every_pixel_comes_from_where_the_definition_says(number):
    image = torch.rand(6, 9, generator=torch.Generator().manual_seed(0))
    seen = AffineViews((6, 9))(image[None], torch.tensor([number]))[0]
    angle, scale, shear, across, down = (2 * (number // 64**i % 64) / 63 - 1 for i in range(5))
    angle, size, shear = math.radians(15) * angle, 1 + 0.15 * scale, 0.15 * shear
    for row in range(6):
        for column in range(9):
            x, y = column + 0.5 - 4.5, row + 0.5 - 3.0  # from the centre, in pixels
            x, y = (x + shear * y) / size, y / size
            x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
            place = y + 2 * down + 3.0 - 0.5, x + 2 * across + 4.5 - 0.5
            assert seen[row, column].item() == pytest.approx(at(image, *place), abs=1e-4)


def test_flat_bytes_are_seen_as_the_same_images():
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    numbers = torch.randint(64**5, (5,))
    flat = AffineViews((64,), width=8)(images.flatten(1), numbers)
    assert torch.equal(flat.view(5, 1, 8, 8), AffineViews((1, 8, 8))(images, numbers))
    assert flat.dtype == torch.float32 and flat.min() >= 0 and flat.max() <= 1


def test_a_learner_is_augmented_and_tokens_are_refused():
    learner = CoPE("mlp", augmentation="affine", memory_size=4, device="cpu")
    x = torch.randint(0, 256, (4, 1, 8, 8), dtype=torch.uint8)
    learner.observe(x, [0, 1, 0, 1])
    assert learner.predict(x[:1])[0] in (0, 1)
    other = CoPE(torch.nn.Flatten(), augmentation="affine", memory_size=4, device="cpu")
    with pytest.raises(
        ValueError, match=r"affine takes bytes or floating numbers, not samples of torch\.int64"
    ):
        other.observe(x.long(), [0, 1, 0, 1])
