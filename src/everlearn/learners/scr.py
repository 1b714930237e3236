"""SCR: supervised contrastive replay."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from everlearn.core.class_means import class_means, nearest_mean_scores
from everlearn.core.images import SeveralViews
from everlearn.core.learner import Learner
from everlearn.core.prediction import evaluate
from everlearn.core.settings import ReplaySettings
from everlearn.losses.supcon import supervised_contrastive_loss
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks.heads import EmbeddedNetwork

__all__ = ["SCR", "SCRSettings"]


@dataclasses.dataclass(frozen=True)
class SCRSettings(ReplaySettings):
    """SCR's settings; `augmentation` is that of the second view of each image."""

    learning_rate: float = 0.1
    """step size of plain SGD"""
    clip: float | None = 1.0
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""
    memory_size: int = 2000
    """|M_r|, exemplars in the replay memory"""
    temperature: float = 0.07
    """τ, the temperature of the contrastive loss"""
    projection: int = 128
    """the size of the projection that the loss compares"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")
        self._check("temperature", self.temperature > 0, "above 0")
        self._check("projection", self.projection >= 1, "at least 1")


class SCR(Learner):
    """Supervised contrastive replay: samples of a class attract each other in a projection of the features.

    The loss compares all samples of B_n and B_M and one random view of each. Predictions are by the nearest mean of
    the exemplars, in the features before the projection. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = SCR("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Mai, Z. et al. Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in Online
    Class-Incremental Continual Learning. CVPR Workshops 2021.
    """

    name = "scr"
    Settings = SCRSettings
    settings: SCRSettings
    Memory = ReservoirMemory
    has_head = False
    _means: Tensor | None = None  # of the exemplars of each class, until something changes

    def begin(self, x: Tensor) -> None:
        """Show the network each image and one view of it."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a projection of the features."""
        self.use(EmbeddedNetwork(network, features, self.settings.projection))

    def forward_sizes(self, batch: int) -> set[int]:
        """B_n and B_M; their views pass after them."""
        return {batch + min(self.replay_size(batch), len(self.memory))}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on the supervised contrastive loss of B_n ∪ B_M and their views. x: `[2, batch, ...]`."""
        old, old_slots = replay
        both, owners = torch.cat([old, x], dim=1), torch.cat([old_slots, slots])
        projected = torch.cat([normalize(self.network(view)) for view in both])
        self.descend(supervised_contrastive_loss(projected, owners.repeat(2), self.settings.temperature))

    # Predicting.

    def features(self, x: Tensor) -> Tensor:
        """The features before the projection."""
        found: Tensor = self.predictor.body(x)
        return found

    def scores(self, x: Tensor) -> Tensor:
        """The negative squared distance to the mean of each class."""
        return nearest_mean_scores(self.features(x), self._class_means())

    def _class_means(self) -> Tensor:
        if self._means is None:
            self._means = class_means(self, self.features)
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
