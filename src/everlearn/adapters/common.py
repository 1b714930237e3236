"""What both adapters share: a learner from their parameters, and a learner as something that pickles."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from everlearn import learners
from everlearn.core.learner import Learner
from everlearn.learners.cope import CoPESettings
from everlearn.messages import is_whole, nearest

__all__ = [
    "Frozen",
    "check_batch_size",
    "cope_settings",
    "freeze",
    "known_parameters",
    "make",
    "probabilities",
    "thaw",
]

Initialise = TypeVar("Initialise", bound=Callable[..., None])

Frozen = tuple[type[Learner], str | nn.Module, bytes, str]
"""A learner's class, its network as it was given, its tensors as safetensors, and the meta of its state."""


def make(
    kind: str | type[Learner],
    network: str | nn.Module,
    seed: int,
    device: str,
    settings: dict[str, Any] | None,
) -> Learner:
    """A new learner, by name or by class. A network of one's own is copied, so that the parameter stays as it is."""
    if isinstance(kind, str):
        kind = learners.find(kind)
    return kind(copy.deepcopy(network), seed=seed, device=device, **(settings or {}))


def cope_settings(estimator: Any) -> dict[str, Any]:
    """CoPE's settings, each as the parameter of an estimator that has its name."""
    names = [field.name for field in dataclasses.fields(CoPESettings)]
    return {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}


def known_parameters(initialise: Initialise) -> Initialise:
    """An estimator's `__init__` that refuses a parameter it does not have, and names the nearest that it has."""
    known = list(inspect.signature(initialise).parameters)[1:]

    @functools.wraps(initialise)
    def checked(self: Any, *arguments: Any, **named: Any) -> None:
        for name in named:
            if name not in known:
                raise TypeError(f"{type(self).__name__} has no parameter {name!r}{nearest(name, known)}")
        initialise(self, *arguments, **named)

    return cast(Initialise, checked)


def check_batch_size(batch_size: int) -> None:
    """Refuse what is no number of samples."""
    if not is_whole(batch_size, least=1):
        raise ValueError(f"batch_size must be a whole number, at least 1, not {batch_size!r}")


def freeze(learner: Learner) -> Frozen:
    """All of a learner, by its state: equal learners give equal bytes."""
    from safetensors.torch import save

    state = learner.state_dict()
    meta = str(state.pop("meta"))
    tensors = {name: part.detach().cpu().contiguous() for name, part in state.items()}
    return type(learner), learner.given, save(tensors), meta


def thaw(frozen: Frozen, device: str) -> Learner:
    """The learner that was frozen, exactly as it was."""
    from safetensors.torch import load

    kind, given, tensors, meta = frozen
    told = json.loads(meta)
    learner = kind(given, seed=told["seed"], device=device, **told["settings"])
    learner.load_state_dict({**load(tensors), "meta": meta})
    return learner


def probabilities(learner: Learner, x: Any) -> NDArray[np.float64]:
    """A row per sample over the learner's `classes` that adds up to 1 in double precision."""
    rough = learner.predict_proba(x).astype(np.float64)
    total: NDArray[np.float64] = rough.sum(axis=1, keepdims=True)
    return rough / total
