"""One file per method. A file put here is found by its learner's `name`, on the command line and in the tests."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable

from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.checkpoint import CheckpointError
from everlearn.core.learner import OWN_NETWORK, Learner
from everlearn.core.settings import OWN_FUNCTION
from everlearn.core.state import read_meta
from everlearn.messages import nearest

__all__ = ["find", "load", "registry"]


@functools.cache
def registry() -> dict[str, type[Learner]]:
    """Every learner there is, by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    found: list[type[Learner]] = list(Learner.__subclasses__())
    for learner in found:
        found += learner.__subclasses__()
    own = [
        learner for learner in found if learner.__module__.startswith(__name__) and "name" in vars(learner)
    ]
    return {learner.name: learner for learner in sorted(own, key=lambda learner: learner.name)}


def find(name: str) -> type[Learner]:
    """The learner of this name."""
    if name not in registry():
        raise ValueError(f"there is no learner {name!r}{nearest(name, registry())}")
    return registry()[name]


def load(
    path: str | os.PathLike[str],
    network: nn.Module | None = None,
    device: str = "auto",
    augmentation: Callable[[Tensor], Tensor] | None = None,
) -> Learner:
    """The learner that `save` wrote, exactly as it was.

    network: the module it was made with, if that was one of your own; its weights are overwritten.
    augmentation: the function it was made with, if that was one of your own.
    """
    state = checkpoint.read(path)
    meta = read_meta(state)
    own = str(meta["network"]).startswith(OWN_NETWORK)
    if own and network is None:
        raise CheckpointError(
            f"{os.fspath(path)} was saved with a network of your own: load(path, network=...)"
        )
    if not own and network is not None:
        raise CheckpointError(
            f"{os.fspath(path)} was saved with the network {meta['network']!r}, which it rebuilds itself"
        )
    settings = meta["settings"]
    if str(settings.get("augmentation")).startswith(OWN_FUNCTION):
        if augmentation is None:
            raise CheckpointError(
                f"{os.fspath(path)} was saved with an augmentation of your own: load(path, augmentation=...)"
            )
        settings = settings | {"augmentation": augmentation}
    try:
        learner = find(meta["learner"])(
            network or meta["network"], seed=meta["seed"], device=device, **settings
        )
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{os.fspath(path)} can't be taken up: {error}") from None
    learner.load_state_dict(state)
    return learner
