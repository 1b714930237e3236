"""CoPE: Continual Prototype Evolution, the method this library is about."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.learners.additions import Additions, WithAdditions
from everlearn.learners.predicting import CHUNK
from everlearn.losses import Gradient, ppp_gradient
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import Label
from everlearn.memory.prototypes import Prototypes
from everlearn.networks import as_input, embedding_network, to_unit_length

__all__ = ["CoPE", "CoPESettings"]


@dataclasses.dataclass(frozen=True)
class CoPESettings(Additions):
    """CoPE's settings, with the paper's symbols; where no benchmark is named, the defaults are Split-MNIST's."""

    memory_size: int = 2000
    """|M_r|, exemplars in the replay memory, shared equally by the classes seen"""
    temperature: float = 0.1
    """τ, the concentration of the PPP-loss"""
    momentum: float = 0.99
    """α, how much of a prototype stays when a batch moves it"""
    embedding: int | None = None
    """d, the size of the embedding; by default the network's own (MLP 100, slim ResNet18 256)"""
    renormalise: bool = True
    """bring prototypes back to unit length after each move, as the paper says (its released code does not)"""
    pseudo_prototypes: bool = True
    """p̂, let the samples of a batch act as proxies of their class in the loss"""
    gradient: Gradient = "released"
    """what pseudo-prototypes pass on: released (repellor only), full, or detached"""
    reference_batch: int | None = None
    """weigh the negative pairs as if B had so many samples, so that the loss does not grow with the batch"""
    recalibrate: bool = False
    """predict with prototypes taken anew from the memory, at the first prediction after each batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")
        self._check("temperature", self.temperature > 0, "above 0")
        self._check("momentum", 0 <= self.momentum <= 1, "between 0 and 1")
        self._check("embedding", self.embedding is None or self.embedding >= 1, "at least 1")
        self._check(
            "reference_batch", self.reference_batch is None or self.reference_batch >= 1, "at least 1"
        )
        self._check(
            "gradient", self.gradient in ("released", "full", "detached"), "released, full or detached"
        )


class CoPE(WithAdditions):
    """Prototypes that evolve with the stream: nearest-prototype prediction in a unit-length embedding.

    Each batch is joined with a class-balanced batch from the replay memory, the PPP-loss draws samples
    to their class's prototype and away from the others, and the prototypes follow with high momentum.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CoPE("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']
    >>> learner.memory.counts()
    {'high': 5, 'low': 5}

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution: Learning Online from Non-Stationary
    Data Streams. ICCV 2021.
    """

    name = "cope"
    Settings = CoPESettings
    settings: CoPESettings
    memory: BalancedMemory
    _prototypes: Prototypes | None = None
    _recalibrated: Tensor | None = None  # void as soon as a batch is learnt

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        self.memory = BalancedMemory(self.settings.memory_size, self.labels, self.generator)

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        """One joint step on B = B_n ∪ B_M; returns the features of both, from before the step."""
        old, old_slots = replay
        both = torch.cat([x, old])
        passed = self.sgd.forward(as_input(both))
        features, lengths = to_unit_length(passed.output)
        if not self.parameters:  # a fixed embedding, in which only the prototypes move
            return features
        slope = self.slope(features, torch.cat([slots, old_slots]))
        by_output = (slope - features * (features * slope).sum(1, keepdim=True)) / lengths
        passed.descend(by_output)
        return features

    def slope(self, features: Tensor, slots: Tensor) -> Tensor:
        """The derivative of the PPP-loss by the features of B."""
        prototypes, seen = self._evolving.in_use()
        return ppp_gradient(
            features,
            slots,
            prototypes,
            self.settings.temperature,
            seen=seen,
            pseudo_prototypes=self.settings.pseudo_prototypes,
            gradient=self.settings.gradient,
            repellor=self.repellor(len(features)),
        )

    def repellor(self, samples: int) -> float:
        """The weight of the negative pairs in a B of so many samples."""
        return (self.settings.reference_batch or samples) / samples

    def passed(self, batch: int) -> set[int]:
        """B_n and B_M together."""
        return {batch + min(self.drawn(batch), len(self.memory))}

    def settle(self, slots: Tensor, outcomes: list[Tensor | None], *old_slots: Tensor) -> None:
        """Move the prototypes to the mean of every replayed batch's features and of B_n's last ones."""
        features = cast(list[Tensor], outcomes)
        batch = len(slots)
        moved = torch.cat([*(part[batch:] for part in features[:-1]), features[-1]])
        slots = torch.cat([*old_slots[0][:-1], slots, old_slots[0][-1]])
        self._evolving.move(moved, slots, self.settings.momentum, self.settings.renormalise)

    def scores(self, x: Tensor) -> Tensor:
        """f·p^c/τ over the classes seen: the largest is the nearest prototype."""
        return self.features(x) @ self._answering().T / self.settings.temperature

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The prototype p^c of each class seen, as it evolves; with `recalibrate` predictions use others."""
        if self._prototypes is None:
            return {}
        return dict(zip(self.classes, self._prototypes.vectors.clone(), strict=False))

    def _answering(self) -> Tensor:
        """The prototypes that predictions are made with, `[classes, d]`; from the memory at most once a batch."""
        evolving = self._evolving.vectors[: len(self.labels)]
        if not self.settings.recalibrate:
            return evolving
        if self._recalibrated is None:
            self._recalibrated = self._from_memory(evolving)
        return self._recalibrated

    def _from_memory(self, otherwise: Tensor) -> Tensor:
        """The mean embedding of each class's exemplars, at unit length; for a class that has none, what it had."""
        rows, slots = (torch.from_numpy(part).to(self.device) for part in self.memory.kept())
        parts = [self.features(as_input(self.memory.recall(chunk))) for chunk in torch.split(rows, CHUNK)]
        sums = torch.zeros_like(otherwise).index_add_(0, slots, torch.cat(parts))
        return torch.where(sums.any(1, keepdim=True), to_unit_length(sums)[0], otherwise)

    def prepare(self, labels: list[Label], keep: bool = True) -> list[NDArray[np.int64]]:
        """As any learner's; what was taken from the memory is void from now on."""
        self._recalibrated = None
        return super().prepare(labels, keep)

    @property
    def _evolving(self) -> Prototypes:
        assert self._prototypes is not None
        return self._prototypes

    def features(self, x: Tensor) -> Tensor:
        """f_θ(x), of unit length."""
        return to_unit_length(self._predictor(x))[0]

    def changing_parts(self) -> list[object]:
        """The prototypes change too."""
        parts = super().changing_parts()
        return parts if self._prototypes is None else [*parts, self._prototypes]

    def _hold_still(self, still: Any) -> None:
        super()._hold_still(still)
        if self.settings.recalibrate and self.labels:
            still._recalibrated = self._in_evaluation(self._answering).clone()
        still._prototypes = copy.deepcopy(self._prototypes)

    def _build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        return embedding_network(name, shape, self.settings.hidden, self.settings.embedding)

    def _install(self, network: nn.Module, features: int) -> None:
        self._use(network)
        self._prototypes = Prototypes(features, self.device)

    def _open_classes(self, classes: int) -> None:
        super()._open_classes(classes)
        self._recalibrated = None
        self.memory.open_classes(classes)
        if self._evolving.open_classes(classes, self.generator):
            self._replaced()

    def _forget_class(self, slot: int) -> None:
        super()._forget_class(slot)
        self._evolving.forget(slot)
        self._recalibrated = None
        self._replaced()

    def _merge(self, other: Any, slots: Any) -> None:
        super()._merge(other, slots)
        self._recalibrated = None
        samples, labels = self.memory.samples()
        owners = torch.tensor(self.labels.slots(labels), device=self.device)
        self._evolving.renew(self.embed(samples), owners, self.settings.renormalise)

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and M_p, those taken from the memory included."""
        held = 0 if self._prototypes is None else self._prototypes.nbytes()
        anew = 0 if self._recalibrated is None else self._recalibrated.nbytes
        return super().footprint() | {"prototypes": held + anew}

    def _parts(self) -> State:
        return super()._parts() | {"prototypes": self._evolving.vectors[: len(self.labels)].clone()}

    def _take_parts(self, state: State) -> None:
        super()._take_parts(state)
        self._evolving.vectors[: len(self.labels)] = state["prototypes"].to(self.device)
