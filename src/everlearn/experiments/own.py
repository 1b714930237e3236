"""What a job uses of the user's own: learners, networks and streams, as objects or by names that are imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from everlearn import learners, networks
from everlearn.core.learner import Learner
from everlearn.experiments.code_version import code_version
from everlearn.import_names import import_named, is_import_name
from everlearn.randomness import DrawFrom
from everlearn.streams import names as stream_names
from everlearn.streams import own_streams
from everlearn.streams.base import Stream
from everlearn.streams.own_streams import accepts

__all__ = ["Own", "kind_of", "make_own_learner", "versions"]


@dataclasses.dataclass(frozen=True)
class Own:
    """Objects that stand for the names in a job; None where the name itself is known.

    learner: a subclass of Learner, or a function of `seed`, `stream` and `device` (as far as it has such parameters)
        that returns a learner. stream: a function of `seed` that returns a stream. network: a function that returns
        an nn.Module.
    """

    learner: Callable[..., Any] | None = None
    stream: Callable[..., Any] | None = None
    network: Callable[..., Any] | None = None


def make_own_learner(
    make: Callable[..., Any], stream: Stream, seed: int, device: str, settings: Mapping[str, Any]
) -> Learner:
    """The learner of a class or function of the user's; what a function draws comes from the seed."""
    if isinstance(make, type):
        return make(seed=seed, device=device, **settings)  # type: ignore[no-any-return]
    given = {"seed": seed, "stream": stream, "device": device} | dict(settings)
    for name in settings:
        if not accepts(make, name):
            raise ValueError(
                f"the function of the learner has no parameter {name!r}, but the setting was given"
            )
    with DrawFrom(torch.Generator().manual_seed(seed)):
        made = make(**{name: value for name, value in given.items() if accepts(make, name)})
    if not isinstance(made, Learner):
        raise ValueError(f"the function of a learner must return one, not {type(made).__name__}")
    if made.seed != seed:
        raise ValueError(
            f"the function of the learner returned one with the seed {made.seed} when it was called for {seed}: give "
            "it the parameter seed, and pass it on"
        )
    return made


def make_network(make: Callable[..., Any], shape: tuple[int, ...], seed: int) -> nn.Module:
    """The network of a function of the user's, initialised by the seed."""
    from everlearn.networks.catalogue import network_from

    with DrawFrom(torch.Generator().manual_seed(seed)):
        return network_from(make, shape, getattr(make, "__qualname__", "network"))


def versions(learner: str, stream: str, network: Any, own: Own | None) -> dict[str, str]:
    """The version of everything in a job that is not everlearn's, by its part."""
    own = own or Own()
    found: dict[str, Any] = {"learner": own.learner, "stream": own.stream, "network": own.network}
    if own.learner is None and learner not in learners.registry():
        found["learner"] = learners.find(learner)
    if own.stream is None and stream not in stream_names():
        found["stream"] = own_streams.find(stream)
    if own.network is None and isinstance(network, str) and networks.is_own(network):
        found["network"] = import_named(network, "network")
    return {part: code_version(thing) for part, thing in found.items() if thing is not None}


def kind_of(learner: str, own: bool = False) -> type[Learner] | None:
    """The class of a learner in a job or a stored run; None if it is not known here.

    own: whether the name stands for an object of the user's. A stored name never makes a module be imported.
    """
    if own or is_import_name(learner):
        return None
    try:
        return learners.find(learner)
    except ValueError:
        return None
