"""Statistics over a few seeds, against scipy and against enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from everlearn.experiments.significance import Summary, holm, paired, summary, welch

values = st.floats(0, 100).map(lambda value: round(value, 2))
pairs = st.lists(st.tuples(values, values), min_size=2, max_size=8)


@given(pairs)
def test_the_paired_test_is_scipys(samples):
    ours, others = (np.array(side) for side in zip(*samples, strict=True))
    found = paired(dict(enumerate(ours)), dict(enumerate(others)))
    if np.ptp(ours - others) < 1e-6:
        return  # scipy warns of a difference without spread; below is what we make of it
    expected = stats.ttest_rel(ours, others)
    assert found.p == pytest.approx(expected.pvalue, abs=1e-9)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), abs=1e-6)


def by_formula(ours, others):
    """The paired t-test from its definition: mean difference, interval and p, with Student's t of scipy alone."""
    differences = [one - other for one, other in zip(ours, others, strict=True)]
    n = len(differences)
    mean = math.fsum(differences) / n
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in differences) / (n - 1) / n)
    reach = stats.t.ppf(0.975, n - 1) * error
    return mean, mean - reach, mean + reach, 2 * stats.t.sf(abs(mean) / error, n - 1)


@given(pairs)
def test_the_paired_test_is_its_definition_to_nine_digits(samples):
    ours, others = zip(*samples, strict=True)
    if np.ptp(np.subtract(ours, others)) < 1e-6:
        return
    found = paired(dict(enumerate(ours)), dict(enumerate(others)))
    assert found[:4] == pytest.approx(by_formula(ours, others), rel=1e-9, abs=1e-9)


@given(pairs)
def test_welchs_test_is_its_definition_to_nine_digits(samples):
    ours, others = (summary(side) for side in zip(*samples, strict=True))
    if ours.std < 1e-6 or others.std < 1e-6:
        return
    one, other = ours.std**2 / ours.n, others.std**2 / others.n
    freedom = (one + other) ** 2 / (one**2 / (ours.n - 1) + other**2 / (others.n - 1))
    statistic = abs(ours.mean - others.mean) / math.sqrt(one + other)
    assert welch(ours, others) == pytest.approx(2 * stats.t.sf(statistic, freedom), abs=1e-9)


def test_nearly_equal_differences_give_no_warning_and_a_small_p():
    found = paired({0: 94.0, 1: 94.2}, {0: 93.0, 1: 93.2})
    assert found.mean == pytest.approx(1)
    assert found.p < 1e-12


def test_printed_means_without_deviation_agree_only_if_they_are_equal():
    assert welch(Summary(90, 0.0, 5), Summary(90, 0.0, 5)) == 1
    assert welch(Summary(90, 0.0, 5), Summary(91, 0.0, 5)) == 0


def test_only_seeds_that_both_have_are_compared():
    found = paired({0: 10.0, 1: 20.0, 7: 99.0}, {0: 9.0, 1: 18.0, 3: 0.0})
    assert (found.mean, found.n) == (1.5, 2)
    assert paired({0: 10.0, 1: 20.0}, {1: 18.0}) is None


def test_a_difference_without_spread_is_sure_and_none_is_none():
    assert paired({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0}).p == 0
    assert paired({0: 2.0, 1: 3.0}, {0: 2.0, 1: 3.0}).p == 1


@given(pairs)
def test_welch_from_printed_means_is_scipys(samples):
    ours, others = (list(side) for side in zip(*samples, strict=True))
    if np.ptp(ours) < 1e-6 or np.ptp(others) < 1e-6:
        return
    expected = stats.ttest_ind(ours, others, equal_var=False).pvalue
    assert welch(summary(ours), summary(others)) == pytest.approx(expected, abs=1e-9)


def test_one_seed_has_no_spread_and_is_not_tested():
    assert welch(Summary(90, None, 1), Summary(91, 0.5, 5)) is None


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_what_the_closed_procedure_rejects(chances):
    """Slow oracle: a hypothesis falls if Bonferroni rejects every set of hypotheses that it is in."""
    adjusted = holm(chances)
    for place in range(len(chances)):
        sets = (
            subset
            for size in range(1, len(chances) + 1)
            for subset in itertools.combinations(range(len(chances)), size)
            if place in subset
        )
        slow = max(min(1.0, len(subset) * min(chances[i] for i in subset)) for subset in sets)
        assert math.isclose(adjusted[place], slow, abs_tol=1e-12)
