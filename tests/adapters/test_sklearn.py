"""The learners as scikit-learn's classifiers."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import pydoc
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from small_learners import FAST
from torch import nn

from everlearn import CoPE, learners
from everlearn.adapters.sklearn import EXPECTED_FAILED_CHECKS, CoPEClassifier, OnlineClassifier
from everlearn.learners.cope import CoPESettings

SMALL = {"hidden": 16, "memory_size": 20}


@parametrize_with_checks(
    [CoPEClassifier(hidden=64), OnlineClassifier("reservoir", settings={"hidden": 64})],
    expected_failed_checks=lambda estimator: EXPECTED_FAILED_CHECKS,
)
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def test_few_checks_may_fail_and_each_says_why():
    assert len(EXPECTED_FAILED_CHECKS) <= 3
    assert all(len(reason) > 20 for reason in EXPECTED_FAILED_CHECKS.values())


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(120, 4, centers=3, random_state=0)
    return StandardScaler().fit_transform(x), np.array(["c", "a", "b"])[y]


# Settings of CoPE that make no sense here: a classifier predicts one of its classes from rows of numbers at once.
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
    assert parameters.keys() == expected.keys() | {
        "network",
        "batch_size",
        "epochs",
        "random_state",
        "device",
    }


def test_a_parameter_reaches_the_learner(blobs):
    model = CoPEClassifier(**SMALL, averaging=0.9, replayed=3, clip=1.0, random_state=0).fit(*blobs)
    settings = model.learner_.settings
    assert (settings.averaging, settings.replayed, settings.clip, settings.hidden) == (0.9, 3, 1.0, 16)


@pytest.mark.parametrize("kind", [CoPEClassifier, OnlineClassifier])
def test_help_shows_and_explains_every_parameter(kind):
    page = pydoc.plain(pydoc.render_doc(kind))
    for name, parameter in inspect.signature(kind).parameters.items():
        declared = f"{re.escape(parameter.annotation)}'? = {re.escape(repr(parameter.default))}"
        assert re.search(f"{name}: '?{declared}", page), name
        assert re.search(rf"^ \|  {name}\n \|      [A-Z`].{{10}}", page, re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(learners.registry()))
def test_any_learner_fits_predicts_and_pickles(name, blobs):
    x, y = blobs
    settings = {"hidden": 16, **FAST.get(name, {})}
    model = OnlineClassifier(name, random_state=0, settings=settings).fit(x, y)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))
    for each in (model, twin):
        each.partial_fit(x[:20], y[:20])
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))


def test_classes_are_sorted_and_so_are_the_columns(blobs):
    x, y = blobs
    model = CoPEClassifier(**SMALL, random_state=0).fit(x, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.learner_.classes != [
        "a",
        "b",
        "c",
    ]  # in the order first seen, so that the sorted order is tested
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(x))
    assert model.score(x, y) > 0.9


def test_partial_fit_learns_as_the_learner_does(blobs):
    x, y = blobs
    model = CoPEClassifier(**SMALL, random_state=0, batch_size=10)
    oracle = CoPE("mlp", **SMALL, seed=int(np.random.RandomState(0).randint(2**31 - 1)))
    for start in range(0, 120, 40):
        model.partial_fit(x[start : start + 40], y[start : start + 40])
    for start in range(0, 120, 10):
        oracle.observe(x[start : start + 10], y[start : start + 10])
    assert model.predict(x).tolist() == oracle.predict(x)
    assert torch.equal(model.learner_.state_dict()["prototypes"], oracle.state_dict()["prototypes"])


def test_a_pass_of_fit_is_observed_once_and_then_revisited(blobs):
    x, y = blobs
    model = CoPEClassifier(**SMALL, epochs=3).fit(x, y)
    assert (model.learner_.samples, model.learner_.batches) == (120, 12)
    assert CoPEClassifier(**SMALL, epochs=3, random_state=1).fit(x, y).score(x, y) > 0.9


def test_new_labels_come_at_any_time(blobs):
    x, y = blobs
    model = CoPEClassifier(**SMALL, random_state=0)
    for label in ("c", "a", "b"):
        model.partial_fit(x[y == label], y[y == label])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert set(model.predict(x)) == {"a", "b", "c"}


def test_announced_classes_have_a_column_with_probability_0_until_they_appear(blobs):
    x, y = blobs
    model = CoPEClassifier(**SMALL, random_state=0)
    model.partial_fit(x[y == "b"], y[y == "b"], classes=["a", "b", "a class of a longer name"])
    assert model.classes_.tolist() == ["a", "a class of a longer name", "b"]
    assert model.predict_proba(x[:2]).tolist() == [[0, 0, 1], [0, 0, 1]]
    model.partial_fit(x, y)
    assert model.classes_.tolist() == ["a", "a class of a longer name", "b", "c"]


def test_it_works_in_a_pipeline_a_search_and_cross_validation():
    x, y = load_iris(return_X_y=True)
    model = make_pipeline(StandardScaler(), CoPEClassifier(hidden=32, random_state=0))
    search = GridSearchCV(model, {"copeclassifier__momentum": [0.9, 0.99]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.85
    learner = OnlineClassifier("mir", random_state=0)
    grid = {"settings": [{"hidden": 8, "memory_size": size} for size in (5, 50)]}
    assert GridSearchCV(learner, grid, cv=2).fit(x[::3], y[::3]).best_params_["settings"]["hidden"] == 8
    assert cross_val_score(model, x, y, cv=3).mean() > 0.85


def test_a_clone_is_unfitted_and_has_the_parameters():
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    model = OnlineClassifier("cope", network=network, settings={"memory_size": 7})
    x, y = load_iris(return_X_y=True)
    before = {name: part.clone() for name, part in network.state_dict().items()}
    model.fit(x, y)
    assert all(torch.equal(part, before[name]) for name, part in network.state_dict().items())
    twin = clone(model)
    assert twin.get_params()["settings"] == {"memory_size": 7}
    with pytest.raises(NotFittedError):
        twin.predict(x)


def test_a_network_of_ones_own_pickles():
    x, y = load_iris(return_X_y=True)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = CoPEClassifier(network=network, memory_size=20, random_state=0, epochs=1).fit(x, y)
    twin = pickle.loads(pickle.dumps(model))
    for each in (model, twin):
        each.partial_fit(x, y)
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))


def test_parameters_set_after_fit_do_not_stop_a_pickle(blobs):
    model = CoPEClassifier(**SMALL, random_state=0).fit(*blobs).set_params(memory_size=50)
    twin = pickle.loads(pickle.dumps(model))
    assert twin.memory_size == 50 and twin.learner_.settings.memory_size == 20


def test_for_a_learner_that_needs_tasks_each_call_of_partial_fit_is_one(blobs):
    x, y = blobs
    model = OnlineClassifier("gem", random_state=0, settings={"tasks": 3, "hidden": 16, "memory_size": 30})
    for label in ("a", "b", "c"):
        model.partial_fit(x[y == label], y[y == label])
    assert model.learner_.memory.tasks == [0, 1, 2]
    with pytest.raises(ValueError, match="created with tasks=3"):
        model.partial_fit(x, y)


REFUSED = [
    ({"batch_size": 0}, "batch_size must be a whole number, at least 1, not 0"),
    ({"batch_size": 2.5}, "batch_size must be a whole number, at least 1, not 2.5"),
    ({"epochs": 0}, "epochs must be a whole number, at least 1, not 0"),
    ({"epochs": "ten"}, "epochs must be a whole number, at least 1, not 'ten'"),
    ({"momentum": 2.0}, "momentum must be between 0 and 1, not 2.0"),
    ({"memory_size": 2}, "a memory of 2 has no room for an exemplar of each of 3 classes"),
]


@pytest.mark.parametrize(("parameters", "words"), REFUSED)
def test_a_bad_parameter_gets_a_sentence(parameters, words, blobs):
    with pytest.raises(ValueError, match=words):
        CoPEClassifier(**parameters).fit(*blobs)


def test_an_unknown_learner_or_setting_gets_a_sentence(blobs):
    with pytest.raises(ValueError, match="did you mean 'mir'"):
        OnlineClassifier("mirr").fit(*blobs)
    with pytest.raises(TypeError, match="did you mean 'memory_size'"):
        OnlineClassifier("mir", settings={"memory": 5}).fit(*blobs)


def test_what_is_refused_leaves_the_model_as_it_was(blobs):
    x, y = blobs
    model = CoPEClassifier(hidden=16, memory_size=3, random_state=0).fit(x, y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="no room"):
        model.partial_fit(x[:30], [*y[:29], "d"])
    with pytest.raises(ValueError, match="numbers and text"):
        model.partial_fit(x[:30], np.arange(30) % 2)
    assert pickle.dumps(model) == before


def test_a_refused_fit_leaves_the_model_as_it_was(blobs):
    x, y = blobs
    model = CoPEClassifier(hidden=16, random_state=0).fit(x, y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(np.zeros((2, 7)), [0.5, 1.5])
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_model_whose_first_samples_were_refused_is_not_fitted(learn, blobs):
    model = CoPEClassifier(hidden=16)
    with pytest.raises(ValueError, match="Unknown label type"):
        getattr(model, learn)(np.zeros((2, 7)), [0.5, 1.5])
    with pytest.raises(NotFittedError):
        model.predict(np.zeros((2, 7)))


@pytest.mark.parametrize("classes", [["d", None], np.array([["a", "d"]]), {"a", "d"}, "ad", 5])
def test_announced_classes_that_are_no_list_of_labels_are_refused_before_anything_is_learnt(classes, blobs):
    model = CoPEClassifier(hidden=16, random_state=0).partial_fit(*blobs)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="classes is a list or an array of labels, not"):
        model.partial_fit(*blobs, classes=classes)
    assert pickle.dumps(model) == before


def test_announced_classes_of_several_kinds_are_refused_before_anything_is_learnt(blobs):
    model = CoPEClassifier(hidden=16, random_state=0).partial_fit(*blobs)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="all labels must be of one kind, but there are text and others"):
        model.partial_fit(*blobs, classes=np.array(["a", 1], object))
    assert pickle.dumps(model) == before


def test_a_weight_too_large_in_a_later_batch_is_refused_before_anything_is_learnt(blobs):
    x, y = blobs
    model = CoPEClassifier(hidden=16, random_state=0).partial_fit(x, y)
    before = pickle.dumps(model)
    with pytest.raises(
        ValueError, match=r"takes a sample_weight of at least 0 and at most 1e\+06, not 2e\+06"
    ):
        model.partial_fit(x, y, sample_weight=[*[1.0] * (len(y) - 1), 2e6])
    assert pickle.dumps(model) == before


def test_labels_of_64_bits_with_and_without_a_sign_stay_exact():
    x, large = np.eye(2), [2**60 + 1, 2**60 + 2]
    model = CoPEClassifier(hidden=8, random_state=0).partial_fit(x, np.array(large, np.uint64), classes=[1])
    assert model.classes_.tolist() == [1, *large] and set(model.predict(x).tolist()) <= {*large}


def test_a_function_of_ones_own_in_the_settings_stays_in_a_pickle(blobs):
    settings = {"hidden": 8, "memory_size": 20, "augmentation": torch.sigmoid}
    model = OnlineClassifier("reservoir", random_state=0, settings=settings).partial_fit(*blobs)
    twin = pickle.loads(pickle.dumps(model)).partial_fit(*blobs)
    assert twin.learner_.settings.augmentation is torch.sigmoid
    np.testing.assert_array_equal(
        twin.predict_proba(blobs[0]), model.partial_fit(*blobs).predict_proba(blobs[0])
    )


def test_an_encoder_in_the_settings_stays_in_a_pickle(blobs):
    settings = {"hidden": 8, "memory_size": 20, "encoder": nn.Linear(4, 3)}
    model = OnlineClassifier("cope", random_state=0, settings=settings).partial_fit(*blobs)
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(blobs[0]), model.predict_proba(blobs[0]))


def test_a_learner_that_would_diverge_says_so():
    x = np.array([[1e6], [-1e6]] * 20)
    settings = {"learning_rate": 1e6, "clip": None, "standardise": False}
    model = OnlineClassifier("finetune", random_state=0, settings=settings)
    with pytest.raises(ValueError, match="would make the network's weights infinite or NaN.*scale x"):
        model.fit(x, [0, 1] * 20)


def test_none_of_these_is_no_answer_of_scikit_learns():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="unknown can't be set here"):
        OnlineClassifier("cope", settings={"unknown": 0.1, "hidden": 16}).fit(X, y)


@pytest.mark.parametrize("kind", [CoPEClassifier, OnlineClassifier])
def test_a_misspelt_parameter_is_named_with_the_nearest(kind):
    with pytest.raises(
        TypeError, match=rf"^{kind.__name__} has no parameter 'epoch'; did you mean 'epochs'\?"
    ):
        kind(epoch=3)


def test_a_dataframe_with_columns_named_by_numbers_is_taken():
    frame = pd.DataFrame(np.eye(4), columns=[10, 20, 30, 40])
    model = CoPEClassifier(hidden=8, random_state=0).fit(frame, [0, 1, 0, 1])
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.to_numpy()))


def test_columns_named_by_words_and_by_numbers_are_refused_in_one_sentence():
    frame = pd.DataFrame(np.eye(4), columns=["a", 1, "b", 2])
    sentence = r"^the columns of X are named by int and str; use strings for all of them, X.columns = "
    with pytest.raises(TypeError, match=sentence):
        CoPEClassifier(hidden=8).fit(frame, [0, 1, 0, 1])
    model = CoPEClassifier(hidden=8).partial_fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(TypeError, match=sentence):
        model.predict(frame)


@pytest.mark.parametrize("X", [np.eye(4)[::-1], np.eye(4).astype(">f8"), np.eye(4).astype(">u2")[:, ::-1]])
def test_arrays_in_another_byte_order_or_read_backwards_are_taken(X):
    y = np.array([0, 1, 0, 1])
    strange = CoPEClassifier(hidden=8, random_state=0).fit(X, y.astype(">i8")[::-1])
    plain = CoPEClassifier(hidden=8, random_state=0).fit(np.array(X, np.float64), y[::-1].copy())
    np.testing.assert_array_equal(strange.predict_proba(X), plain.predict_proba(np.array(X, np.float64)))


def mixed_frame(count=40, seed=0):
    """Rows of a number and a city, which decides the label."""
    random = np.random.default_rng(seed)
    city = random.choice(["Oslo", "Rome"], count)
    return pd.DataFrame({"size": random.normal(50, 10, count), "city": city}), np.where(city == "Oslo", 0, 1)


def test_a_frame_with_text_is_encoded_by_the_learner():
    X, y = mixed_frame()
    model = CoPEClassifier(hidden=16, random_state=0, epochs=3).fit(X, y)
    assert model.feature_names_in_.tolist() == ["size", "city"]
    assert model.score(*mixed_frame(seed=1)) > 0.9
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    model.partial_fit(X.assign(city="Lima"), y)  # a new city at any time
    assert "Lima" in model.learner_.columns.categories[1]


def test_a_wrong_frame_is_refused_before_anything_is_learnt():
    X, y = mixed_frame()
    model = CoPEClassifier(hidden=16, random_state=0).partial_fit(X, y)
    before = model.learner_.state_dict()["meta"]
    with pytest.raises(
        ValueError, match="The feature names should match"
    ):  # scikit-learn's rule, also for the order
        model.partial_fit(X[["city", "size"]], y)
    with pytest.raises(ValueError, match="no value in the column 'size', row 39"):
        model.partial_fit(X.assign(size=[*X["size"][:-1], np.nan], city="Lima"), y)
    assert model.learner_.state_dict()["meta"] == before


def test_after_a_frame_with_text_an_array_is_refused_in_one_sentence():
    X, y = mixed_frame()
    model = CoPEClassifier(hidden=16, random_state=0).partial_fit(X, y)
    for array in (X.to_numpy(), np.zeros((3, 2))):
        with pytest.raises(ValueError, match="takes a DataFrame, as the first one, not ndarray"):
            model.predict(array)


def test_text_in_a_column_that_held_numbers_is_refused_by_its_name():
    X, y = mixed_frame()
    model = CoPEClassifier(hidden=16, random_state=0).fit(X.assign(city=1.0), y)
    with pytest.raises(ValueError, match="takes numbers in the column 'city', as in the first samples"):
        model.predict(X)


def test_a_frame_with_text_and_without_rows_is_refused_in_one_sentence():
    X, y = mixed_frame()
    with pytest.raises(ValueError, match="CoPEClassifier got a DataFrame without rows"):
        CoPEClassifier(hidden=16).fit(X[:0], y[:0])


def test_weights_of_zero_are_left_out_and_others_count():
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    weights = np.where(np.arange(20) < 10, 1.0, 0.0)
    part, less = (CoPEClassifier(hidden=8, random_state=0) for _ in range(2))
    part.partial_fit(X, y, sample_weight=weights)
    less.partial_fit(X[:10], y[:10], sample_weight=weights[:10])
    np.testing.assert_array_equal(part.predict_proba(X), less.predict_proba(X))
    heavy = CoPEClassifier(hidden=8, random_state=0).partial_fit(X, y, sample_weight=np.arange(1.0, 21))
    assert not np.array_equal(
        heavy.predict_proba(X), CoPEClassifier(hidden=8, random_state=0).partial_fit(X, y).predict_proba(X)
    )
    with pytest.raises(ValueError, match="at least one non-zero number"):
        less.partial_fit(X, y, sample_weight=np.zeros(20))


@pytest.mark.parametrize(
    "y",
    [
        ["a", None, "b"],
        np.array(["a", None, "b"], object),
        pd.Series(["a", None, "b"]),
        pl.Series(["a", None, "b"]),
        pl.Series(["a", None, "b"], dtype=pl.Categorical),
        ["a", np.nan, "b"],
    ],
)
@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_missing_label_among_texts_is_a_sentence(learn, y):
    with pytest.raises(ValueError, match="y has no label .* for sample 1: leave such samples out"):
        getattr(CoPEClassifier(hidden=8), learn)(np.zeros((3, 2)), y)


def test_a_masked_value_is_refused():
    X = np.ma.masked_greater(np.arange(6.0).reshape(3, 2), 4)
    with pytest.raises(ValueError, match="got a masked value in x"):
        CoPEClassifier(hidden=8).fit(X, list("aba"))


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"learner": None}, "learner must be the name of a learner, .* not None"),
        ({"learner": int}, "or a subclass of Learner, not <class 'int'>"),
        ({"settings": [1]}, r"settings must be a dict of settings by name, .* not \[1\]"),
        ({"settings": {1: 2}}, "settings must be a dict of settings by name"),
        ({"settings": {"device": "cpu"}}, "settings can't have 'device'"),
    ],
)
def test_what_is_no_learner_or_no_settings_is_a_sentence(parameters, words, blobs):
    with pytest.raises(ValueError, match=words):
        OnlineClassifier(**parameters).fit(*blobs)
