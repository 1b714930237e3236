"""A result as JSON values, and back."""

import json
import math

import numpy as np
import pytest

from everlearn.engine.result import Result
from everlearn.evaluation.history import Evaluation
from everlearn.experiments.codec import METRICS, decode, encode
from everlearn.label_json import UNKNOWN


def result(history):
    return Result("cope", "split-digits", 0, {"network": "mlp"}, history, 100, 2.0, {"replay": 400})


@pytest.fixture
def ended():
    nothing = np.zeros((0, 0), np.int64)
    counts = np.array([[8, 2], [1, 9]])
    return result(
        [
            Evaluation(5, 50, 0, {0: 0.75}, (), nothing),
            Evaluation(10, 100, 1, {0: 0.5, 1: 1.0}, ("a", "b"), counts),
        ]
    )


def test_a_result_comes_back_as_it_was_written(ended):
    stored = decode(json.loads(json.dumps(encode(ended, together=3))))
    assert stored.metrics == {metric: getattr(ended, metric) for metric in METRICS}
    assert (stored.samples, stored.together, stored.memory_bytes) == (100, 3, 400)
    assert stored.footprint == {"replay": 400}
    assert stored.samples_per_second == 50
    assert stored.concepts == {"task 1": 0.5, "task 2": 1.0}
    assert [(each.samples, each.accuracy) for each in stored.history] == [(50, 0.75), (100, 0.75)]
    assert stored.end.labels == ("a", "b")
    assert stored.end.confusion.tolist() == [[8, 2], [1, 9]]


def test_labels_that_json_does_not_have_are_stored_as_texts():
    labels = ("a", 1, None, b"a", ("left", b"b"), UNKNOWN)
    last = Evaluation(5, 50, 0, {0: 0.5}, labels, np.zeros((6, 6), np.int64))
    stored = decode(json.loads(json.dumps(encode(result([last])))))
    assert stored.end.labels == ("a", 1, None, "b'a'", "('left', b'b')", "UNKNOWN")


def test_a_run_without_an_evaluation_has_no_metrics_and_no_nan():
    values = encode(result([]))
    assert "NaN" not in json.dumps(values)
    stored = decode(values)
    assert stored.accuracy is None and stored.end is None and stored.history == []
    assert math.isnan(result([]).accuracy)


def test_what_an_older_version_did_not_store_is_empty():
    stored = decode({"accuracy": 0.5})
    assert (stored.accuracy, stored.together, stored.history, stored.end) == (0.5, 1, [], None)


def test_an_evaluation_without_accuracy_is_left_out_of_the_history():
    missing = {"samples": 10, "accuracy": None, "concepts": {}}
    assert decode({"evaluations": [missing]}).history == []
