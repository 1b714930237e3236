"""Prequential accuracy against cases worked by hand, and against sums over all that came before."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn.evaluation.prequential import (
    fading_prequential_accuracy,
    prequential_accuracy,
    windowed_prequential_accuracy,
)


def test_prequential_accuracy_counts_every_sample_once():
    assert prequential_accuracy([1, 4, 9], [2, 8, 10]) == pytest.approx(14 / 20)


def test_windowed_prequential_accuracy_forgets_what_left_the_window():
    result = windowed_prequential_accuracy([1, 4, 9, 0], [2, 8, 10, 10], window=2)
    assert result == pytest.approx([1 / 2, 5 / 10, 13 / 18, 9 / 20])


def test_fading_prequential_accuracy_halves_what_came_before():
    result = fading_prequential_accuracy([2, 0, 4], [4, 4, 4], factor=0.5)
    assert result == pytest.approx([2 / 4, 1 / 6, 4.5 / 7])


batches = st.lists(
    st.integers(0, 20).flatmap(lambda size: st.tuples(st.integers(0, size), st.just(size))), max_size=30
)


@settings(deadline=None)
@given(batches, st.integers(1, 10), st.floats(0.01, 1))
def test_prequential_curves_agree_with_sums_over_what_each_batch_looks_back_on(pairs, window, factor):
    correct, sizes = [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    def ratio(weights):
        total = sum(w * n for w, n in zip(weights, sizes, strict=False))
        return sum(w * c for w, c in zip(weights, correct, strict=False)) / total if total else math.nan

    inside = [ratio([float(i > j - window) for i in range(j + 1)]) for j in range(len(pairs))]
    faded = [ratio([factor ** (j - i) for i in range(j + 1)]) for j in range(len(pairs))]
    assert windowed_prequential_accuracy(correct, sizes, window) == pytest.approx(inside, nan_ok=True)
    assert fading_prequential_accuracy(correct, sizes, factor) == pytest.approx(faded, nan_ok=True)
    assert prequential_accuracy(correct, sizes) == pytest.approx(ratio([1] * len(pairs)), nan_ok=True)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: prequential_accuracy([1], [1, 2]), "1 counts of correct predictions for 2 batches"),
        (lambda: prequential_accuracy([3], [2]), "can't have fewer than 0 correct predictions, or more"),
        (lambda: windowed_prequential_accuracy([1], [2], window=0), "at least 1 batch, not 0"),
        (lambda: windowed_prequential_accuracy([1], [2], window=2.5), "at least 1 batch, not 2.5"),
        (lambda: fading_prequential_accuracy([1], [2], factor=0), "above 0 and at most 1, not 0"),
    ],
)
def test_counts_that_make_no_sense_are_errors(call, says):
    with pytest.raises(ValueError, match=says):
        call()
