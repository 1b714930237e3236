"""Strong views against torchvision-like definitions, written out for one image at a time."""

import colorsys
import math

import pytest
import torch

from everlearn.core.images import SeveralViews
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.training.strong_views import Recipe, StrongViews, inner_flips, inner_rotations

CROP = Recipe(0.25, flip=False, jitter=False, grey=0)


def digits(number, bases):
    for base in bases:
        yield number % base
        number //= base


def sampled(image, row, column):
    """Bilinear interpolation at a place; outside, the nearest pixel."""
    height, width = image.shape
    row, column = min(max(row, 0), height - 1), min(max(column, 0), width - 1)
    top, left = math.floor(row), math.floor(column)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = row - top, column - left
    upper = image[top, left] * (1 - across) + image[top, right] * across
    lower = image[bottom, left] * (1 - across) + image[bottom, right] * across
    return upper * (1 - down) + lower * down


@pytest.mark.parametrize("number", [0, 123456789, 987654321, 256**4 - 1])
def test_a_crop_is_resized_pixel_by_pixel(number):
    torch.manual_seed(0)
    image = torch.rand(6, 8)
    seen = StrongViews(CROP, (6, 8))(image[None], torch.tensor([number]))[0]
    area, ratio, left, top = (digit / 255 for digit in digits(number, [256] * 4))
    area = 0.25 + 0.75 * area
    longest = min(4 / 3, 1 / area)
    ratio = math.exp(math.log(longest) * (2 * ratio - 1))
    width, height = math.sqrt(area * ratio) * 8, math.sqrt(area / ratio) * 6  # in pixels
    first_column, first_row = left * (8 - width), top * (6 - height)
    for row in range(6):
        for column in range(8):
            place = (
                first_row + (row + 0.5) * height / 6 - 0.5,
                first_column + (column + 0.5) * width / 8 - 0.5,
            )
            assert seen[row, column].item() == pytest.approx(sampled(image, *place).item(), abs=1e-5)


def test_the_sides_of_a_crop_fit_into_the_image_whatever_is_drawn():
    views = StrongViews(CROP, (1, 4, 4))
    numbers = torch.randint(views.count(1), (500,), generator=torch.Generator().manual_seed(0))
    gradient = torch.linspace(0, 1, 4).expand(500, 1, 4, 4)
    seen = views(gradient, numbers)
    assert seen.min() >= 0 and seen.max() <= 1
    spread = (seen[..., -1] - seen[..., 0])[:, 0, 0]
    assert spread.min() > 0.2 and spread.max() <= 1  # never mirrored, never empty


def test_half_of_the_images_are_mirrored():
    views = StrongViews(Recipe(1.0, flip=True, jitter=False, grey=0), (1, 4, 4))
    image = torch.arange(16.0).view(1, 1, 4, 4)
    numbers = torch.randint(views.count(1), (400,), generator=torch.Generator().manual_seed(0))
    seen = views(image.expand(400, -1, -1, -1), numbers)
    flipped = torch.tensor([torch.allclose(one, image[0].flip(-1), atol=1e-4) for one in seen])
    same = torch.tensor([torch.allclose(one, image[0], atol=1e-4) for one in seen])
    assert (flipped | same).all()
    assert 150 < flipped.sum() < 250


def test_one_of_five_images_is_grey_and_the_others_keep_their_colours():
    views = StrongViews(Recipe(1.0, flip=False, jitter=False, grey=5), (3, 4, 4))
    image = torch.rand(3, 4, 4, generator=torch.Generator().manual_seed(0))
    numbers = torch.randint(views.count(1), (500,), generator=torch.Generator().manual_seed(1))
    seen = views(image.expand(500, -1, -1, -1), numbers)
    grey = 0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]
    is_grey = (seen - grey).abs().amax((1, 2, 3)) < 1e-4
    is_same = (seen - image).abs().amax((1, 2, 3)) < 1e-4
    assert (is_grey ^ is_same).all()
    assert 60 < is_grey.sum() < 140


