"""Ideas for CoPE that were tried: each is CoPE+ with one change.

    python benchmarks/beyond.py split-mnist --learners cope+ "two views" "rising momentum" ...

None of them is part of the library: docs/beyond.md has the results. They do not support checkpoints: tensors that an
idea adds to the learner are not saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample, normalize

from everlearn import learners
from everlearn.core.images import ImageChanges
from everlearn.core.plan import Plan
from everlearn.learners.cope import CoPE
from everlearn.learners.cope_plus import CoPEPlus, CoPEPlusSettings
from everlearn.losses import ppp_loss
from everlearn.networks import as_input
from everlearn.training.views import Colours

__all__ = ["IDEAS", "register"]


class RisingMomentum(CoPEPlus):
    """α begins low and rises: after n moves of a class's prototype it is at most (1 + n) / (10 + n)."""

    name = "rising momentum"
    _moves: Tensor | None = None

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        batch = len(plan.slots)
        moved = torch.cat([*(part[batch:] for part in outcomes[:-1]), outcomes[-1]])
        slots = torch.cat([*plan.old_slots[:-1], plan.slots, plan.old_slots[-1]])
        vectors = self._evolving.vectors
        if self._moves is None or len(self._moves) < len(vectors):
            before = self._moves if self._moves is not None else vectors.new_zeros(0)
            self._moves = torch.cat([before, vectors.new_zeros(len(vectors) - len(before))])
        counts = vectors.new_zeros(len(vectors)).index_add_(0, slots, torch.ones_like(moved[:, 0]))
        means = torch.zeros_like(vectors).index_add_(0, slots, moved) / counts.clamp(min=1)[:, None]
        momentum = ((1 + self._moves) / (10 + self._moves)).clamp(max=self.settings.momentum)[:, None]
        target = normalize(momentum * vectors + (1 - momentum) * means, dim=1)
        vectors.copy_(torch.where(counts[:, None] > 0, target, vectors))
        self._moves += counts > 0


class TemperaturePerClass(CoPEPlus):
    """A class whose samples lie far from their prototype gets a lower temperature, so that it is drawn harder."""

    name = "temperature per class"
    _closeness: Tensor | None = None  # the mean of f·p^c, running

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        old, old_slots = replay
        return self.fit_embedding(torch.cat([x, old]), self, slots=torch.cat([slots, old_slots]))

    def gradient(self, features: Tensor, slots: Tensor) -> Tensor:
        """The gradient of the loss, as `fit_embedding` calls it."""
        prototypes, seen = self._evolving.vectors, self._evolving.seen
        if self._closeness is None or len(self._closeness) < len(prototypes):
            before = self._closeness if self._closeness is not None else prototypes.new_zeros(0)
            self._closeness = torch.cat([before, prototypes.new_full((len(prototypes) - len(before),), 0.7)])
        near = (features * prototypes[slots]).sum(1)
        counts = torch.zeros_like(self._closeness).index_add_(0, slots, torch.ones_like(near))
        means = torch.zeros_like(self._closeness).index_add_(0, slots, near) / counts.clamp(min=1)
        moved = self._closeness + 0.01 * (means - self._closeness)
        self._closeness.copy_(torch.where(counts > 0, moved, self._closeness).clamp(min=0.1))
        usual = (self._closeness * seen).sum() / seen.sum()
        # To divide τ by a factor is to multiply the prototype by it.
        sharper = (usual / self._closeness).clamp(0.5, 2.0)[:, None]
        return ppp_loss.gradient(
            features,
            slots,
            prototypes * sharper,
            self.settings.temperature,
            seen=seen,
            repellor=self.repellor(len(features)),
        )


class SecondPrototype(CoPEPlus):
    """Predicts with two prototypes for each class: the two means of its exemplars, the nearer one counting."""

    name = "second prototype"
    means = 2

    def scores(self, x: Tensor) -> Tensor:
        scores = super().scores(x)
        return scores.view(len(x), len(self.labels), -1).amax(2)

    def _from_memory(self, otherwise: Tensor) -> Tensor:
        rows, slots = (torch.from_numpy(part).to(self.device) for part in self.memory.kept())
        features = self.features(as_input(self.memory.recall(rows)))
        prototypes = []
        for slot, other in enumerate(otherwise):
            own = features[slots == slot]
            prototypes += [other] * self.means if len(own) < self.means else self._split(own)
        return torch.stack(prototypes)

    def _split(self, own: Tensor) -> list[Tensor]:
        """k-means on the sphere, begun at the sample farthest from the mean and the one farthest from that."""
        first = own[(own @ own.mean(0)).argmin()]
        centres = torch.stack([first, own[(own @ first).argmin()]])
        for _ in range(10):
            nearest = (own @ centres.T).argmax(1)
            sums = torch.stack([own[nearest == i].sum(0) for i in range(self.means)])
            centres = torch.where(sums.any(1, keepdim=True), normalize(sums, dim=1), centres)
        return list(centres)


