"""The settings of each learner on each stream, read from the files in `paper/`."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files
from typing import Any

from torch import nn

from everlearn import learners
from everlearn.learners.base import Learner
from everlearn.streams.scenarios import Stream

__all__ = ["benchmark_settings", "learner"]


def learner(
    name: str,
    stream: Stream | None = None,
    seed: int = 0,
    device: str = "auto",
    network: str | nn.Module | None = None,
    **settings: Any,
) -> Learner:
    """The learner of this name, with the benchmark's settings where a stream is named.

    stream: the stream it will meet. network, settings: what to set otherwise.

    >>> from everlearn import stream
    >>> learner("cope", stream=stream("split-digits"), momentum=0.9).settings.memory_size
    200
    """
    kind = learners.find(name)
    chosen: dict[str, Any] = {"network": "mlp"}
    if stream is not None:
        chosen |= benchmark_settings(name, stream.name, stream.imbalance is not None)
    chosen |= settings
    if network is not None:
        chosen["network"] = network
    return kind(seed=seed, device=device, **chosen)


def benchmark_settings(learner: str, stream: str, imbalanced: bool) -> dict[str, Any]:
    """What the benchmark sets for a learner on a stream, the network's name included; the rest are defaults."""
    variant = _benchmark(stream).get("imbalanced" if imbalanced else "balanced", {})
    return dict(variant.get(learner, {}))


@functools.cache
def _benchmark(stream: str) -> dict[str, Any]:
    file = files("everlearn.experiments").joinpath("paper", f"{stream}.toml")
    return tomllib.loads(file.read_text("utf-8")) if file.is_file() else {}
