"""Statistics over a few seeds: mean and standard deviation, paired tests and confidence intervals."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

__all__ = ["Difference", "Summary", "holm", "paired", "summary", "welch"]

CONFIDENCE = 0.95
"""Confidence level of the intervals."""


class Summary(NamedTuple):
    """Mean and unbiased standard deviation over n seeds; std is None for one seed."""

    mean: float
    std: float | None
    n: int


class Difference(NamedTuple):
    """A mean difference over n pairs, its confidence interval, and the p-value of the two-sided test."""

    mean: float
    low: float
    high: float
    p: float
    n: int


def summary(values: Sequence[float]) -> Summary | None:
    """Mean and unbiased standard deviation; None of no values. NaN, as of a run without tests, is left out.

    >>> summary([90, 92]), summary([90, float("nan")]), summary([])
    (Summary(mean=91.0, std=1.4142135623730951, n=2), Summary(mean=90.0, std=None, n=1), None)
    """
    found = [value for value in values if not math.isnan(value)]
    return Summary(fmean(found), stdev(found) if len(found) > 1 else None, len(found)) if found else None


def paired(ours: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """The paired t-test over the seeds for which both have a number; None where these are fewer than two.

    A seed fixes subset, order and initialisation, so runs of the same seed belong together.

    >>> found = paired({0: 94.1, 1: 93.8, 2: 94.0}, {0: 92.0, 1: 92.2, 2: 91.7})
    >>> f"{found.mean:.1f} in [{found.low:.1f}, {found.high:.1f}], p = {found.p:.3f}, n = {found.n}"
    '2.0 in [1.1, 2.9], p = 0.011, n = 3'
    """
    seeds = sorted(seed for seed in ours.keys() & others.keys() if not math.isnan(ours[seed] - others[seed]))
    differences = summary([ours[seed] - others[seed] for seed in seeds])
    if differences is None or differences.std is None:
        return None
    mean, n = differences.mean, differences.n
    if differences.std == 0:  # every pair differs by the same amount, so there is nothing to test
        return Difference(mean, mean, mean, float(mean == 0), n)
    from scipy import stats

    with warnings.catch_warnings():
        # scipy warns where all differences are nearly equal; then p is nearly 0, which is right.
        warnings.simplefilter("ignore", RuntimeWarning)
        test = stats.ttest_rel([ours[seed] for seed in seeds], [others[seed] for seed in seeds])
    interval = test.confidence_interval(CONFIDENCE)
    return Difference(mean, float(interval.low), float(interval.high), float(test.pvalue), n)


def welch(ours: Summary, others: Summary) -> float | None:
    """The p of Welch's t-test from means and deviations alone, as papers print them; None without deviations.

    >>> round(welch(Summary(48.0, 1.7, 5), Summary(48.92, 1.32, 5)), 2)
    0.37
    """
    if ours.std is None or others.std is None:
        return None
    if ours.std == others.std == 0:
        return float(ours.mean == others.mean)
    from scipy import stats

    return float(stats.ttest_ind_from_stats(*ours, *others, equal_var=False).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for multiple tests (Holm, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted
