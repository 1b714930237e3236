"""Random changes of images, against changing one image at a time, step by step."""

import pytest
import torch

from everlearn.training.views import Colours, Views, mirrored


def shifted(image, down, right, mirror):
    """The view of one image `[channels, height, width]`, pixel by pixel."""
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
    seen = views(image.expand(162, -1, -1, -1), torch.arange(162))
    assert views.count(1) == len(expected) == 162
    assert torch.equal(seen, torch.stack(expected))


def test_a_large_image_has_views_as_well():
    x = torch.rand(1, 200, 200)
    assert torch.equal(Views("shift", (200, 200))(x, torch.tensor([13]))[:, :, :-1], x[:, :, 1:])


def test_flat_images_are_seen_as_the_images_they_are():
    x, which = torch.rand(25, 4, 5), torch.arange(25)
    flat = Views("shift", (20,), width=5)(x.view(25, 20), which)
    assert torch.equal(flat.view(25, 4, 5), Views("shift", (4, 5))(x, which))


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [
        ("shift", (20,), None),
        ("shift", (20,), 3),
        ("shift", (3, 8, 8), 8),
        ("crop-flop", (3, 8, 8), None),
    ],
)
def test_what_is_no_image_or_no_augmentation_is_refused(name, shape, width):
    with pytest.raises(ValueError, match="augmentation"):
        Views(name, shape, width)


def test_images_with_their_channels_last_are_refused_with_what_to_do():
    words = r"\[32, 32, 3\] looks like \[height, width, channels\]: transpose them with x.movedim\(-1, 1\)"
    with pytest.raises(ValueError, match=words):
        Views("crop-flip", (32, 32, 3))
    x = torch.zeros(2, 32, 32, 3).movedim(-1, 1)
    assert Views("crop-flip", tuple(x.shape[1:]))(x, torch.tensor([0, 1])).shape == x.shape
    assert Views("shift", (3, 3, 3)).count(1) == 25  # which may be anything


@pytest.mark.parametrize("shape", [(3, 4, 5), (4, 5), (20,)])
def test_colours_are_saturated_then_contrasted_then_brightened(shape):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (9, *shape), generator=g, dtype=torch.uint8)
    numbers = torch.randint(Colours(0.4).count(9), (9,), generator=g)
    seen = Colours(0.4)(x, numbers)
    for image, number, view in zip(x.double() / 255, numbers.tolist(), seen, strict=True):
        brightness, contrast, saturation = (0.6 + 0.8 * digit / 255 for digit in number.to_bytes(3, "little"))
        if len(shape) == 3:
            grey = image.mean(0)
            image = grey + saturation * (image - grey)
        image = image.mean() + contrast * (image - image.mean())
        torch.testing.assert_close(view.double(), brightness * image, rtol=1e-5, atol=1e-6)


def test_a_strength_of_nothing_changes_nothing():
    x = torch.rand(5, 3, 4, 4)
    torch.testing.assert_close(Colours(0.0)(x, torch.arange(5)), x)


def test_mirrored_images_are_read_from_right_to_left():
    x = torch.rand(2, 3, 4, 5)
    assert torch.equal(mirrored(x, 5), x[..., [4, 3, 2, 1, 0]])
    assert torch.equal(mirrored(x.flatten(1), 5), mirrored(x, 5).flatten(1))
