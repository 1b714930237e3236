"""Random views of images, against shifting and mirroring one image at a time."""

import pytest
import torch

from everlearn.augmentation import Views


def shifted(image, down, right, mirror):
    """The view of one image `[planes, height, width]`, pixel by pixel."""
    _, height, width = image.shape
    view = torch.zeros_like(image)
    for row in range(height):
        for column in range(width):
            source = (width - 1 - column) if mirror else column
            if 0 <= row + down < height and 0 <= source + right < width:
                view[:, row, column] = image[:, row + down, source + right]
    return view


def test_every_view_is_a_shift_with_black_edges_and_half_of_them_are_mirrored():
    views = Views("crop-flip", (3, 6, 7))
    image = torch.randint(1, 256, (3, 6, 7), dtype=torch.uint8)
    expected = [
        shifted(image, down, right, mirror)
        for down in range(-4, 5)
        for mirror in (False, True)
        for right in range(-4, 5)
    ]
    seen = views(image.expand(views.count, -1, -1, -1), torch.arange(views.count))
    assert views.count == len(expected) == 162
    assert torch.equal(seen, torch.stack(expected))


def test_flat_images_are_seen_as_the_images_they_are():
    x, which = torch.rand(25, 4, 5), torch.arange(25)
    flat = Views("shift", (20,), width=5)(x.view(25, 20), which)
    assert torch.equal(flat.view(25, 4, 5), Views("shift", (4, 5))(x, which))


@pytest.mark.parametrize(
    ("name", "shape", "width"), [("shift", (20,), None), ("shift", (20,), 3), ("crop-flop", (3, 8, 8), None)]
)
def test_what_is_no_image_or_no_augmentation_is_refused(name, shape, width):
    with pytest.raises(ValueError, match="augmentation"):
        Views(name, shape, width)
