"""Checks of what a user gives to a live learner, before anything is written."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from torch import Tensor, nn

from everlearn.core import validation
from everlearn.core.learner import Learner
from everlearn.memory.labels import shortened

__all__ = ["as_batch", "check_request_id", "same_length"]


def as_batch(learner: Learner, x: Any, where: str) -> Tensor:
    """The samples as a tensor that the learner takes."""
    samples = validation.as_samples(x, where, keep_integers=isinstance(learner.given, nn.Module))
    validation.check_tensor(samples, where, learner.sample_shape, learner.sample_type)
    return samples


def same_length(first: Sized, of: str, second: Sized, name: str, where: str) -> None:
    """Raise a ValueError if there are not as many of the one as of the other."""
    if len(first) != len(second):
        raise ValueError(f"{where} got {len(first)} {of} but {len(second)} {name}")


def check_request_id(request: Any) -> None:
    """Raise a ValueError for a request id that is not a str."""
    if request is not None and not isinstance(request, str):
        raise ValueError(f"a request id is a str, not {shortened(request)}")
