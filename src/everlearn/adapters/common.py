"""Shared by both adapters: create a learner from their parameters, pickle it, check arguments."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn import learners
from everlearn.core.learner import Learner
from everlearn.learners.cope import CoPESettings
from everlearn.memory.labels import shortened
from everlearn.messages import is_whole, nearest

__all__ = [
    "SerializedLearner",
    "check_batch_size",
    "cope_settings",
    "deserialize",
    "make_learner",
    "probabilities",
    "serialize",
    "store_parameters",
]

Initialise = TypeVar("Initialise", bound=Callable[..., None])

SerializedLearner = tuple[type[Learner], str | nn.Module, bytes, str, dict[str, Any]]
"""A learner's class, its network argument, its tensors in safetensors format, the "meta" of its state, and its other
arguments, which may be functions of the user's."""


def make_learner(
    kind: str | type[Learner],
    network: str | nn.Module,
    seed: int,
    device: str,
    settings: dict[str, Any] | None,
) -> Learner:
    """Create a learner by name or class. A module is copied, so that the parameter stays untrained."""
    if isinstance(kind, str):
        kind = learners.find(kind)
    if not (isinstance(kind, type) and issubclass(kind, Learner)):
        raise ValueError(
            f"learner must be the name of a learner, such as 'cope', or a subclass of Learner, not {shortened(kind)}"
        )
    return kind(copy.deepcopy(network), seed=seed, device=device, **_checked_settings(settings))


def _checked_settings(settings: Any) -> dict[str, Any]:
    if settings is None:
        return {}
    if not isinstance(settings, Mapping) or not all(isinstance(name, str) for name in settings):
        raise ValueError(
            f"settings must be a dict of settings by name, such as {{'memory_size': 500}}, not {shortened(settings)}"
        )
    for name in ("network", "seed", "device"):
        if name in settings:
            raise ValueError(f"settings can't have {name!r}, which is a parameter of the classifier itself")
    return dict(settings)


def cope_settings(estimator: Any) -> dict[str, Any]:
    """The settings of CoPE that are parameters of this estimator."""
    parameters = inspect.signature(type(estimator)).parameters
    names = [field.name for field in dataclasses.fields(CoPESettings)]
    return {name: getattr(estimator, name) for name in names if name in parameters}


def store_parameters(initialise: Initialise) -> Initialise:
    """Decorate an estimator's `__init__`: each parameter becomes an attribute, then its body runs.

    Both libraries require this. The error for an unknown parameter suggests the nearest one.
    """
    signature = inspect.signature(initialise)
    known = list(signature.parameters)[1:]

    @functools.wraps(initialise)
    def stored(self: Any, *arguments: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{nearest(name, known)}")
        given = signature.bind(self, *arguments, **named)
        given.apply_defaults()
        for name in known:
            setattr(self, name, given.arguments[name])
        initialise(self, *arguments, **named)

    return cast(Initialise, stored)


def check_batch_size(batch_size: int) -> None:
    """Raise a ValueError if the batch size is not a positive whole number."""
    if not is_whole(batch_size, least=1):
        raise ValueError(f"batch_size must be a whole number, at least 1, not {batch_size!r}")


def serialize(learner: Learner) -> SerializedLearner:
    """The complete state of a learner in a form that pickles; equal learners give equal bytes."""
    from safetensors.torch import save

    state = learner.state_dict()
    meta = str(state.pop("meta"))
    tensors = {name: part.detach().cpu().contiguous() for name, part in state.items()}
    arguments = {**vars(learner.settings), "encoder": learner.encoder}
    return type(learner), learner.given, save(tensors), meta, arguments


def deserialize(serialized: SerializedLearner, device: str) -> Learner:
    """Restore a learner exactly."""
    from safetensors.torch import load

    kind, network, tensors, meta, *given = serialized  # an older version gave no arguments
    about = json.loads(meta)
    arguments = given[0] if given else about["settings"]
    learner = kind(network, seed=about["seed"], device=device, **arguments)
    learner.load_state_dict({**load(tensors), "meta": meta})
    return learner


def probabilities(learner: Learner, x: Any) -> NDArray[np.float64]:
    """One row per sample over the learner's `classes`, which sums to 1 in double precision."""
    scores = learner.predict_proba(x).astype(np.float64)
    total: NDArray[np.float64] = scores.sum(axis=1, keepdims=True)
    return scores / total
