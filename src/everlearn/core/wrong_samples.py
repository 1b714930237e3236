"""Sentences about samples that can't be read as numbers: which value is the problem, and what to do."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from everlearn.arrays import LARGEST_VALUE
from everlearn.memory.labels import is_missing, shape_of, shortened

__all__ = ["TOO_LARGE", "check_mask", "is_only_too_large", "problem"]

TOO_LARGE = f"got values in x larger than {LARGEST_VALUE:.0e}, which no network can compute with: scale x"
NUMBERS = "takes x as a tensor or an array of numbers, not"
ENCODER = "texts need an encoder, such as encoder='wordllama'"


def check_mask(x: Any, where: str) -> None:
    """Raise a ValueError for an array of numpy, or a list of arrays, in which a value is masked."""
    listed = isinstance(x, (list, tuple)) and len(x) > 0 and isinstance(x[0], np.ndarray)
    if any(np.ma.is_masked(part) for part in (x if listed else [x])):
        raise ValueError(
            f"{where} got a masked value in x, which is a missing one: fill it in, or leave the sample out"
        )


def problem(x: Any) -> str:
    """Why x can't be a tensor, for a sentence that begins with the name of the called method.

    >>> problem([[1.0, 2.0], [3.0, None]])
    'got no value (None) in x, sample 1: fill it in, or leave the sample out'
    >>> problem([[1.0, 2.0], [3.0]])
    'takes samples of one size, but sample 0 is of shape [2], and sample 1 of [1]'
    """
    if isinstance(x, str):
        return f"{NUMBERS} str: {ENCODER}"
    if isinstance(x, Mapping):
        return "takes a batch of samples: give a list of dicts, such as [x]"
    samples = x.tolist() if isinstance(x, np.ndarray) else list(x) if len(shape_of(x)) == 1 else x
    if not isinstance(samples, (list, tuple)):
        return f"{NUMBERS} {type(x).__name__}"
    try:
        return _odd_value(samples) or _odd_shape(samples) or _as_a_whole(x)
    except RecursionError:
        return f"{NUMBERS} lists that are nested without an end"


def _odd_value(samples: Any) -> str | None:
    """The first value that is not a number, or too large for one."""
    for number, sample in enumerate(samples):
        if isinstance(sample, str):
            return f"{NUMBERS} texts: {ENCODER}"
        for value in _values(sample):
            if is_missing(value):
                return f"got no value ({value}) in x, sample {number}: fill it in, or leave the sample out"
            if isinstance(value, str):
                return (
                    f"got the text {shortened(value)} in x, sample {number}: give columns of text in a DataFrame, or "
                    "each sample as a dict of its columns"
                )
            if not isinstance(value, (numbers.Number, np.bool_, Tensor)):
                return f"takes x as numbers, but sample {number} has a value of type {type(value).__name__}"
            if isinstance(value, int) and abs(value) > LARGEST_VALUE:
                return TOO_LARGE
    return None


def _values(sample: Any) -> Iterator[Any]:
    """The values of a sample, at any depth of lists and arrays."""
    if isinstance(sample, np.ndarray):
        sample = sample.tolist()
    if isinstance(sample, (list, tuple)):
        for part in sample:
            yield from _values(part)
    else:
        yield sample


def _odd_shape(samples: Any) -> str | None:
    """The first two neighbours of different shapes."""
    for number, (one, other) in enumerate(itertools.pairwise(_shape(sample) for sample in samples)):
        if one != other:
            places = f"sample {number} is of shape {one}, and sample {number + 1} of {other}"
            return f"takes samples of one size, but {places}"
    return None


def _shape(sample: Any) -> list[int] | str:
    try:
        return list(np.shape(sample))
    except ValueError:
        return "unequal rows"


def _as_a_whole(x: Any) -> str:
    kind = getattr(x, "dtype", None)
    if kind is None:
        return f"{NUMBERS} {type(x).__name__}"
    return f"takes x as an array of numbers, not of {kind}: give x.astype(np.float32)"


def is_only_too_large(x: Any) -> bool:
    """Whether all values of x are finite, although they are not in float32."""
    try:
        wide = x.detach().cpu().double().numpy() if isinstance(x, Tensor) else np.asarray(x, np.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False
    return bool(np.isfinite(wide).all())
