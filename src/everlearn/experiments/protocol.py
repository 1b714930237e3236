"""Protocols by name: network, streams, replay and the settings of each method, as a part of the field uses them.

Figures of one protocol say nothing about another, so that no table has more than one. They are data, in `protocols/`.
"""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from importlib.resources import files
from typing import Any

from everlearn import learners
from everlearn.experiments.settings import check_settings
from everlearn.messages import nearest

__all__ = ["Protocol", "protocol", "protocols"]


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How methods are compared in a part of the field.

    batch_size, class_order: of its streams. memory_sizes: by stream, the sizes that papers report. The settings of a
    learner may contain the name of a stream, with those that it has on this one alone.
    On a stream that no protocol names, such as one of your own, networks and views are the stream's; class order,
    replay, iterations and optimiser are the protocol's.
    """

    name: str
    title: str
    batch_size: int
    class_order: str
    memory_sizes: dict[str, tuple[int, ...]]
    _for_all: dict[str, Any]
    _of_streams: dict[str, dict[str, Any]]
    _of_learners: dict[str, dict[str, Any]]

    @property
    def learners(self) -> list[str]:
        """The methods it has settings for."""
        return list(self._of_learners)

    def settings(self, learner: str, stream: str) -> dict[str, Any]:
        """The settings of a method on a stream, the network's name included.

        >>> protocol("P1").settings("onpro", "split-cifar10")["replayed"]
        64
        >>> protocol("P2").settings("er-ace", "split-digits")
        {'replayed': 10, 'iterations': 3, 'learning_rate': 0.0248}
        """
        if learner not in self.learners:
            known = nearest(learner, self.learners)
            raise ValueError(f"the protocol {self.name} has no learner {learner!r}{known}")
        if stream not in self.memory_sizes and stream in _streams_of_protocols():
            known = nearest(stream, self.memory_sizes)
            raise ValueError(f"the protocol {self.name} has no stream {stream!r}{known}")
        fields = {field.name for field in dataclasses.fields(learners.find(learner).Settings)} | {"network"}
        common = self._for_all | self._of_streams.get(stream, {})
        own = self._of_learners[learner]
        always = {name: value for name, value in own.items() if name not in self.memory_sizes}
        here: dict[str, Any] = own.get(stream, {})
        found = {name: value for name, value in common.items() if name in fields} | always | here
        if stream in self.memory_sizes:
            return found
        return {name: value for name, value in found.items() if name not in OF_ITS_IMAGES}


# The settings that belong to the images of a protocol's streams, and are not used on other streams.
OF_ITS_IMAGES = (
    "network", "embedding", "outputs", "precision", "augmentation", "colour", "cutout", "cutmix", "turned",
    "mirrored", "shifted",
)  # fmt: skip


def protocols() -> list[str]:
    """The names of all protocols.

    >>> protocols()
    ['P0', 'P1', 'P2', 'P3']
    """
    return sorted(_protocols())


def protocol(name: str) -> Protocol:
    """The protocol of this name."""
    if name not in _protocols():
        raise ValueError(f"there is no protocol {name!r}{nearest(name, protocols())}")
    return _protocols()[name]


def _streams_of_protocols() -> set[str]:
    return {stream for each in _protocols().values() for stream in each.memory_sizes}


@functools.cache
def _protocols() -> dict[str, Protocol]:
    folder = files("everlearn.experiments").joinpath("protocols")
    found = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    return {
        file.name.removesuffix(".toml"): read_protocol(file.read_text("utf-8"), file.name) for file in found
    }


def read_protocol(text: str, file: str) -> Protocol:
    """The protocol in the text of such a file, with the settings of every method on every stream checked."""
    data = tomllib.loads(text)
    made = Protocol(
        file.removesuffix(".toml"),
        data["title"],
        data["batch_size"],
        data["class_order"],
        {stream: tuple(values["memory_sizes"]) for stream, values in data["streams"].items()},
        data["all"],
        {stream: values["settings"] for stream, values in data["streams"].items()},
        data["learners"],
    )
    for learner in made.learners:
        for stream in made.memory_sizes:
            try:
                check_settings(learner, made.settings(learner, stream))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{file}, [learners.{learner}] on {stream}: {error}") from None
    return made
