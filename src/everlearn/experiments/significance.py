"""What a handful of seeds can say: mean and spread, and whether two differ by more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

__all__ = ["Difference", "Summary", "holm", "paired", "summary", "welch"]

SURE = 0.95
"""How sure an interval is; a difference counts as more than chance below 1 − SURE."""


class Summary(NamedTuple):
    """Mean and unbiased standard deviation over n seeds; one seed has no spread."""

    mean: float
    std: float | None
    n: int


class Difference(NamedTuple):
    """A mean difference over n pairs with its interval, and the chance p of one as large where there is none."""

    mean: float
    low: float
    high: float
    p: float
    n: int


def summary(values: Sequence[float]) -> Summary | None:
    """Mean and unbiased standard deviation; None of no values.

    >>> summary([90, 92]), summary([90]), summary([])
    (Summary(mean=91.0, std=1.4142135623730951, n=2), Summary(mean=90.0, std=None, n=1), None)
    """
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
    return Summary(mean, std, n)


def paired(ours: Mapping[int, float], others: Mapping[int, float]) -> Difference | None:
    """The paired t-test over the seeds that both have; None where they share fewer than two.

    A seed fixes subset, order and initialisation, so runs of the same seed belong together.

    >>> found = paired({0: 94.1, 1: 93.8, 2: 94.0}, {0: 92.0, 1: 92.2, 2: 91.7})
    >>> f"{found.mean:.1f} in [{found.low:.1f}, {found.high:.1f}], p = {found.p:.3f}, n = {found.n}"
    '2.0 in [1.1, 2.9], p = 0.011, n = 3'
    """
    seeds = sorted(ours.keys() & others.keys())
    of = summary([ours[seed] - others[seed] for seed in seeds])
    if of is None or of.std is None:
        return None
    return _difference(of.mean, of.std / math.sqrt(of.n), of.n - 1, of.n)


def welch(ours: Summary, others: Summary) -> Difference | None:
    """Welch's t-test from means and deviations alone, as a paper prints them; None without deviations.

    >>> round(welch(Summary(48.0, 1.7, 5), Summary(48.92, 1.32, 5)).p, 2)
    0.37
    """
    if ours.std is None or others.std is None:
        return None
    one, other = ours.std**2 / ours.n, others.std**2 / others.n
    error = math.sqrt(one + other)
    parts = one**2 / (ours.n - 1) + other**2 / (others.n - 1)
    freedom = (one + other) ** 2 / parts if parts else math.inf
    return _difference(ours.mean - others.mean, error, freedom, min(ours.n, others.n))


def _difference(mean: float, error: float, freedom: float, n: int) -> Difference:
    from scipy.stats import t as student

    if error == 0:  # every pair differs by the same: no chance about it
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0, n)
    reach = float(student.ppf((1 + SURE) / 2, freedom)) * error
    p = 2 * float(student.sf(abs(mean) / error, freedom))
    return Difference(mean, mean - reach, mean + reach, p, n)


def holm(chances: Sequence[float]) -> list[float]:
    """Each p as large as it must be when so many were tested at once (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(chances)), key=chances.__getitem__)
    adjusted = [0.0] * len(chances)
    least = 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        adjusted[place] = least
    return adjusted
