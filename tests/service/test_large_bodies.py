"""Large bodies are read off the event loop, and refused before they are converted if they are beyond the limits."""

import asyncio
import contextlib
import json
import threading

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from everlearn.service import wire
from everlearn.service.json_text import read_json
from everlearn.service.limits import Limits
from everlearn.service.requests import LARGE, Fields, read_request

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=12,
)


def request_of(content):
    """A request with this body of JSON."""
    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}

    async def receive():
        return {"type": "http.request", "body": content, "more_body": False}

    return Request({**scope, "query_string": b""}, receive)


@pytest.mark.parametrize("size", [1, LARGE + 1])
def test_a_large_body_is_decoded_and_checked_in_another_thread(size, monkeypatch):
    threads, decode = [], wire.decode
    monkeypatch.setattr(wire, "decode", lambda *args: threads.append(threading.get_ident()) or decode(*args))

    def read(fields):
        threads.append(threading.get_ident())
        return fields.text("request_id")

    content = json.dumps({"request_id": "7"}).encode() + b" " * size
    assert asyncio.run(read_request(request_of(content), Limits(), ("request_id",), read)) == "7"
    assert [thread == threading.get_ident() for thread in threads] == [size == 1] * 2


@pytest.mark.parametrize("name", ["y", "sample_weight"])
def test_entries_are_counted_before_they_are_converted(name, monkeypatch):
    monkeypatch.setattr(wire, "_decode", lambda *_: pytest.fail("a label was decoded"))
    fields = Fields({name: [0.5] * 11}, Limits(batch=10), from_json=True)
    with pytest.raises(wire.WireError, match=f"{name} has 11 entries, above 10"):
        fields.labels(name) if name == "y" else fields.numbers(name)


def test_a_label_of_many_parts_is_refused_without_reading_them_all():
    code = "a"
    for _ in range(7):
        code = [code] * 1000  # 10**21 letters
    for wrong in (code, {"bytes": code}, [[]] * 5000, "a" * 5000):
        with pytest.raises(wire.WireError, match="y has an entry of more than 1,000 characters"):
            wire.decode_labels([wrong], "y", 1000)
    assert wire.decode_labels([{"bytes": "ff" * 1000}], "y", 1000) == [b"\xff" * 1000]


def test_an_object_that_is_no_label_is_shown_by_its_start():
    with pytest.raises(wire.WireError) as raised:
        wire.decode_labels([{"a": [1] * 1000, "b": 2}])
    assert str(raised.value).startswith('labels has {"a": [1, 1,')
    assert len(str(raised.value)) < 200


def test_samples_are_counted_before_they_are_converted(monkeypatch):
    monkeypatch.setattr(wire, "samples_in", lambda *_: pytest.fail("samples were converted"))
    content = json.dumps({"x": [[1]] * 11}).encode()
    with pytest.raises(wire.WireError, match="x has 11 samples; a request takes 1 to 10 samples"):
        wire.decode(content, wire.JSON, {}, limits=Limits(batch=10))


def test_tensors_are_refused_by_the_header_of_their_file(monkeypatch):
    from safetensors.numpy import save

    x = np.zeros((2, 2), np.float32)
    labels = save({"x": x, "y": np.zeros(11, np.int64)})
    with pytest.raises(wire.WireError, match="y has 11 entries, above 10"):
        wire.decode(labels, wire.SAFETENSORS, {}, ("x", "y"), Limits(batch=10))
    others = save({"x": x, **{f"t{i}": np.zeros(1) for i in range(9)}})
    monkeypatch.setattr(safetensors, "deserialize", lambda _: pytest.fail("tensors were read"))
    with pytest.raises(wire.WireError, match="there is no field 't0'"):
        wire.decode(others, wire.SAFETENSORS, {}, ("x", "y"))


def test_a_long_name_of_a_field_is_not_repeated():
    with pytest.raises(wire.WireError) as raised:
        wire.decode(json.dumps({"a" * 100_000: 1}).encode(), wire.JSON, {}, ("x", "y"))
    assert len(str(raised.value)) < 200


@given(VALUES, st.sampled_from([None, 1]))
def test_json_is_read_as_the_standard_library_does(value, indent):
    text = json.dumps(value, indent=indent)
    assert read_json(text) == value
    assert read_json(f" {text}\n".encode()) == value


@given(st.text(alphabet='[]{}:,"ab1 -.e\\', max_size=12))
def test_what_the_standard_library_refuses_is_refused(text):
    expected = found = None
    with contextlib.suppress(ValueError):
        expected = json.loads(text, object_pairs_hook=repr)
    with contextlib.suppress(ValueError):
        found = read_json(text)
    assert (found is None) == (expected is None) or "twice" in _error(text)


def _error(text):
    try:
        read_json(text)
    except ValueError as error:
        return str(error)
    return ""
