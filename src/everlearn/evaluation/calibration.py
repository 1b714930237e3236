"""How far confidences can be trusted, and agreement beyond chance: pure functions of predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Reliability", "expected_calibration_error", "kappa", "reliability"]


class Reliability(NamedTuple):
    """Predictions by their confidence, in bins of equal width; nan where a bin is empty.

    confidence, accuracy: the mean of each bin. share: of all predictions.
    """

    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    share: NDArray[np.float64]


def reliability(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> Reliability:
    """Confidence and accuracy of predictions, by confidence.

    confidence: the probability of the predicted class, of each sample. correct: whether the prediction was right.

    >>> reliability([0.2, 0.9, 0.7], [False, True, False], bins=2).accuracy.tolist()
    [0.0, 0.5]
    """
    sure, right = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
    if sure.shape != right.shape:
        raise ValueError(f"there are {sure.size} confidences but {right.size} predictions")
    if sure.size and not ((sure >= 0) & (sure <= 1)).all():
        raise ValueError("a confidence is a probability, between 0 and 1")
    places = np.minimum((sure * bins).astype(np.int64), bins - 1)
    counts = np.bincount(places, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_sure, mean_right = (np.bincount(places, values, bins) / counts for values in (sure, right))
    return Reliability(mean_sure, mean_right, counts / max(sure.size, 1))


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """ECE = Σ_b n_b / n · |accuracy_b − confidence_b|: how far confidence and accuracy are apart, over bins.

    >>> round(expected_calibration_error([0.9, 0.9, 0.6, 0.6], [True, True, True, False]), 3)
    0.1

    Guo, C. et al. On Calibration of Modern Neural Networks. ICML 2017.
    """
    found = reliability(confidence, correct, bins)
    return float(np.nansum(found.share * np.abs(found.accuracy - found.confidence)))


def kappa(truth: Sequence[object], predicted: Sequence[object]) -> float:
    """Cohen's kappa, (p − e) / (1 − e), with p the accuracy and e that of guessing by the class frequencies.

    >>> kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    if len(truth) != len(predicted):
        raise ValueError(f"there are {len(truth)} labels but {len(predicted)} predictions")
    numbers = {label: number for number, label in enumerate(dict.fromkeys([*truth, *predicted]))}
    true, guessed = (
        np.array([numbers[label] for label in labels], np.int64) for labels in (truth, predicted)
    )
    shares = [np.bincount(part, minlength=len(numbers)) / max(len(truth), 1) for part in (true, guessed)]
    by_chance = float(shares[0] @ shares[1])
    accuracy = float((true == guessed).mean()) if len(truth) else float("nan")
    return (accuracy - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
