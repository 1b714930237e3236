"""The style of pictures: a line of its own for each learner, and colours that all eyes can tell apart."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn import learners, plots
from everlearn.plots import style

NAMES = [name for name, kind in learners.registry().items() if kind.__module__.startswith("everlearn.")]


@settings(deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=30), st.floats(0.1, 20))
def test_spread_heights_keep_their_order_and_a_gap_and_stay_inside(heights, gap):
    heights = sorted(heights)
    placed = style.spread(heights, gap, 0, 100)
    needed = min(gap, 100 / max(len(heights) - 1, 1))
    assert (np.diff(placed) >= needed - 1e-6).all()
    assert placed.min() >= -1e-6
    assert placed.max() <= 100 + 1e-6
    if (np.diff(heights) >= gap).all():
        assert placed == pytest.approx(heights)


def test_every_learner_has_a_line_of_its_own():
    lines = [tuple(map(str, style.line_of(name, NAMES).values())) for name in NAMES]
    assert set(NAMES) == set(plots.COLOURS)
    assert len(set(lines)) == len(set(plots.COLOURS.values())) == len(NAMES)


def test_a_learner_of_ones_own_keeps_its_colour_when_others_join_the_figure():
    alone = style.line_of("mine", ["mine"])
    assert (
        alone
        == style.line_of("mine", ["a new one", "cope", "mine"])
        == style.line_of("mine", ["mine", "er-ace"])
    )


def test_learners_of_ones_own_have_different_lines():
    names = [f"mine, {number}" for number in range(30)]
    lines = {tuple(map(str, style.line_of(name, names).values())) for name in names}
    assert len(lines) == 30
    assert len({style.line_of(name, names[:10])["color"] for name in names[:10]}) == 10


# How colours look to eyes without one of the three cones (Machado et al. 2009, severity 1), in linear RGB.
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def seen_as(colour, eyes):
    """A colour's place in CIELAB, where distances are as large as they look."""
    shares = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    red, green, blue = np.clip(np.array(EYES[eyes]) @ linear, 0, 1)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("eyes", EYES)
def test_lines_with_the_same_dashes_differ_in_colour_to_all_eyes(eyes):
    for one, other in itertools.combinations(NAMES, 2):
        if style.DASHES.get(one) == style.DASHES.get(other):
            distance = seen_as(plots.COLOURS[one], eyes) - seen_as(plots.COLOURS[other], eyes)
            assert np.linalg.norm(distance) > 15, (one, other)


@pytest.mark.parametrize("eyes", EYES)
def test_neighbouring_tasks_and_classes_differ_in_colour_to_all_eyes(eyes):
    for one, other in itertools.pairwise(style.TEN):
        assert np.linalg.norm(seen_as(one, eyes) - seen_as(other, eyes)) > 15, (one, other)
