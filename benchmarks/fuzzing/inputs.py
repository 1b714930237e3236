"""Hostile samples, labels, tasks and settings, drawn from a seeded generator."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from everlearn import UNKNOWN

__all__ = ["LABELS", "SAMPLES", "TASKS", "VALUES", "good_labels", "good_samples"]

Kind = Callable[[random.Random, Tensor], Any]


def good_samples(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype, count: int = 4) -> Tensor:
    """Samples as a learner expects them."""
    generator = torch.Generator().manual_seed(rng.getrandbits(40))
    if dtype.is_floating_point:
        return torch.randn(count, *shape, generator=generator).to(dtype)
    return torch.randint(0, 9, (count, *shape), generator=generator).to(dtype)


def good_labels(rng: random.Random, count: int = 4) -> list[str]:
    """Labels that are soon all known."""
    return [rng.choice("abcd") for _ in range(count)]


# Samples. Each takes a good batch and makes something else of it.


class BadArray:
    """Says it is an array, and isn't."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no array after all")


class Kin(str):
    """A string, nearly."""


class Number(enum.IntEnum):
    """An integer, nearly."""

    ONE = 1


def _one_value(value: float, whole: bool = False, dtype: torch.dtype | None = None) -> Kind:
    def change(rng: random.Random, x: Tensor) -> Tensor:
        x = x.to(dtype or torch.get_default_dtype()).clone()
        if whole:
            return torch.full_like(x, value)
        x.view(-1)[rng.randrange(x.numel())] = value
        return x

    return change


def _array(function: Callable[[Any], Any]) -> Kind:
    return lambda rng, x: function(x.float().numpy().copy())


def _of_type(dtype: Any) -> Kind:
    return lambda rng, x: x.float().abs().numpy().astype(dtype)