@pytest.mark.parametrize("seed", range(3))
def test_colours_change_in_order_brightness_contrast_saturation_hue(seed):
    views = StrongViews(Recipe(1.0, flip=False, jitter=True, grey=0), (3, 3, 3))
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(0, 256, (1, 3, 3, 3), dtype=torch.uint8, generator=generator)
    number = torch.randint(views.count(1), (1,), generator=generator)
    *_, applied, brightness, contrast, saturation, hue, _, _ = digits(number.item(), views._bases)
    brightness, contrast, saturation = (
        1 + 0.4 * (2 * digit / 63 - 1) for digit in (brightness, contrast, saturation)
    )
    turn = 0.1 * (2 * hue / 63 - 1)
    pixels = (image[0] / 255).permute(1, 2, 0).reshape(9, 3).tolist()
    if applied:
        cut = lambda value: min(max(value, 0.0), 1.0)  # noqa: E731
        luma = lambda pixel: 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]  # noqa: E731
        pixels = [[cut(value * brightness) for value in pixel] for pixel in pixels]
        mean = sum(map(luma, pixels)) / 9
        pixels = [[cut(mean + (value - mean) * contrast) for value in pixel] for pixel in pixels]
        pixels = [[cut(luma(p) + (value - luma(p)) * saturation) for value in p] for p in pixels]
        turned = []
        for pixel in pixels:
            h, s, v = colorsys.rgb_to_hsv(*pixel)
            turned.append(colorsys.hsv_to_rgb((h + turn) % 1, s, v))
        pixels = turned
    seen = views(image, number)[0].permute(1, 2, 0).reshape(9, 3)
    torch.testing.assert_close(seen, torch.tensor(pixels), rtol=1e-3, atol=1e-4)


def test_flat_grey_images_are_seen_with_their_width():
    views = StrongViews("strong", (64,), width=8)
    x = torch.randint(0, 256, (5, 64), dtype=torch.uint8)
    assert views(x, torch.tensor([1, 2, 3, 4, 5])).shape == (5, 64)


def test_inner_rotations_are_sixteen_versions_all_different():
    image = torch.arange(2 * 16.0).view(2, 1, 4, 4)
    versions = inner_rotations(image).view(16, 2, 1, 4, 4)
    assert torch.equal(versions[0], image)
    assert len({tuple(version[0].flatten().tolist()) for version in versions}) == 16
    left, right = image[0, 0, :, :2], image[0, 0, :, 2:]
    assert torch.equal(versions[1, 0, 0], torch.cat([left.flip(0, 1), right], 1))
    assert torch.equal(versions[4, 0, 0], image[0, 0].rot90())
    assert inner_rotations(torch.zeros(2, 1, 4, 6)).shape == (16, 1, 4, 6)


def test_inner_flips_are_the_image_and_its_mirror_image():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    assert torch.equal(inner_flips(image), torch.cat([image, image.flip(-1)]))


def test_copies_come_version_by_version_then_a_view_of_each_then_more_views():
    settings = SoftmaxReplaySettings(augmentation="crop-grey")
    x = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    new, old = x[:2], x[2:]
    images = SeveralViews(settings, x, torch.device("cpu"), views=3, versions=inner_flips)
    (numbers,) = images.draw(torch.Generator().manual_seed(0), 1, 5)
    assert numbers.shape == (1, (2 + 2) * 5)
    got_new, got_old = images.change(new, old, [torch.from_numpy(numbers[0])], torch.Generator())
    assert got_new.shape == (2 + 2 + 2, 2, 3, 4, 4) and got_old.shape == (6, 3, 3, 4, 4)
    assert torch.equal(got_old[0], old / 255) and torch.equal(got_old[1], old.flip(-1) / 255)
    views = StrongViews("crop-grey", (3, 4, 4))
    per_copy = torch.from_numpy(numbers[0]).view(4, 5)
    torch.testing.assert_close(got_old[3], views(x.flip(-1), per_copy[1])[2:])
    torch.testing.assert_close(got_new[5], views(x, per_copy[3])[:2])


def test_a_view_of_a_row_is_the_row():
    x = torch.randn(5, 4)
    images = SeveralViews(SoftmaxReplaySettings(), x, torch.device("cpu"), views=2, versions=inner_rotations)
    assert images.versions == 1 and images.draw(torch.Generator(), 1, 5) == ()
    got, _ = images.change(x[:2], x[2:], [], torch.Generator())
    assert torch.equal(got, x[:2].expand(3, -1, -1))
