"""Small batches for checks, and learners that are made anew for each of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.core.learner import Learner
from everlearn.memory.labels import Label
from everlearn.randomness import DrawFrom

__all__ = ["SMALL", "Subject", "assert_same_state", "batches", "teach"]

# Settings that make a learner small, where it has them.
SMALL = MappingProxyType({"hidden": 16, "embedding": 8, "memory_size": 30, "iterations": 2})


def batches(
    count: int = 6, size: int = 5, labels: Sequence[Label] = ("a", "b", "c"), seed: int = 0
) -> Iterator[tuple[Tensor, list[Label]]]:
    """Batches of Gaussian samples, one blob per label."""
    generator = torch.Generator().manual_seed(seed)
    for i in range(count):
        y = [labels[(i // 2 + j) % len(labels)] for j in range(size)]
        centres = torch.tensor([[3.0 * labels.index(label)] for label in y])
        yield torch.randn(size, 6, generator=generator) + centres, y


def teach(learner: Learner, x: Any, y: Any, t: int = 0) -> None:
    """Observe a batch, with its task if the learner needs it."""
    learner.observe(x, y, t if "t" in learner.needs else None)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A learner to check: its class, its network, and the settings that differ from its defaults."""

    kind: type[Learner]
    network: str | Callable[[], nn.Module] = "mlp"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=lambda: SMALL)

    def make(self, seed: int = 0, **settings: Any) -> Learner:
        """A new one; settings that it doesn't have are left out."""
        fields = self.kind.Settings.__dataclass_fields__
        chosen = {key: value for key, value in ({**self.settings} | settings).items() if key in fields}
        return self.kind(self.new_network(), seed=seed, device="cpu", **chosen)

    def new_network(self) -> str | nn.Module:
        """The name of the network; or a new one, whose weights are the same each time."""
        if isinstance(self.network, str):
            return self.network
        with DrawFrom(torch.Generator().manual_seed(0)):
            return self.network()

    def taught(self, **settings: Any) -> Learner:
        """A new one that has observed some batches."""
        learner = self.make(**settings)
        for i, (x, y) in enumerate(batches()):
            teach(learner, x, y, i // 2)
        return learner


def assert_same_state(before: State, after: State, what: str) -> None:
    """Raise an AssertionError that names the parts of the state that differ. what: the call between the two."""
    parts = [
        key for key in sorted(before.keys() | after.keys()) if not _same(before.get(key), after.get(key))
    ]
    assert not parts, f"{what} changed the state: {', '.join(parts)}"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)
