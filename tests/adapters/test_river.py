"""The learners as River's classifiers."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from itertools import islice

import numpy as np
import pandas as pd
import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing
from river.base import Classifier
from torch import nn

from everlearn import CoPE, learners
from everlearn.adapters.river import CoPEClassifier, OnlineClassifier
from everlearn.core.learner import Learner
from everlearn.learners.cope import CoPESettings

MODELS = {
    "CoPEClassifier": CoPEClassifier(hidden=32),
    # The checks' features are not scaled, so a softmax needs small steps.
    "OnlineClassifier": OnlineClassifier("reservoir", settings={"hidden": 32, "learning_rate": 1e-6}),
}
CHECKS = [
    pytest.param(model, check, id=f"{name}-{number}-{check.__name__}")
    for name, model in MODELS.items()
    for number, check in enumerate(checks.yield_checks(model))
    if check.__name__ not in model._unit_test_skips()
]


@pytest.mark.parametrize(("model", "check"), CHECKS)
def test_rivers_own_checks_pass(model, check):
    check(model.clone())


def test_none_of_rivers_checks_is_skipped():
    assert CoPEClassifier()._unit_test_skips() == OnlineClassifier()._unit_test_skips() == set()


# Settings of CoPE that make no sense here: `learn_one` has its labels at once, and a record is not an image.
NOT_PARAMETERS = {
    "missing_labels",
    "unknown",
    "waiting",
    "augmentation",
    "width",
    "colour",
    "cutout",
    "mixing",
    "mirrored",
    "shifted",
    "turned",
}


def test_every_setting_of_cope_is_a_parameter_with_the_same_default():
    parameters = inspect.signature(CoPEClassifier).parameters
    settings = {field.name: field.default for field in dataclasses.fields(CoPESettings)}
    expected = {name: default for name, default in settings.items() if name not in NOT_PARAMETERS}
    assert {name: parameters[name].default for name in expected} == expected
    assert parameters.keys() == expected.keys() | {"network", "batch_size", "seed", "device"}


def test_a_parameter_reaches_the_learner():
    settings = CoPEClassifier(momentum=0.5, averaging=0.9, clip=1.0).learner_.settings
    assert (settings.momentum, settings.averaging, settings.clip, settings.waiting) == (0.5, 0.9, 1.0, 1000)


@pytest.mark.parametrize("kind", [CoPEClassifier, OnlineClassifier])
def test_help_shows_and_explains_every_parameter(kind):
    page = pydoc.plain(pydoc.render_doc(kind))
    for name, parameter in inspect.signature(kind).parameters.items():
        declared = f"{re.escape(parameter.annotation)}'? = {re.escape(repr(parameter.default))}"
        assert re.search(f"{name}: '?{declared}", page), name
        assert re.search(rf"^ \|  {name}\n \|      [A-Z`].{{10}}", page, re.MULTILINE), name


@pytest.mark.parametrize(("dataset", "least"), [(datasets.Phishing, 0.85), (datasets.ImageSegments, 0.75)])
def test_it_learns_while_it_is_evaluated(dataset, least):
    model = preprocessing.StandardScaler() | CoPEClassifier(hidden=64, seed=0)
    assert evaluate.progressive_val_score(dataset(), model, metrics.Accuracy()).get() > least


@pytest.fixture
def segments() -> list[tuple[dict[str, float], str]]:
    scaler = preprocessing.StandardScaler()
    scaled = []
    for x, y in islice(datasets.ImageSegments(), 120):
        scaler.learn_one(x)
        scaled.append((scaler.transform_one(x), y))
    return scaled


def test_before_the_first_label_nothing_is_predicted(segments):
    model = CoPEClassifier(hidden=16)
    assert model.predict_one(segments[0][0]) is None
    assert model.predict_proba_one(segments[0][0]) == {}
    frame = pd.DataFrame([x for x, _ in segments[:2]], index=["p", "q"])
    assert model.predict_many(frame).tolist() == [None, None]
    assert model.predict_proba_many(frame).shape == (2, 0)


def test_a_label_can_be_predicted_while_it_waits(segments):
    model = CoPEClassifier(hidden=16, batch_size=50)
    x, y = segments[0]
    model.learn_one(x, y)
    assert (model.waiting, model.classes, model.learner_.samples) == (1, [y], 0)
    assert model.predict_one(x) == y
    assert model.predict_proba_one(x) == {y: 1.0}
    model.learn_waiting()
    assert (model.waiting, model.learner_.samples) == (0, 1)


def test_many_rows_are_learnt_as_one_after_another(segments):
    one, many = (CoPEClassifier(hidden=16, seed=0, batch_size=7) for _ in range(2))
    for x, y in segments:
        one.learn_one(x, y)
    for start in range(0, 120, 40):
        part = segments[start : start + 40]
        many.learn_many(pd.DataFrame([x for x, _ in part]), pd.Series([y for _, y in part]))
    assert pickle.dumps(one) == pickle.dumps(many)
    frame = pd.DataFrame([x for x, _ in segments], index=range(7, 127))
    assert many.predict_many(frame).tolist() == [one.predict_one(x) for x, _ in segments]
    assert many.predict_many(frame).index.tolist() == frame.index.tolist()
    assert many.predict_proba_many(frame).columns.tolist() == one.classes


def test_nan_in_a_frame_is_a_missing_feature():
    one, many = (CoPEClassifier(hidden=16, seed=0, batch_size=2) for _ in range(2))
    for x, y in [({"a": 1.0, "b": 2.0}, 0), ({"a": 3.0}, 1)]:
        one.learn_one(x, y)
    many.learn_many(pd.DataFrame({"a": [1.0, 3.0], "b": [2.0, np.nan]}), pd.Series([0, 1]))
    assert pickle.dumps(one) == pickle.dumps(many)


def test_a_pickle_in_the_midst_of_a_batch_goes_on_bit_for_bit(segments):
    whole, part = (
        preprocessing.StandardScaler() | CoPEClassifier(hidden=16, seed=0, batch_size=9) for _ in range(2)
    )
    for x, y in segments[:50]:
        part.learn_one(x, y)
    part = pickle.loads(pickle.dumps(part))
    assert part["CoPEClassifier"].waiting == 50 % 9
    for x, y in segments[50:]:
        part.learn_one(x, y)
    for x, y in segments:
        whole.learn_one(x, y)
    assert all(part.predict_proba_one(x) == whole.predict_proba_one(x) for x, _ in segments)


def test_a_learner_of_ones_own_and_a_network_of_ones_own(segments):
    class Mine(CoPE):
        name = "mine"

    network = nn.Sequential(nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 8))
    before = network[0].weight.clone()
    model = OnlineClassifier(Mine, network, seed=0, settings={"memory_size": 50})
    for x, y in segments:
        model.learn_one(x, y)
    assert isinstance(model.learner_, Mine)
    assert (network[0].weight == before).all()
    assert model.predict_one(segments[0][0]) in model.classes


def test_it_is_a_classifier_to_rivers_tools():
    model = compose.Select("a", "b") | OnlineClassifier("mir", batch_size=3, settings={"hidden": 16})
    assert isinstance(model, Classifier)
    model.learn_one({"a": 1.0, "b": 2.0, "text": "ignored"}, np.bool_(True))
    assert model.predict_one({"a": 1.0, "b": 2.0}) is True


def test_mistakes_get_a_sentence_at_once():
    with pytest.raises(ValueError, match="did you mean 'cope'"):
        OnlineClassifier("cop")
    with pytest.raises(ValueError, match="learner must be the name of a learner, .* not None"):
        OnlineClassifier(None)
    with pytest.raises(ValueError, match=r"settings must be a dict of settings by name, .* not \[1\]"):
        OnlineClassifier(settings=[1])
    with pytest.raises(
        ValueError, match="settings can't have 'seed', which is a parameter of the classifier"
    ):
        OnlineClassifier(settings={"seed": 1})
    with pytest.raises(ValueError, match="'gem' needs to know where a task ends"):
        OnlineClassifier("gem")
    with pytest.raises(TypeError, match="did you mean 'hidden'"):
        OnlineClassifier("mir", settings={"hiden": 5})
    with pytest.raises(ValueError, match="there are 2 records but 1 label$"):
        CoPEClassifier().learn_many(pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([1]))
    with pytest.raises(ValueError, match="must hold only numbers; encode the other columns first"):
        CoPEClassifier().learn_many(pd.DataFrame({"a": ["red", "green"]}), pd.Series([1, 2]))


def test_without_river_a_sentence_says_what_to_install():
    code = "import sys; sys.modules['river'] = None; import everlearn.adapters.river"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'everlearn[river]'" in done.stderr.splitlines()[-1]


def test_every_learner_by_name_is_taken_or_refused_in_words():
    for name in learners.registry():
        try:
            assert isinstance(OnlineClassifier(name).learner_, Learner)
        except ValueError as error:
            assert "needs to know" in str(error)  # noqa: PT017


@pytest.mark.parametrize("kind", [CoPEClassifier, OnlineClassifier])
def test_a_misspelt_parameter_is_named_with_the_nearest(kind):
    right = {CoPEClassifier: "hidden", OnlineClassifier: "settings"}[kind]
    wrong = right.replace("dd", "d").replace("tt", "t")
    with pytest.raises(
        TypeError, match=rf"^{kind.__name__} has no parameter '{wrong}'; did you mean '{right}'\?"
    ):
        kind(**{wrong: 16})


def test_a_checked_parameter_is_still_seen_by_river():
    model = CoPEClassifier(hidden=16, seed=3)
    assert model._get_params()["hidden"] == 16
    assert model.clone().hidden == 16


@pytest.mark.parametrize("columns", [[0, 1, 2], ["a", 1, ("b", 2)]])
def test_columns_of_a_dataframe_may_be_named_by_anything(columns):
    frame = pd.DataFrame(np.eye(3), columns=columns)
    model = CoPEClassifier(hidden=8, batch_size=3, seed=0)
    model.learn_many(frame, pd.Series(["x", "y", "z"]))
    assert len(model.predict_many(frame)) == 3


@pytest.mark.parametrize(
    "values", [np.eye(3)[::-1], np.eye(3).astype(">f4"), np.eye(3).astype(">i2")[:, ::-1]]
)
def test_arrays_in_another_byte_order_or_read_backwards_are_taken(values):
    model, other = (CoPEClassifier(hidden=8, batch_size=3, seed=0) for _ in range(2))
    model.learn_many(pd.DataFrame(values), pd.Series(["x", "y", "z"]))
    other.learn_many(pd.DataFrame(np.array(values, np.float64)), pd.Series(["x", "y", "z"]))
    assert model.predict_proba_one({0: 1.0}) == other.predict_proba_one({0: 1.0})


def test_a_record_that_is_too_large_stops_neither_itself_nor_later_ones():
    model = CoPEClassifier(hidden=8, seed=0)
    with pytest.raises(ValueError, match="the feature 't' is 10000000000000.0"):
        model.learn_one({"t": 1e13}, "a")
    for moment in range(12):
        model.learn_one({"t": float(moment)}, "a")
    assert (model.learner_.samples, model.waiting) == (10, 2)


def as_it_is(x):
    return x


def test_a_function_of_ones_own_in_the_settings_stays_in_a_pickle_and_when_features_come(segments):
    model = OnlineClassifier("reservoir", seed=0, settings={"hidden": 8, "augmentation": as_it_is})
    for x, y in segments[:15]:
        model.learn_one(x, y)
    twin = pickle.loads(pickle.dumps(model))
    for each in (model, twin):
        each.learn_many(
            pd.DataFrame([{f"new {number}": 1.0 for number in range(50)}] * 10), pd.Series([0] * 10)
        )
    assert twin.learner_.settings.augmentation is as_it_is
    assert twin.predict_proba_one(segments[20][0]) == model.predict_proba_one(segments[20][0])
