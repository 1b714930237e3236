"""MOSE: multi-level online sequential experts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from everlearn.core.class_means import class_sums, nearest_mean_scores
from everlearn.core.images import SeveralViews
from everlearn.core.prediction import evaluate
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import install_whole
from everlearn.core.task_aware import TaskAwareLearner
from everlearn.losses.supcon import supervised_contrastive_loss
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import to_unit_length
from everlearn.networks.multi_level import MultiLevelNetwork
from everlearn.training.strong_views import inner_flips

__all__ = ["MOSE", "MOSESettings"]


@dataclasses.dataclass(frozen=True)
class MOSESettings(SoftmaxReplaySettings):
    """MOSE's settings; `replayed` is the number of samples that its parts are taken from."""

    temperature: float = 0.07
    """τ, the temperature of the contrastive losses"""
    projection: int = 128
    """the size of the projections that these losses compare"""
    per_class: int = 7
    """exemplars of earlier tasks replayed in an iteration for each class seen, at most"""
    all_experts: bool = True
    """predict with the mean distance over all experts; otherwise with the last one"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("temperature", self.temperature > 0, "above 0")
        self._check("projection", self.projection >= 1, "at least 1")
        self._check("per_class", self.per_class >= 1, "at least 1")


class MOSE(TaskAwareLearner):
    """An expert on every level of the network, each trained for itself; the last one also learns from the others.

    Every expert has a contrastive loss over all samples, a cross-entropy among the classes of the running task over
    its samples (in the first task among all outputs), and one among all outputs over a balanced replay. The features
    of the last expert, after a linear layer, are pulled to those of the others (reverse self-distillation).
    Predictions are by the nearest mean of the exemplars, averaged over the experts. It is told t while it learns.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = MOSE("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Yan, H. et al. Orchestrate Latent Expertise: Advancing Online Continual Learning with Multi-Level Supervision and
    Reverse Self-Distillation. CVPR 2024.
    """

    name = "mose"
    Settings = MOSESettings
    settings: MOSESettings
    Memory = ReservoirMemory
    _means: Tensor | None = (
        None  # of the exemplars of each class, `[experts, classes, d]`, until something changes
    )

    def begin(self, x: Tensor) -> None:
        """Show the network each image and its mirror image, and a view of both."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device, versions=inner_flips)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with an expert on every level."""
        size = self.settings.projection
        install_whole(self, lambda outputs: MultiLevelNetwork(network, features, outputs, size))

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Exemplars of the running task, then of earlier ones.

        Beside rows and slots: two arrays whose lengths say how many are of the running task, and how many samples of
        the batch are joined with the exemplars of earlier tasks; and the number of classes seen.
        """
        size, seen = self.replay_size(batch), np.array([len(self.labels)], np.int64)
        if self.is_first_task:
            rows, slots = self.draw_of(True, size)
            return rows, slots, slots, slots[:0], seen
        current = self.draw_of(True, max(size // 2 - batch, 0) if self.task_batches else 0)
        classes = max(len(self.labels), 1)
        joined = min(size * (classes - self.known) // classes, batch)
        earlier = self.draw_of(False, min(size - joined, self.settings.per_class * classes))
        rows, slots = (np.concatenate(parts) for parts in zip(current, earlier, strict=True))
        return rows, slots, current[1], np.zeros(joined, np.int64), seen

    def forward_sizes(self, batch: int) -> set[int]:
        """Each sample and a view of it, at least."""
        return {2 * batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on the losses of all experts. x: `[copies, batch, ...]`."""
        old, old_slots, current, joined, seen = replay
        first, taken = len(current), len(joined)
        new = torch.cat([x, old[:, :first]], dim=1)
        both = torch.cat([x[:, :taken], old[:, first:]], dim=1)
        owners = torch.cat([slots, current]).repeat(len(new))
        both_owners = torch.cat([slots[:taken], old_slots[first:]]).repeat(len(both))
        levels = self.network.levels(torch.cat([new.flatten(0, 1), both.flatten(0, 1)]))
        losses = [self._distances(levels)]
        everything = torch.cat([owners, both_owners])
        for projected, logits in zip(
            self.network.projected(levels), self.network.logits(levels), strict=True
        ):
            unit = normalize(projected)
            losses.append(supervised_contrastive_loss(unit, everything, self.settings.temperature))
            logits = self.head.among_open(logits)
            among = self.of_running_task(logits[: len(owners)], owners, seen)
            losses.append(cross_entropy(among, owners))
            if len(both_owners):
                losses.append(2 * cross_entropy(logits[len(owners) :], both_owners))
        self.descend(torch.stack(losses).sum())

    def _distances(self, levels: list[Tensor]) -> Tensor:
        """Reverse self-distillation: how far the last expert's adapted features are from those of each other one."""
        adapted = normalize(self.network.adaption(levels[-1]))
        parts = [torch.linalg.vector_norm(adapted - normalize(part.detach())) for part in levels[:-1]]
        return torch.stack([*parts, 0 * adapted.sum()]).sum()

    # Predicting.

    def features(self, x: Tensor) -> Tensor:
        """The features of the last expert."""
        found: Tensor = self.predictor.body(x)
        return found

    def scores(self, x: Tensor) -> Tensor:
        """The negative squared distance to the mean of each class, averaged over the experts."""
        means = self._class_means()
        parts = self._levels(x).chunk(len(means), 1)
        each = [nearest_mean_scores(part, mean) for part, mean in zip(parts, means, strict=True)]
        return torch.stack(each).mean(0)

    def _levels(self, x: Tensor) -> Tensor:
        """The unit-length features of the experts that predict, one after the other."""
        levels = self.predictor.levels(x)
        used = levels if self.settings.all_experts else levels[-1:]
        return torch.cat([to_unit_length(part)[0] for part in used], 1)

    def _class_means(self) -> Tensor:
        if self._means is None:
            sums = class_sums(self, self._levels)
            experts = len(self.network.experts) + 1 if self.settings.all_experts else 1
            self._means = torch.stack([to_unit_length(part)[0] for part in sums.chunk(experts, 1)])
        return self._means

    def invalidate(self) -> None:
        """Drop the means, too."""
        super().invalidate()
        self._means = None

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Copy the means."""
        frozen._means = evaluate(self, self._class_means).clone() if self.labels else None

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and of the means, while there are any."""
        means = {} if self._means is None else {"means": self._means.nbytes}
        return super().footprint() | means
