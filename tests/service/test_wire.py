"""How labels and samples travel: everything comes back as it was, and nothing else is accepted."""

import contextlib
import io
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import UNKNOWN
from everlearn.service import wire

PLAIN = st.one_of(
    st.text(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.booleans(), st.none(), st.binary()
)
LABELS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


@given(st.lists(st.one_of(LABELS, st.just(UNKNOWN)), max_size=5))
def test_labels_of_every_type_come_back_as_they_were(labels):
    back = wire.decode_labels(json.loads(json.dumps(wire.encode_labels(labels))))
    assert back == labels
    assert [type(label) for label in back] == [type(label) for label in labels]


@pytest.mark.parametrize("code", [{"bytes": "zz"}, {"float": 3}, {"a": 1, "b": 2}, {"pickle": "00"}, {}])
def test_an_object_that_is_no_label_is_refused(code):
    with pytest.raises(wire.WireError, match="which is not a label"):
        wire.decode_labels([code])


def npy(array, **options):
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "float64", "int64", "bool", ">f4"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_comes_back_from_npy_and_safetensors(dtype, order):
    x = np.arange(24).reshape(2, 3, 4).astype(dtype, order=order)
    found = wire.decode(npy(x), wire.NPY, {"y": '["a", 2]'})
    np.testing.assert_array_equal(found["x"], x)
    assert found["y"] == ["a", 2]
    if dtype != ">f4":
        fields = {"y": ["a", {"bytes": "00"}], "request_id": "7"}
        found = wire.decode(wire.encode_arrays(x, fields), wire.SAFETENSORS, {})
        np.testing.assert_array_equal(found.pop("x"), x)
        assert found == fields


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x93NUMPY",
        npy(np.zeros(4))[:-1],
        npy(np.zeros(4)) + b"\0",
        npy(np.array([object()], dtype=object), allow_pickle=True),
        npy(np.array(["a"])),
        npy(np.zeros(2)).replace(b"(2,)", b"(9,)"),
        pickle.dumps([1]),
    ],
)
def test_a_broken_or_pickled_npy_is_refused(content):
    with pytest.raises(wire.WireError, match=r"npy|bytes given"):
        wire.decode(content, wire.NPY, {})


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_in_words_or_read(content):
    for kind in (wire.JSON, wire.NPY, wire.SAFETENSORS):
        with contextlib.suppress(wire.WireError):
            assert isinstance(wire.decode(content, kind, {}), dict)


def test_a_safetensors_body_of_another_type_is_refused():
    import torch
    from safetensors.torch import save

    with pytest.raises(wire.WireError, match="x is of type BF16"):
        wire.decode(save({"x": torch.zeros(2, dtype=torch.bfloat16)}), wire.SAFETENSORS, {})


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"[]", "must be a JSON object, not a list"),
        (b"{", "not valid JSON"),
        (b'{"x": [[1, 2], [3]]}', "samples of one shape"),
        (b'{"x": [["a"]]}', "samples of one shape"),
        (b'{"x": [[1, null]]}', "x has a null: fill it in"),
        (b'{"x": [[NaN]]}', "NaN is not a number"),
        (b'{"x": ' + b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_json_body_that_is_no_batch_is_refused(body, sentence):
    with pytest.raises(wire.WireError, match=sentence):
        wire.decode(body, wire.JSON, {})


@pytest.mark.parametrize("body", [b'{"y": [1e400]}', b'{"y": ["a", [-1e400]]}', b'{"ids": [1e400]}'])
def test_a_number_too_large_for_a_float_is_no_label(body):
    fields = wire.decode(body, wire.JSON, {})
    with pytest.raises(wire.WireError, match="has a number beyond those of 64 bits"):
        wire.decode_labels(next(iter(fields.values())))
    assert wire.decode_labels(wire.encode_labels([math.inf, -math.inf])) == [math.inf, -math.inf]


TWICE = [
    (b'{"y": ["a"], "y": ["b"]}', wire.JSON, {}, "the body is not valid JSON: the name 'y' appears twice"),
    (b'{"x": [{"a": 1, "a": 2}]}', wire.JSON, {}, "the body is not valid JSON: the name 'a' appears twice"),
    (b'{"y": [{"bytes": "00", "bytes": "ff"}]}', wire.JSON, {}, "the name 'bytes' appears twice"),
    (npy(np.zeros((1, 2))), wire.NPY, {"x": "[[1, 2]]"}, "the field 'x' is given twice"),
    (
        wire.encode_arrays(np.zeros((1, 2)), {"y": [1]}),
        wire.SAFETENSORS,
        {"y": "[2]"},
        "the field 'y' is given",
    ),
    (
        wire.encode_arrays(np.zeros((1, 2)), {"x": [[1, 2]]}),
        wire.SAFETENSORS,
        {},
        "the field 'x' is given twice",
    ),
]


@pytest.mark.parametrize(("content", "kind", "query", "sentence"), TWICE)
def test_what_is_given_twice_is_refused(content, kind, query, sentence):
    with pytest.raises(wire.WireError, match=sentence):
        wire.decode(content, kind, query)
