"""The learners, one file per method. A file added here is found by its learner's `name`."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.checkpoint import CheckpointError
from everlearn.core.display import OWN_NETWORK
from everlearn.core.learner import Learner
from everlearn.core.settings import OWN_FUNCTION
from everlearn.core.state_checks import read_meta
from everlearn.encoders import may_load_by_itself
from everlearn.encoders.base import OWN_ENCODER
from everlearn.import_names import import_named
from everlearn.messages import nearest
from everlearn.networks import is_own

__all__ = ["find", "load", "registry"]

GROUP = "everlearn.learners"  # of entry points


@functools.cache
def registry() -> dict[str, type[Learner]]:
    """All learners of the library, by name."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    ours = [kind for kind in _subclasses() if kind.__module__.startswith(__name__) and "name" in vars(kind)]
    return {kind.name: kind for kind in sorted(ours, key=lambda kind: kind.name)}


def _subclasses() -> list[type[Learner]]:
    """All subclasses of Learner that are imported."""
    found: list[type[Learner]] = list(Learner.__subclasses__())
    for kind in found:
        found += kind.__subclasses__()
    return found


def find(name: str) -> type[Learner]:
    """The learner class with this name: from the library, an entry point of an installed package, or `module:Class`.

    A package adds learners with the entry point group `everlearn.learners`.
    """
    if name in registry():
        return registry()[name]
    if ":" in name:
        return _imported(name)
    return _entry_point(name) or _unknown(name)


def _unknown(name: str) -> type[Learner]:
    known = [*registry(), *(point.name for point in entry_points(group=GROUP))]
    raise ValueError(
        f"there is no learner {name!r}{nearest(name, known)}; for your own class, use module:Class"
    )


def _entry_point(name: str) -> type[Learner] | None:
    found = entry_points(group=GROUP, name=name)
    return None if not found else _checked(next(iter(found)).load(), f"the entry point {name!r}")


def _imported(name: str) -> type[Learner]:
    """The class `module:Class`, also from the working directory."""
    return _checked(import_named(name, "learner"), repr(name))


def _checked(found: Any, what: str) -> type[Learner]:
    if not (isinstance(found, type) and issubclass(found, Learner) and hasattr(found, "name")):
        raise ValueError(f"{what} is not a subclass of everlearn.Learner that sets `name`")
    return found


def _named(name: str) -> type[Learner]:
    """The class of a saved learner: from the library, an entry point, or already imported.

    A checkpoint never causes an import by itself, since it may come from an untrusted source.
    """
    if name in registry():
        return registry()[name]
    for kind in _subclasses():
        if vars(kind).get("name") == name:
            return kind
    return _entry_point(name) or _unknown_in_file(name)


def _unknown_in_file(name: str) -> type[Learner]:
    raise ValueError(
        f"there is no learner {name!r} in the library: import its class first, or use load(path, learner=...)"
    )


def load(
    path: str | os.PathLike[str],
    network: str | nn.Module | None = None,
    device: str = "auto",
    augmentation: Callable[[Tensor], Tensor] | None = None,
    learner: type[Learner] | None = None,
    encoder: Any = None,
) -> Learner:
    """Load a learner that `save` wrote, exactly as it was.

    network: your own module, if the learner was created with one, whose weights are overwritten; or its name
        `module:function`, if it was created by that. A file alone never imports code.
    augmentation: your own function, if the learner was created with one.
    learner: the class, if it is your own and not imported yet.
    encoder: your own encoder, or the name of one that may be downloaded, if the learner was created with it.
    """
    state = checkpoint.read(path)
    meta = read_meta(state)
    own = str(meta["network"]).startswith(OWN_NETWORK)
    if own and network is None:
        raise CheckpointError(
            f"{os.fspath(path)} was saved with your own network: use load(path, network=...)"
        )
    if not own and is_own(str(meta["network"])):
        if network != meta["network"]:
            raise CheckpointError(
                f"{os.fspath(path)} was saved with the network {meta['network']!r} of your own: use "
                f"load(path, network={meta['network']!r})"
            )
    elif not own and network is not None:
        raise CheckpointError(
            f"{os.fspath(path)} was saved with the network {meta['network']!r}, which it builds itself: "
            "leave out network"
        )
    settings = meta["settings"]
    if str(settings.get("augmentation")).startswith(OWN_FUNCTION):
        if augmentation is None:
            raise CheckpointError(
                f"{os.fspath(path)} was saved with your own augmentation: use load(path, augmentation=...)"
            )
        settings = settings | {"augmentation": augmentation}
    encoder = _encoder(path, meta.get("encoder"), encoder)
    try:
        kind = learner or _named(meta["learner"])
        settings = kind.Settings.before | settings
        made = kind(network or meta["network"], seed=meta["seed"], device=device, encoder=encoder, **settings)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{os.fspath(path)} can't be loaded: {error}") from None
    made.load_state_dict(state)
    return made


def _encoder(path: str | os.PathLike[str], named: Any, given: Any) -> Any:
    """The encoder of a saved learner. named: by the file. given: by the user."""
    if named is None or given is not None or (isinstance(named, str) and may_load_by_itself(named)):
        return named if given is None else given
    argument = "..." if str(named).startswith(OWN_ENCODER) else repr(named)
    raise CheckpointError(
        f"{os.fspath(path)} was saved with the encoder {named!r}, which is not loaded by itself: "
        f"use load(path, encoder={argument})"
    )