def _in_inference_mode(rng: random.Random, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return x.clone()


def _frame(x: Tensor, columns: Any) -> Any:
    flat = x.float().flatten(1).numpy()
    return pd.DataFrame(flat, columns=columns(flat.shape[1]))


HUGE = (1e4, 1e5, 1e8, 1e12, 1e20, 1e30, 1e38, 3.4e38)

SAMPLES: dict[str, Kind] = {
    "one feature less": lambda rng, x: x[..., :-1],
    "one feature more": lambda rng, x: torch.cat([x, x[..., :1]], -1),
    "one dimension more": lambda rng, x: x[None],
    "a dimension at the end": lambda rng, x: x[..., None],
    "flat": lambda rng, x: x.flatten(),
    "one number": lambda rng, x: x.flatten()[0],
    "empty": lambda rng, x: x[:0],
    "no features": lambda rng, x: x[..., :0],
    "an empty list": lambda rng, x: [],
    "a single sample": lambda rng, x: x[:1],
    "transposed": lambda rng, x: x.transpose(0, -1),
    "NaN": _one_value(float("nan")),
    "all NaN": _one_value(float("nan"), whole=True),
    "infinite": _one_value(float("inf")),
    "minus infinity": _one_value(float("-inf")),
    "NaN in float64": _one_value(float("nan"), dtype=torch.float64),
    "beyond float32": _one_value(1e300, dtype=torch.float64),
    "all beyond float32": _one_value(-1e39, True, torch.float64),
    "denormal": _one_value(1e-42, whole=True),
    **{f"one value of {value:g}": _one_value(value) for value in HUGE},
    **{f"one value of -{value:g}": _one_value(-value) for value in HUGE},
    **{f"all {value:g}": _one_value(value, whole=True) for value in HUGE},
    "half": lambda rng, x: x.half(),
    "infinite in half": lambda rng, x: (x.float() * 1e30).half(),
    "bfloat16": lambda rng, x: x.bfloat16(),
    "float8": lambda rng, x: x.float().to(torch.float8_e4m3fn),
    "bool": lambda rng, x: x > 0,
    "int8": lambda rng, x: x.to(torch.int8),
    "int64": lambda rng, x: x.to(torch.int64),
    "large int64": lambda rng, x: x.to(torch.int64) + 2**62,
    "smallest int64": lambda rng, x: torch.full(x.shape, -(2**63)),
    "uint16": lambda rng, x: x.float().abs().to(torch.uint16),
    "uint32": lambda rng, x: x.float().abs().to(torch.uint32),
    "uint64": _of_type(np.uint64),
    "complex": lambda rng, x: x.float() + 1j,
    "sparse": lambda rng, x: x.float().to_sparse(),
    "sparse rows": lambda rng, x: x.float().flatten(1).to_sparse_csr(),
    "sparse ints": lambda rng, x: x.to(torch.int64).to_sparse(),
    "on the meta device": lambda rng, x: x.to("meta"),
    "with a gradient": lambda rng, x: x.float().requires_grad_() * 2,
    "a parameter": lambda rng, x: torch.nn.Parameter(x.float()),
    "nested": lambda rng, x: torch.nested.nested_tensor([row.float() for row in x]),
    "quantised": lambda rng, x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "from inference mode": _in_inference_mode,
    "conjugated": lambda rng, x: (x.float() + 0j).conj(),
    "a negative view": lambda rng, x: (x.float() * 1j).conj().imag,
    "expanded": lambda rng, x: x[:1].expand(4, *x.shape[1:]),
    "not contiguous": lambda rng, x: x.repeat(2, *[1] * (x.ndim - 1))[::2],
    "negative strides": _array(lambda x: x[::-1, ..., ::-1]),
    "big-endian": _array(lambda x: x.astype(">f4")),
    "big-endian double": _array(lambda x: x.astype(">f8")),
    "big-endian ints": _array(lambda x: x.astype(">i2")),
    "long double": _array(lambda x: x.astype(np.longdouble)),
    "read-only": _array(lambda x: (x.setflags(write=False), x)[1]),
    "Fortran order": _array(np.asfortranarray),
    "of objects": _array(lambda x: x.astype(object)),
    "of mixed objects": _array(lambda x: np.array([[None, "a", 1]] * len(x), dtype=object)),
    "of strings": _array(lambda x: x.astype(str)),
    "of bytes": _array(lambda x: x.astype("S8")),
    "of dates": _array(lambda x: x.astype("datetime64[s]")),
    "structured": _array(lambda x: np.zeros(len(x), dtype=[("a", "f4"), ("b", "f4")])),
    "masked": _array(lambda x: np.ma.masked_array(x, mask=x > 0)),
    "a matrix": lambda rng, x: np.matrix(x.float().flatten(1).numpy()),
    "a list": lambda rng, x: x.tolist(),
    "a ragged list": lambda rng, x: [row.flatten().tolist()[: i + 1] for i, row in enumerate(x)],
    "a list of tensors": lambda rng, x: list(x),
    "a list of arrays": lambda rng, x: [row.float().numpy() for row in x],
    "a list with None": lambda rng, x: [None, *x.tolist()[1:]],
    "a list with a huge int": lambda rng, x: [[10**400] * 6] * 4,
    "a deep list": lambda rng, x: _deep_list(rng.choice([40, 70, 2000])),
    "None": lambda rng, x: None,
    "a word": lambda rng, x: "hello",
    "bytes": lambda rng, x: b"hello",
    "a dict": lambda rng, x: {"x": x},
    "a set": lambda rng, x: {1, 2},
    "a generator": lambda rng, x: (row for row in x),
    "a range": lambda rng, x: range(4),
    "an object": lambda rng, x: object(),
    "a class": lambda rng, x: Tensor,
    "not an array after all": lambda rng, x: BadArray(),
    "a DataFrame": lambda rng, x: _frame(x, lambda n: [f"c{i}" for i in range(n)]),
    "a DataFrame with integer columns": lambda rng, x: _frame(x, range),
    "a DataFrame of words": lambda rng, x: pd.DataFrame({"a": ["x"] * len(x)}),
    "a Series": lambda rng, x: pd.Series(x.float().flatten().numpy()),
    "a nullable Series": lambda rng, x: pd.Series([1, None, 2, 3], dtype="Int64"),
}


def _deep_list(depth: int) -> Any:
    inside: Any = [1.0]
    for _ in range(depth):
        inside = [inside]
    return inside


# Labels, and ids likewise. Each takes a good list and makes something else of it.


def _nested(depth: int) -> tuple[Any, ...]:
    inside: tuple[Any, ...] = ("a",)
    for _ in range(depth):
        inside = (inside,)
    return inside


def _with(label: Any) -> Callable[[random.Random, list[Any]], Any]:
    return lambda rng, y: [label, *y[1:]]


def _failing(y: list[Any]) -> Iterator[Any]:
    yield y[0]
    raise OSError("the source of labels is gone")


LABELS: dict[str, Callable[[random.Random, list[Any]], Any]] = {
    "one less": lambda rng, y: y[1:],
    "one more": lambda rng, y: [*y, "a"],
    "none": lambda rng, y: [],
    "None alone": lambda rng, y: None,
    "a number": lambda rng, y: 3,
    "a word": lambda rng, y: "abcd",
    "bytes": lambda rng, y: b"abcd",
    "a set": lambda rng, y: set("abcd"),
    "a dict": lambda rng, y: dict.fromkeys("abcd", 1),
    "a generator": lambda rng, y: (label for label in y),
    "a generator that fails": lambda rng, y: _failing(y),
    "a dict's keys": lambda rng, y: dict.fromkeys("abcd").keys(),
    "an array": lambda rng, y: np.array(y),
    "an array of objects": lambda rng, y: np.array([*y[1:], None], dtype=object),
    "two columns": lambda rng, y: np.zeros((4, 2), int),
    "one hot": lambda rng, y: torch.eye(4),
    "a tensor": lambda rng, y: torch.arange(4),
    "a tensor of no dimension": lambda rng, y: torch.tensor(1),
    "a sparse tensor": lambda rng, y: torch.arange(4).to_sparse(),
    "a meta tensor": lambda rng, y: torch.arange(4, device="meta"),
    "a Series": lambda rng, y: pd.Series(y),
    "a categorical": lambda rng, y: pd.Categorical(y),
    "NA": lambda rng, y: pd.Series([1, None, 2, 3], dtype="Int64"),
    "dates": lambda rng, y: np.array(["2020-01-01"] * 4, "datetime64[D]"),
    "masked": lambda rng, y: np.ma.masked_array([1, 2, 3, 4], mask=[0, 1, 0, 0]),
    **{
        name: _with(label)
        for name, label in {
            "10**5000": 10**5000,
            "-10**5000": -(10**5000),
            "10**5000 in a tuple": ("a", (10**5000,)),
            "10**4000": 10**4000,
            "2**64": 2**64,
            "NaN": float("nan"),
            "NaN in a tuple": ("a", float("nan")),
            "infinite": float("inf"),
            "minus zero": -0.0,
            "a subnormal": 5e-324,
            "numpy's NaN": np.float32("nan"),
            "numpy's long double": np.longdouble(1),
            "True": True,
            "None": None,
            "no word": "",
            "a zero byte": "\0",
            "half a surrogate": "\ud800",
            "half a surrogate in a tuple": ("\udfff",),
            "a long word": "x" * 300_000,
            "long bytes": b"x" * 300_000,
            "an empty tuple": (),
            "a list": ["a"],
            "a tuple with a list": ("a", ["b"]),
            "a set": frozenset("a"),
            "nested 10 deep": _nested(10),
            "nested 300 deep": _nested(300),
            "nested 900 deep": _nested(900),
            "nested 5,000 deep": _nested(5000),
            "nested 100,000 deep": _nested(100_000),
            "a wide tuple": tuple(range(20_000)),
            "an object": object(),
            "a class": int,
            "a decimal": decimal.Decimal(1),
            "a fraction": fractions.Fraction(1, 3),
            "complex": 1j,
            "a bytearray": bytearray(b"a"),
            "a date": datetime.date(2020, 1, 1),
            "an IntEnum": Number.ONE,
            "a kind of str": Kin("a"),
            "numpy's str": np.str_("a"),
            "a tensor": torch.tensor(1),
            "an array": np.array([1]),
            "UNKNOWN": UNKNOWN,
            "NotImplemented": NotImplemented,
        }.items()
    },
    "twice the same": lambda rng, y: [y[0]] * len(y),
    "all new": lambda rng, y: [rng.getrandbits(60) for _ in y],
}

# Tasks.
TASKS: list[Any] = [
    10**30, -(10**30), 2**63, 2**63 - 1, -(2**63), -1, True, 1.0, "1", None, float("nan"), np.int64(1),
    np.uint64(2**64 - 1), torch.tensor(1), torch.tensor([1, 2]), object(), 10**5000, (1,), [1], b"1", 1j,
]  # fmt: skip

# Settings, seeds and networks.
VALUES: list[Any] = [
    float("inf"), float("-inf"), float("nan"), -1, 0, -0.0, 1e-300, 1e300, 2.5, 10**12, 10**18, 10**30, 10**400,
    True, False, "x", "", None, [], np.float64("nan"), np.int64(3), np.float16("inf"), 1j, object(), lambda x: x,
]  # fmt: skip
