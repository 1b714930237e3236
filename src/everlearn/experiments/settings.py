"""The settings of each learner on each stream, read from the files in `benchmarks/`."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from importlib.resources import files
from typing import Any

from torch import nn

from everlearn import learners
from everlearn.core.learner import Learner
from everlearn.messages import nearest
from everlearn.networks import check_name
from everlearn.streams.encoded import AT
from everlearn.streams.scenarios import Stream

__all__ = [
    "benchmark_settings", "check_settings", "inherited_settings", "learner", "merged_settings", "read_benchmark",
    "settings_in_force",
]  # fmt: skip

DEFAULT_NETWORK = "mlp"


def default_network(stream: str) -> str:
    """The network where neither the benchmark nor the user names one: none on features of an encoder."""
    return "identity" if AT in stream else DEFAULT_NETWORK


def learner(
    name: str,
    stream: Stream | None = None,
    seed: int = 0,
    device: str = "auto",
    network: str | nn.Module | None = None,
    **settings: Any,
) -> Learner:
    """The learner of this name, with the benchmark's settings where a stream is named.

    stream: the stream that it will learn. network, settings: values that replace the benchmark's.

    >>> from everlearn import stream
    >>> learner("cope", stream=stream("split-digits"), momentum=0.9).settings.memory_size
    200
    """
    kind = learners.find(name)
    if isinstance(stream, str):
        raise ValueError(f"stream is the stream itself, such as stream({stream!r}), not its name alone")
    given = settings if network is None else settings | {"network": network}
    if stream is None:
        return kind(seed=seed, device=device, **given)
    chosen = merged_settings(name, stream.name, stream.imbalance is not None, given)
    return kind(seed=seed, device=device, **chosen)


def benchmark_settings(learner: str, stream: str, imbalanced: bool) -> dict[str, Any]:
    """What the benchmark sets for a learner on a stream, the network's name included; the rest are defaults.

    A class of your own has what the benchmark sets for the learner that it is made from.
    """
    known = _of_variant(stream, imbalanced)
    if learner in known or learner in learners.registry():
        return dict(known.get(learner, {}))
    return inherited_settings(learners.find(learner), stream, imbalanced)


def inherited_settings(kind: type[Learner], stream: str, imbalanced: bool) -> dict[str, Any]:
    """What the benchmark sets for the learner of the library that a class is made from.

    Settings that the class defines itself have its own defaults.
    """
    known = _of_variant(stream, imbalanced)
    for parent in kind.__mro__:
        name = vars(parent).get("name")
        if name in known and learners.registry()[name] is parent:
            theirs = set(parent.Settings.__mro__)
            own = {field for each in kind.Settings.__mro__ if each not in theirs for field in vars(each)}
            return {field: value for field, value in known[name].items() if field not in own}
    return {}


def _of_variant(stream: str, imbalanced: bool) -> dict[str, Any]:
    found: dict[str, Any] = _benchmark(stream).get("imbalanced" if imbalanced else "balanced", {})
    return found


def merged_settings(learner: str, stream: str, imbalanced: bool, given: dict[str, Any]) -> dict[str, Any]:
    """The settings to create a learner with: those passed, then the benchmark's, then the default network.

    Settings that none of them names are the learner's own defaults.

    >>> merged_settings("finetune", "split-digits", False, {"learning_rate": 1.0})["network"]
    'mlp'
    """
    return {"network": default_network(stream)} | benchmark_settings(learner, stream, imbalanced) | given


def settings_in_force(learner: str, stream: str, imbalanced: bool, given: dict[str, Any]) -> dict[str, Any]:
    """Every setting of a learner on a stream, checked, and its network's name.

    given: settings that replace the benchmark's.

    >>> settings_in_force("cope", "split-mnist", False, {"momentum": 0.5})["memory_size"]
    2000
    """
    return check_settings(learner, merged_settings(learner, stream, imbalanced, given))


def check_settings(learner: str, given: dict[str, Any]) -> dict[str, Any]:
    """All settings of a learner with these given; raises a ValueError for an unknown name or a wrong value."""
    kind = learners.find(learner)
    given = dict(given)
    network = given.pop("network", DEFAULT_NETWORK)
    if not isinstance(network, str):
        raise ValueError(f"network is a name, such as mlp or module:function, not {network!r}")
    check_name(network)
    known = [field.name for field in dataclasses.fields(kind.Settings)]
    for name in given:
        if name not in known:
            raise ValueError(f"{learner} has no setting {name!r}{nearest(name, known)}")
    return {"network": network, **vars(kind.Settings(**given))}


@functools.cache
def _benchmark(stream: str) -> dict[str, Any]:
    file = files("everlearn.experiments").joinpath("benchmarks", f"{stream}.toml")
    return read_benchmark(file.read_text("utf-8"), f"{stream}.toml") if file.is_file() else {}


def read_benchmark(text: str, name: str) -> dict[str, Any]:
    """The settings in the text of such a file, each checked: variant of the stream -> learner -> settings.

    A file of one line, `balanced = "VARIANT of STREAM"`, takes its settings from another file.
    """
    benchmark = tomllib.loads(text)
    for variant, of_learners in benchmark.items():
        if variant not in ("balanced", "imbalanced"):
            raise ValueError(f"{name}: there is no variant {variant!r}, only balanced and imbalanced")
        if isinstance(of_learners, str):
            other, stream = of_learners.split(" of ")
            benchmark[variant] = _benchmark(stream)[other]
            continue
        for learner, settings in of_learners.items():
            try:
                check_settings(learner, settings)
            except (ValueError, TypeError) as error:
                raise ValueError(f"{name}, [{variant}.{learner}]: {error}") from None
    return benchmark
