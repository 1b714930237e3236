"""Samples that are no plain array: taken where their meaning is clear, else refused by a sentence."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE
from everlearn import learner as named_learner

X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
Y = list("abcabc")


def taught(x=X):
    learner = CoPE(hidden=8, embedding=4, memory_size=20, device="cpu")
    learner.observe(x, Y[: len(x)])
    return learner


def refusal(x, y=None):
    """The sentence with which `observe` refuses these samples, after which the learner is as it was."""
    learner = taught()
    before = learner.state_dict()
    with pytest.raises(ValueError) as caught:
        learner.observe(x, Y[: len(x)] if y is None else y)
    assert same_state(before, learner.state_dict())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "x",
    [["hello", "you"], np.array(["hello", "you"]), pd.Series(["hello", "you"]), pl.Series(["hello", "you"])],
)
def test_texts_without_an_encoder_are_told_to_need_one(x):
    assert "not texts: texts need an encoder, such as encoder='wordllama'" in refusal(x)


@pytest.mark.parametrize(
    ("x", "sentence"),
    [
        ([[1, 2, 3], [1, 2]], "samples of one size, but sample 0 is of shape [3], and sample 1 of [2]"),
        ([np.zeros(3), np.zeros(2)], "sample 0 is of shape [3], and sample 1 of [2]"),
        ([torch.zeros(3), torch.zeros(2)], "sample 0 is of shape [3], and sample 1 of [2]"),
        ([[1, 2, 3], [1, None, 3]], "got no value (None) in x, sample 1: fill it in"),
        ([[1, 2, "red"]], "got the text 'red' in x, sample 0: give columns of text in a DataFrame"),
        (np.array([[1, 2, 3]], object), "an array of numbers, not of object: give x.astype(np.float32)"),
        (np.array([[1, 2, b"a"]], object), "sample 0 has a value of type bytes"),
        (np.array(["2026-01-01"], "M8[D]"), "sample 0 has a value of type date"),
        ({"a": 1.0}, "takes a batch of samples: give a list of dicts, such as [x]"),
    ],
)
def test_a_wrong_value_is_named(x, sentence):
    assert sentence in refusal(x)


@pytest.mark.parametrize(
    "x",
    [
        np.full((2, 3), 1e300),
        torch.full((2, 3), 1e300, dtype=torch.float64),
        [[1e300] * 3] * 2,
        [[10**30] * 3] * 2,
    ],
)
def test_values_beyond_float32_are_too_large_rather_than_infinite(x):
    assert "values in x larger than 1e+12" in refusal(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_called_so(bad):
    assert "NaN or infinite values in x" in refusal(np.full((2, 3), bad))


@pytest.mark.parametrize(
    "given",
    [
        [torch.from_numpy(row) for row in X],
        tuple(torch.from_numpy(row) for row in X),
        [torch.from_numpy(row).requires_grad_() for row in X],
        list(X),
        list(X.astype(">f4")),
    ],
)
def test_samples_in_a_list_are_stacked(given):
    assert same_state(taught(given).state_dict(), taught(X).state_dict())


def test_bytes_in_a_list_stay_bytes():
    x = np.arange(18, dtype=np.uint8).reshape(6, 3)
    for given in (list(x), [torch.from_numpy(row) for row in x]):
        assert taught(given).sample_type == torch.uint8


@pytest.fixture
def every_warning():
    """torch would give each of its warnings once in a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def read_only(x):
    copy = x.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("given", [read_only(X), list(X), np.broadcast_to(X[:1], (6, 3))])
def test_valid_arrays_come_without_warnings(given, every_warning):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taught(given).predict(given)


def test_a_read_only_array_is_never_written_to():
    network = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 4))
    given = read_only(X)
    CoPE(network, memory_size=20, device="cpu").observe(given, Y)
    assert np.array_equal(given, X)


# Masked values.


def test_a_masked_value_is_missing():
    masked = np.ma.masked_greater(X, 0.5)
    for given in (masked, list(masked)):
        assert "got a masked value in x, which is a missing one" in refusal(given)


def test_a_masked_value_does_not_reach_an_encoder():
    learner = CoPE(encoder=lambda x: np.asarray(x, np.float32), device="cpu")
    with pytest.raises(ValueError, match="got a masked value in x"):
        learner.observe(np.ma.masked_greater(X, 0.5), Y)


def test_a_masked_array_in_which_nothing_is_masked_is_taken():
    assert same_state(taught(np.ma.masked_greater(X, 1e9)).state_dict(), taught().state_dict())


def test_a_masked_weight_is_refused():
    weights = np.ma.masked_greater(np.arange(6.0), 4)
    with pytest.raises(ValueError, match="got a masked value in sample_weight"):
        taught().observe(X, Y, sample_weight=weights)


# Labels.


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("made", [pd.DataFrame, pl.DataFrame])
def test_a_frame_of_labels_is_refused_with_the_column_to_give(made, rows):
    sentence = refusal(X[:rows], made({"label": Y[:rows]}))
    assert f"not of shape [{rows}, 1]: give a column of the DataFrame itself, y['label']" in sentence


def test_a_frame_of_labels_is_refused_where_labels_may_be_missing():
    learner = CoPE(hidden=8, device="cpu", missing_labels="skip")
    with pytest.raises(ValueError, match="give a column of the DataFrame itself"):
        learner.observe(X[:1], pd.DataFrame({None: ["f"]}))


# Wording.


def test_one_sample_is_not_called_samples():
    assert refusal(X[:1], ["a", "b"]).endswith("got 1 sample but 2 labels")


def test_a_far_name_is_not_suggested():
    with pytest.raises(TypeError, match="MIR has no setting 'foo' ") as caught:
        named_learner("mir", foo=1)
    assert "did you mean" not in str(caught.value)


def test_three_choices_are_listed_as_one_would_say_them():
    with pytest.raises(ValueError, match="missing_labels must be refuse, skip or class, not 'drop'"):
        CoPE(missing_labels="drop")


def test_lists_that_contain_themselves_are_refused_in_a_sentence():
    endless = [1.0]
    endless.append(endless)
    with pytest.raises(ValueError, match="not lists that are nested without an end"):
        CoPE("mlp", hidden=8, device="cpu").observe([endless], ["a"])


@pytest.mark.parametrize("y", [np.array(3), torch.tensor(3), np.array(np.nan)])
def test_a_single_value_is_no_sequence_of_labels(y):
    with pytest.raises(ValueError, match="y is a sequence of labels, one for each sample"):
        CoPE("mlp", hidden=8, device="cpu").observe([[1.0, 2.0]], y)
