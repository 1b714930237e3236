"""Calibration error, kappa and the reliability diagram, against cases worked by hand and scikit-learn."""

import numpy as np
import pytest

from everlearn import plots
from everlearn.evaluation.calibration import expected_calibration_error, kappa, reliability
from everlearn.plots.reliability import reliability_diagram


def test_the_calibration_error_agrees_with_a_loop_over_bins():
    draws = np.random.default_rng(0)
    confidence, correct = draws.random(500), draws.random(500) < 0.7
    slow = 0.0
    for low in range(15):
        inside = [i for i in range(500) if low / 15 <= confidence[i] < (low + 1) / 15]
        if inside:
            gap = np.mean([confidence[i] for i in inside]) - np.mean([correct[i] for i in inside])
            slow += len(inside) / 500 * abs(gap)
    assert expected_calibration_error(confidence, correct) == pytest.approx(slow)


def test_true_probabilities_have_hardly_any_error_and_extremes_have_their_bin():
    draws = np.random.default_rng(1)
    confidence = draws.random(20_000)
    assert expected_calibration_error(confidence, draws.random(20_000) < confidence) < 0.02
    found = reliability([0.0, 1.0, 1.0], [False, True, False], bins=4)
    assert found.share.tolist() == pytest.approx([1 / 3, 0, 0, 2 / 3])
    assert np.isnan(found.accuracy[1]) and found.accuracy[3] == 0.5


def test_what_is_no_probability_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        reliability([1.2], [True])
    with pytest.raises(ValueError, match="there are 2 confidences but 1 predictions"):
        reliability([0.2, 0.3], [True])


def test_kappa_is_scikit_learns():
    from sklearn.metrics import cohen_kappa_score

    draws = np.random.default_rng(2)
    truth, predicted = draws.integers(0, 3, 200).tolist(), draws.integers(0, 4, 200).tolist()
    assert kappa(truth, predicted) == pytest.approx(cohen_kappa_score(truth, predicted))
    assert kappa(["a", "b"], ["a", "b"]) == 1
    assert kappa(["a", "a"], ["a", "a"]) == 0


def test_the_diagram_shows_accuracy_over_confidence(tmp_path):
    predictions = {
        "cope": ([0.95, 0.95, 0.55, 0.55], [True, True, True, False]),
        "reservoir": ([0.3], [False]),
    }
    figure = reliability_diagram(predictions)
    line = figure.axes[0].lines[1]
    shown = [(x, y) for x, y in zip(*line.get_data(), strict=True) if not np.isnan(x)]
    assert shown == [(pytest.approx(0.55), 0.5), (pytest.approx(0.95), 1.0)]
    assert plots.reliability_diagram(predictions, tmp_path / "reliability.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="no predictions to draw"):
        reliability_diagram({})
