import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everlearn.memory.labels import LabelTable, as_labels, decode_label, encode_label

plain = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False)
labels = st.recursive(plain, lambda parts: st.lists(parts, max_size=3).map(tuple), max_leaves=5)


@given(labels)
def test_a_label_survives_json_with_its_type(label):
    copy = decode_label(json.loads(json.dumps(encode_label(label))))
    assert copy == label
    assert repr(copy) == repr(label)


def test_slots_are_given_in_the_order_first_seen():
    table = LabelTable()
    assert [table.add(label) for label in ("b", "a", "b", None)] == [0, 1, 0, 2]
    assert table.labels == ["b", "a", None]
    assert table.new(["c", "a", "c", "d"]) == ["c", "d"]


@pytest.mark.parametrize(
    "y", [np.array([1, 2]), torch.tensor([1, 2]), [1, 2], (1, 2), [np.int64(1), np.int64(2)]]
)
def test_arrays_tensors_and_sequences_count_by_their_values(y):
    assert as_labels(y) == [1, 2]
    assert {type(label) for label in as_labels(y)} == {int}


@pytest.mark.parametrize("y", [[object()], [[1]], [{1}], [{"a": 1}], [1 + 2j], [(1, [2])]])
def test_a_label_of_a_foreign_type_is_named(y):
    with pytest.raises(ValueError, match="a label is a str, int, float, bool, bytes, None or a tuple"):
        as_labels(y)


def test_nan_is_not_a_valid_label():
    with pytest.raises(ValueError, match="NaN is not a valid label"):
        as_labels(np.array([1.0, np.nan]))


@pytest.mark.parametrize("y", ["cat", b"cat", 3, None])
def test_a_single_label_is_no_batch_of_labels(y):
    with pytest.raises(ValueError, match="y is a sequence of labels"):
        as_labels(y)


@pytest.mark.parametrize("y", [np.zeros((2, 1)), torch.zeros(2, 1)])
def test_labels_in_a_column_are_refused_with_what_to_give(y):
    with pytest.raises(ValueError, match=r"not of shape \[2, 1\]: give y\[:, 0\]"):
        as_labels(y)
