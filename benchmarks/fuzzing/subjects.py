"""The learners that are attacked: small ones, on networks of all kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.learners import registry

__all__ = ["DATA", "Data", "make", "make_for"]


class Recurrent(nn.Module):
    """A network over sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.gru(x)[0]
        return out[:, -1]


class Tokens(nn.Module):
    """A network over words, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(12, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.table(x).mean(1))
        return out


class Narrow(nn.Module):
    """A network for 16-bit samples."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x.float() / 2**16)
        return out


class Explosive(nn.Module):
    """A network that overflows, and refuses what is negative in one place."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x[:, 0] < -3).any()):
            raise IndexError("list index out of range")
        out: Tensor = self.last((3 * x).exp())
        return out


def frozen_layer() -> nn.Module:
    """A network of which only the end is trained."""
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 4))
    network[0].requires_grad_(False)
    return network


@dataclasses.dataclass(frozen=True)
class Data:
    """What a learner is given: its network, the samples that it takes, and settings, where it has these."""

    network: Callable[[], Any]
    shape: tuple[int, ...]
    dtype: torch.dtype
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)


DATA = {
    "mlp": Data(lambda: "mlp", (6,), torch.float32),
    "bytes": Data(lambda: "mlp", (6,), torch.uint8),
    "gru": Data(Recurrent, (4, 3), torch.float32),
    "tokens": Data(Tokens, (5,), torch.int64),
    "frozen": Data(frozen_layer, (6,), torch.float32),
    "uint16": Data(Narrow, (6,), torch.uint16),
    "explosive": Data(Explosive, (6,), torch.float32),
    "images": Data(lambda: "cnn", (3, 8, 8), torch.float32, {"augmentation": "strong"}),
    "byte images": Data(
        lambda: "cnn", (1, 8, 8), torch.uint8, {"augmentation": "crop-flip", "colour": 0.4, "mixing": 0.4}
    ),
}

SMALL: dict[str, Any] = {"hidden": 8, "embedding": 4, "memory_size": 12, "waiting": 5, "comparisons": 2}
SMALL |= {"comparison_size": 3, "candidates": 6, "tasks": 3, "latent": 3, "draws": 2, "added": 3}
SMALL |= {
    "short_term_memory": 6,
    "generative_steps": 2,
    "discriminative_steps": 2,
    "averaging": 0.5,
    "passes": 2,
    "projection": 20,
}


def make(name: str, network: Any = "mlp", seed: int = 0, **settings: Any) -> Any:
    """A small learner of this name."""
    kind = registry()[name]
    fields = {field.name for field in dataclasses.fields(kind.Settings)}
    chosen = {key: value for key, value in SMALL.items() if key in fields} | settings
    return kind(network, **({"seed": seed, "device": "cpu"} | chosen))


def make_for(name: str, data: str) -> Any:
    """A small learner of this name for this kind of data."""
    given = DATA[data]
    fields = {field.name for field in dataclasses.fields(registry()[name].Settings)}
    return make(
        name, given.network(), **{key: value for key, value in given.settings.items() if key in fields}
    )
