"""Checks of a state before it is loaded: its metadata, its tensors, and the memory that it would need."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from everlearn.checkpoint import CheckpointError, State
from everlearn.core.input_kind import KINDS, PLAIN
from everlearn.memory.labels import shortened

__all__ = ["FORMAT", "check_finite", "check_size", "check_tensors", "read_meta"]

FORMAT = 2


def read_meta(state: State) -> dict[str, Any]:
    """The metadata of a state; raises a CheckpointError if it is not valid."""
    try:
        meta = json.loads(state["meta"])
        version = meta["format"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise CheckpointError("this is not the state of a learner: it has no readable meta") from None
    if version != FORMAT:
        raise CheckpointError(
            f"this state has format {version!r}, but this version of everlearn reads {FORMAT}"
        )
    for name, (kind, expected) in META.items():
        if name not in meta:
            raise CheckpointError(f"this state's meta lacks {name}")
        if not kind(meta[name]):
            raise CheckpointError(f"this state's {name} is {shortened(meta[name])}, expected {expected}")
    if meta.get("input", PLAIN) not in list(KINDS):
        raise CheckpointError(f"this state's input is {shortened(meta['input'])}, expected a kind of samples")
    if not _is_count(meta.get("unlabelled", 0)):
        raise CheckpointError(f"this state's unlabelled is {shortened(meta['unlabelled'])}, expected a count")
    if not isinstance(meta.get("encoder_version", ""), str):
        given = shortened(meta["encoder_version"])
        raise CheckpointError(f"this state's encoder_version is {given}, expected a text")
    return dict(meta)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_shape(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_count, value)) and len(value) <= 16)


SAMPLE_TYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "bool"),
    *("float16", "bfloat16", "float32"),
)
# The metadata of a state: a check of each value, and what is expected.
META: dict[str, tuple[Callable[[Any], bool], str]] = {
    "learner": (lambda value: isinstance(value, str), "a name"),
    "network": (lambda value: isinstance(value, str), "a name"),
    "settings": (lambda value: isinstance(value, dict), "values by name"),
    "seed": (lambda value: type(value) is int, "a whole number"),
    "sample_shape": (_is_shape, "a list of sizes"),
    "sample_type": (
        lambda value: isinstance(value, str) and (value == "None" or value in SAMPLE_TYPES),
        "a type of torch's",
    ),
    "labels": (lambda value: isinstance(value, list), "a list"),
    "batches": (_is_count, "a count"),
    "samples": (_is_count, "a count"),
}
# Settings that determine the size of a network.
SIZES = ("hidden", "embedding", "outputs", "latent", "added", "draws", "tasks")
# A learner may need this many bytes in any case, or this many times the bytes of its state.
FREE, TIMES = 2**26, 16


def check_finite(state: State, infinite: set[str]) -> None:
    """Raise a CheckpointError for infinite or NaN values: learning could not continue.

    infinite: names of the network's tensors that may have such values, as a mask in a buffer; also in a copy of the
        network, or where it is a part of another one.
    """
    allowed = tuple(f".{name}" for name in infinite)
    for name, part in state.items():
        if name == "meta" or name.endswith(allowed) or not part.is_floating_point():
            continue
        if not bool(part.isfinite().all()):
            raise CheckpointError(
                f"{name} has infinite or NaN values: the network has diverged, so load an earlier state"
            )


def check_tensors(state: State) -> None:
    """Raise a CheckpointError if a value of the state is not a plain tensor."""
    for name, part in state.items():
        if name == "meta":
            continue
        plain = isinstance(part, Tensor) and not part.is_nested and part.layout is torch.strided
        if not plain or part.is_quantized or part.is_complex() or part.device.type == "meta":
            raise CheckpointError(f"this state's {name} is not a tensor of plain numbers")


def check_size(state: State, meta: dict[str, Any], numbers: Callable[[], int]) -> None:
    """Raise a CheckpointError if the state would need far more memory than its size, before any is allocated.

    numbers: returns the number of parameters of the network that the settings describe.
    """
    tensors = [part for name, part in state.items() if name != "meta"]
    held, entries = sum(part.nbytes for part in tensors), sum(part.numel() for part in tensors)
    most = max(FREE, TIMES * held)
    sizes = [meta["settings"].get(name) or 0 for name in SIZES]
    too_large = 16 * math.prod(meta["sample_shape"]) > most or max(sizes) > entries + 4096
    if too_large or 4 * numbers() > most:
        raise CheckpointError(
            "this state's settings and sample_shape need far more memory than the size of the state"
        )