class TwoViewChanges(ImageChanges):
    """Two views of every image."""

    def change(
        self, x: Tensor, old: Tensor, numbers: Sequence[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        images = len(x) + len(old)
        more = [torch.randint(change.count(images), (images,), device=x.device) for change in self.changes]
        new, replayed = super().change(x, old, numbers, generator)
        again, replayed_again = super().change(x, old, more, generator)
        return torch.cat([new, again]), torch.cat([replayed, replayed_again])


class TwoViews(CoPEPlus):
    """Every image of B is in it twice, in two views, which are pseudo-prototypes of each other."""

    name = "two views"

    def begin(self, x: Tensor) -> None:
        super().begin(x)
        self.images = TwoViewChanges(self.settings, x, self.device)

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        old, old_slots = replay
        features = super().step(x, slots.repeat(2), old, old_slots.repeat(2))
        return torch.cat([features[: len(slots)], features[len(x) : len(x) + len(old_slots)]])

    def forward_sizes(self, batch: int) -> set[int]:
        return {2 * size for size in super().forward_sizes(batch)}


class EarlyReplay(CoPEPlus):
    """Replays three times as much while the newest class is younger than 100 batches."""

    name = "early replay"

    def replay_size(self, batch: int) -> int:
        return super().replay_size(batch) * (3 if self.batches - self.newest < 100 else 1)


@dataclasses.dataclass(frozen=True)
class ZoomSettings(CoPEPlusSettings):
    """CoPE+'s, and how far to zoom."""

    zoom: float = 0.5
    """up to this share of an image's area is lost"""


class ZoomChanges(ImageChanges):
    """The usual changes, then a random zoom."""

    def __init__(self, settings: ZoomSettings, x: Tensor, device: torch.device) -> None:
        super().__init__(settings, x, device)
        self.zoom = settings.zoom

    def change(
        self, x: Tensor, old: Tensor, numbers: Sequence[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        both = as_input(torch.cat(super().change(x, old, numbers, generator)))
        side = (1 - self.zoom * torch.rand(len(both), device=x.device)).sqrt()
        grid = torch.zeros(len(both), 2, 3, device=x.device)
        grid[:, 0, 0] = grid[:, 1, 1] = side
        grid[:, :, 2] = (2 * torch.rand(len(both), 2, device=x.device) - 1) * (1 - side)[:, None]
        places = affine_grid(grid, list(both.shape), align_corners=False)
        both = grid_sample(both, places, align_corners=False)
        return both[: len(x)], both[len(x) :]


class Zoom(CoPEPlus):
    """Every image is also enlarged, by a random amount around a random point."""

    name = "zoom"
    Settings = ZoomSettings
    settings: ZoomSettings

    def begin(self, x: Tensor) -> None:
        super().begin(x)
        self.images = ZoomChanges(self.settings, x, self.device)


class CutOffColourChanges(ImageChanges):
    """The usual changes, with colours clamped to black and white."""

    def __init__(self, settings: CoPEPlusSettings, x: Tensor, device: torch.device) -> None:
        super().__init__(settings, x, device)
        self.colour = settings.colour
        self.changes = [change for change in self.changes if not isinstance(change, Colours)]

    def change(
        self, x: Tensor, old: Tensor, numbers: Sequence[Tensor], generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        both = as_input(torch.cat(super().change(x, old, numbers, generator)))
        by = 1 + self.colour * (2 * torch.rand(3, len(both), 1, 1, 1, device=x.device) - 1)
        both = (both * by[0]).clamp(0, 1)
        both = torch.lerp(both.mean((1, 2, 3), keepdim=True).expand_as(both), both, by[1]).clamp(0, 1)
        both = torch.lerp(both.mean(1, keepdim=True).expand_as(both), both, by[2]).clamp(0, 1)
        return both[: len(x)], both[len(x) :]


class CutOffColours(CoPEPlus):
    """Colours clamped to black and white, brightness first; the setting `colour` is the strength."""

    name = "cut-off colours"

    def begin(self, x: Tensor) -> None:
        super().begin(x)
        self.images = CutOffColourChanges(self.settings, x, self.device)


class GroupNorm(CoPEPlus):
    """Group normalisation in place of batch norm: no statistics of a stream that changes."""

    name = "group norm"

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        return self._normed(super().build(name, shape))

    def _normed(self, network: nn.Module) -> nn.Module:
        for place, part in network.named_children():
            if isinstance(part, nn.BatchNorm2d):
                setattr(network, place, self._norm(part))
            else:
                self._normed(part)
        return network

    @staticmethod
    def _norm(part: nn.BatchNorm2d) -> nn.Module:
        return nn.GroupNorm(4, part.num_features)


class ContinualNorm(GroupNorm):
    """Group normalisation without weights, then batch norm.

    After Pham, Q. et al. Continual Normalization. ICLR 2022.
    """

    name = "continual norm"

    @staticmethod
    def _norm(part: nn.BatchNorm2d) -> nn.Module:
        return nn.Sequential(nn.GroupNorm(4, part.num_features, affine=False), part)


class AttractorAlone(CoPE):
    """CoPE without the repellor: what the released code is without pseudo-prototypes."""

    name = "attractor alone"

    def repellor(self, samples: int) -> float:
        return 0.0


IDEAS: dict[str, type[Any]] = {
    kind.name: kind
    for kind in (
        RisingMomentum,
        TemperaturePerClass,
        SecondPrototype,
        TwoViews,
        EarlyReplay,
        Zoom,
        CutOffColours,
        GroupNorm,
        ContinualNorm,
        AttractorAlone,
    )
}


def register() -> None:
    """Let jobs of this process find the ideas by name, beside the library's learners."""
    learners.registry().update(IDEAS)
