"""Prequential accuracy: every batch is predicted before it is learnt, and the correct predictions are counted.

Pure functions of c_j, the number of samples of batch j that were predicted correctly, and n_j, its size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from everlearn.messages import is_whole

__all__ = ["fading_prequential_accuracy", "prequential_accuracy", "windowed_prequential_accuracy"]

Counts = Sequence[int] | NDArray[np.int64]


def prequential_accuracy(correct: Counts, sizes: Counts) -> float:
    """The share of all samples that were predicted correctly: Σ_j c_j / Σ_j n_j; nan before the first.

    >>> prequential_accuracy([0, 5, 10], [10, 10, 10])
    0.5
    """
    right, total = _checked(correct, sizes)
    return float(right.sum() / total.sum()) if total.sum() else math.nan


def windowed_prequential_accuracy(correct: Counts, sizes: Counts, window: int) -> NDArray[np.float64]:
    """At each batch, the accuracy over the last `window` batches, fewer at the start.

    P_j = Σ_{j−w < i ≤ j} c_i / Σ_{j−w < i ≤ j} n_i

    >>> windowed_prequential_accuracy([0, 5, 10], [10, 10, 10], window=2)
    array([0.  , 0.25, 0.75])
    """
    if not is_whole(window, least=1):
        raise ValueError(f"a window has at least 1 batch, not {window!r}")
    right, total = (_within(counts, window) for counts in _checked(correct, sizes))
    return _ratio(right, total)


def fading_prequential_accuracy(correct: Counts, sizes: Counts, factor: float = 0.999) -> NDArray[np.float64]:
    """At each batch, the accuracy with the weight of older batches reduced by `factor` per batch.

    P_j = R_j / W_j with R_j = c_j + λ R_{j−1} and W_j = n_j + λ W_{j−1}; with λ = 1 all batches weigh the same.

    >>> fading_prequential_accuracy([0, 5, 10], [10, 10, 10], factor=0.5)
    array([0.        , 0.33333333, 0.71428571])

    Gama, J., Sebastião, R. and Rodrigues, P. On evaluating stream learning algorithms.
    Machine Learning 90, 2013.
    """
    if not 0 < factor <= 1:
        raise ValueError(f"a fading factor is above 0 and at most 1, not {factor}")
    right, total = _checked(correct, sizes)
    faded = (accumulate(counts.tolist(), lambda old, new: new + factor * old) for counts in (right, total))
    return _ratio(*(np.array(list(sums), np.float64) for sums in faded))


def _checked(correct: Counts, sizes: Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    right, total = np.asarray(correct, np.float64), np.asarray(sizes, np.float64)
    if right.shape != total.shape:
        raise ValueError(f"got {len(right)} counts of correct predictions for {len(total)} batches")
    if ((right < 0) | (right > total)).any():
        raise ValueError("a batch can't have fewer than 0 correct predictions, or more than it has samples")
    return right, total


def _within(counts: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """The moving sum of the last `window` counts."""
    sums = np.concatenate([[0.0], counts.cumsum()])
    starts = np.maximum(np.arange(1, len(sums)) - window, 0)
    inside: NDArray[np.float64] = sums[1:] - sums[starts]
    return inside


def _ratio(right: NDArray[np.float64], total: NDArray[np.float64]) -> NDArray[np.float64]:
    """Their quotient; nan as long as there are no samples."""
    shares = np.full(len(total), np.nan)
    np.divide(right, total, out=shares, where=total > 0)
    return shares
