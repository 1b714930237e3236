"""RandAugment's operations, pixel by pixel."""

import math

import pytest
import torch

from everlearn.training.rand_augment import OPERATIONS, rand_augment

IMAGES = torch.randint(0, 256, (2, 3, 8, 10), generator=torch.Generator().manual_seed(0)) / 255


def changed(name, sign=0, strength=15, images=IMAGES):
    return rand_augment(images, torch.tensor([OPERATIONS.index(name)]), torch.tensor([sign]), strength)


def luma(image):
    return 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def equalised(plane):
    """The table of Pillow, value by value."""
    values = [round(value * 255) for value in plane.flatten().tolist()]
    counts = [values.count(v) for v in range(256)]
    there = [count for count in counts if count]
    step = (sum(there) - there[-1]) // 255
    if not step:
        return plane
    table, seen = [], step // 2
    for count in counts:
        table.append(min(seen // step, 255))
        seen += count
    return torch.tensor([table[v] / 255 for v in values]).view(plane.shape)


def blurred(plane):
    made = plane.clone()
    for row in range(1, plane.shape[0] - 1):
        for column in range(1, plane.shape[1] - 1):
            around = plane[row - 1 : row + 2, column - 1 : column + 2]
            made[row, column] = (around.sum() + 4 * plane[row, column]) / 13
    return made


COLOURS = {
    "identity": lambda image, f: image,
    "brightness": lambda image, f: f * image,
    "colour": lambda image, f: luma(image) + f * (image - luma(image)),
    "contrast": lambda image, f: luma(image).mean() + f * (image - luma(image).mean()),
    "sharpness": lambda image, f: torch.stack([blurred(p) + f * (p - blurred(p)) for p in image]),
    "posterise": lambda image, f: ((image * 255).round() // 4) * 4 / 255,
    "solarise": lambda image, f: torch.where(image >= 0.5, 1 - image, image),
    "auto-contrast": lambda image, f: torch.stack([(p - p.min()) / (p.max() - p.min()) for p in image]),
    "equalise": lambda image, f: torch.stack([equalised(p) for p in image]),
}


@pytest.mark.parametrize("name", COLOURS)
@pytest.mark.parametrize("sign", [0, 1])
def test_colours(name, sign):
    factor = 1 + (0.45 if sign == 0 else -0.45)
    expected = torch.stack([COLOURS[name](image, factor).clamp(0, 1) for image in IMAGES])
    torch.testing.assert_close(changed(name, sign), expected, rtol=1e-4, atol=1e-5)


def test_equalised_values_of_a_large_image():
    plane = torch.rand(1, 1, 40, 40, generator=torch.Generator().manual_seed(1)).square()
    torch.testing.assert_close(changed("equalise", images=plane)[0, 0], equalised(plane[0, 0]))


@pytest.mark.parametrize("sign", [0, 1])
def test_shifts_are_whole_pixels_and_black_comes_in(sign):
    step = int(150 / 331 * 10 * 0.5)
    expected = torch.zeros_like(IMAGES)
    if sign == 0:
        expected[..., step:] = IMAGES[..., :-step]
    else:
        expected[..., :-step] = IMAGES[..., step:]
    torch.testing.assert_close(changed("translate-x", sign), expected)


@pytest.mark.parametrize("name", ["shear-x", "shear-y", "rotate"])
def test_a_pixel_comes_from_where_the_matrix_says(name):
    seen, share = changed(name), 0.5
    turn = {
        "shear-x": ((1, -0.3 * share), (0, 1)),
        "shear-y": ((1, 0), (-0.3 * share, 1)),
        "rotate": ((math.cos(math.radians(15)), -math.sin(math.radians(15))),
                   (math.sin(math.radians(15)), math.cos(math.radians(15)))),
    }[name]  # fmt: skip
    centre = (
        (4.5, 3.5) if name == "rotate" else (-0.5, -0.5)
    )  # a shear leaves the edge of the image where it is
    for row in range(8):
        for column in range(10):
            across, down = column - centre[0], row - centre[1]
            place = (
                turn[0][0] * across + turn[0][1] * down + centre[0],
                turn[1][0] * across + turn[1][1] * down + centre[1],
            )
            nearest = round(place[0]), round(place[1])
            if any(abs(abs(part - math.floor(part)) - 0.5) < 1e-3 for part in place):
                continue  # between two pixels
            inside = 0 <= nearest[0] < 10 and 0 <= nearest[1] < 8
            expected = IMAGES[0, 0, nearest[1], nearest[0]] if inside else 0.0
            assert seen[0, 0, row, column].item() == pytest.approx(float(expected), abs=1e-6)


def test_operations_come_one_after_the_other():
    operations = torch.tensor([OPERATIONS.index("solarise"), OPERATIONS.index("brightness")])
    both = rand_augment(IMAGES, operations, torch.tensor([0, 1]), 15)
    torch.testing.assert_close(both, changed("brightness", 1, images=changed("solarise")))


@pytest.mark.parametrize("name", OPERATIONS)
def test_images_of_another_range_are_changed_within_it(name):
    images = 30 * IMAGES - 10
    low, high = images.min(), images.max()
    scaled = (images - low) / (high - low)
    expected = changed(name, images=scaled) * (high - low) + low
    torch.testing.assert_close(changed(name, images=images), expected, rtol=1e-4, atol=1e-3)


def test_values_that_are_not_finite_end_as_such():
    images = IMAGES.clone()
    images[0, 0, 0, 0] = 3e38
    images[1, 0, 0, 0] = -3e38
    assert not changed("equalise", images=images).isfinite().all()
