"""The learners that are interrupted, small enough that a call takes some milliseconds; and the user's own code."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.learners import registry

__all__ = ["TROUBLE", "USERS_CODE", "VARIANTS", "batch", "has_variant", "make", "task"]

FEATURES = 6
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "curl": {"latent": 3, "learning_rate": 0.01},
    "gdumb": {"passes": 1},
    "cn-dpm": {"short_term_memory": 6, "generative_steps": 3, "discriminative_steps": 3}
    | {"hidden": 6, "added": 3, "latent": 3, "draws": 2, "learning_rate": 0.01},
}
CANT_SAY_UNKNOWN = ("icarl",)  # its exemplars are too typical to calibrate that on


class Trouble:
    """Lets the user's code fail at one of its calls. One for the process, whatever is copied."""

    def __init__(self) -> None:
        self.kind, self.at = "", 0
        self.error: Callable[[], object] = lambda: None
        self.counts: Counter[str] = Counter()

    def expect(self, kind: str = "", at: int = 0, error: Callable[[], object] = lambda: None) -> None:
        """From now on count the calls of each kind, and fail at one of this kind."""
        self.kind, self.at, self.error, self.counts = kind, at, error, Counter()

    def meet(self, kind: str) -> None:
        """A call of this kind is made."""
        self.counts[kind] += 1
        if kind == self.kind and self.counts[kind] == self.at:
            self.error()


TROUBLE = Trouble()


class Through(torch.autograd.Function):
    """Passes values and gradients on, and may fail on the way back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:
        TROUBLE.meet("backward")
        return slope


class OwnNetwork(nn.Module):
    """A module of the user's, with batch-norm's statistics and dropout's randomness."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(FEATURES, 8), nn.BatchNorm1d(8)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        TROUBLE.meet("forward")
        hidden = self.norm(self.first(x))
        hidden = self.drop(hidden.relu())
        embedded: Tensor = Through.apply(self.last(hidden))  # type: ignore[no-untyped-call]
        return embedded


def noisy(x: Tensor) -> Tensor:
    """An augmentation of the user's, with a randomness of its own."""
    TROUBLE.meet("augmentation")
    noise = torch.randn(x.shape)
    return x + 0.1 * noise


def own_network() -> nn.Module:
    """The user's module with fixed weights, so that copies of a learner begin alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return OwnNetwork()


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"iterations": 2},
    "one iteration": {"iterations": 1},
    "additions": {"iterations": 2, "averaging": 0.9, "augmentation": noisy, "mixing": 0.3}
    | {"recalibrate": True, "unknown": 0.1, "replayed": 3},
    "own network": {"iterations": 2, "network": own_network},
}


def make(name: str, variant: str = "plain", seed: int = 0) -> Any:
    """A small learner of this name."""
    kind = registry()[name]
    wanted = {"hidden": 8, "embedding": 4, "memory_size": 12, "comparisons": 2, "comparison_size": 3}
    wanted |= (
        {"projection": 10, "candidates": 6, "waiting": 6, "tasks": 4}
        | VARIANTS[variant]
        | OWN_SETTINGS.get(name, {})
    )
    network = wanted.pop("network", lambda: "mlp")()
    fields = {field.name for field in dataclasses.fields(kind.Settings)}
    if name in CANT_SAY_UNKNOWN or "memory_size" not in fields:
        wanted.pop("unknown", None)
    chosen = {key: value for key, value in wanted.items() if key in fields}
    return kind(network, seed=seed, device="cpu", **chosen)


def has_variant(name: str, variant: str) -> bool:
    """Whether a variant sets anything that this learner knows."""
    fields = {field.name for field in dataclasses.fields(registry()[name].Settings)}
    return variant != "additions" or bool({"averaging", "memory_size"} & fields)


def batch(labels: str, seed: int) -> tuple[Tensor, list[str]]:
    """Samples of these classes, one letter each."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.tensor([[2.0 * (ord(label) - ord("a"))] for label in labels])
    return torch.randn(len(labels), FEATURES, generator=generator) + centres, list(labels)


def task(learner: Any, t: int = 0) -> int | None:
    """The task of a batch, for a learner that needs it."""
    return t if "t" in learner.needs else None


USERS_CODE = (OwnNetwork.forward.__code__, noisy.__code__)
