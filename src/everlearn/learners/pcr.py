"""PCR: proxy-based contrastive replay."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from everlearn.core.images import SeveralViews
from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import install_whole
from everlearn.losses.supcon import proxy_contrastive_loss
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks.heads import CosineNetwork

__all__ = ["PCR", "PCRSettings"]


@dataclasses.dataclass(frozen=True)
class PCRSettings(SoftmaxReplaySettings):
    """PCR's settings; `augmentation` is that of the second view of each image."""

    temperature: float = 0.09
    """τ, the temperature of the cosines"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("temperature", self.temperature > 0, "above 0")


class PCR(Learner):
    """Proxy-based contrastive replay: samples are pulled to the proxy of their class, among those in the batch.

    A proxy is the unit-length weight vector of a class. The loss is a cross-entropy over the proxies of all samples
    of B_n and B_M and of one random view of each, so that classes that are not in the batch are not pushed away.
    Predictions are by the nearest proxy. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = PCR("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Lin, H. et al. PCR: Proxy-based Contrastive Replay for Online Class-Incremental Continual Learning. CVPR 2023.
    """

    name = "pcr"
    Settings = PCRSettings
    settings: PCRSettings
    Memory = ReservoirMemory

    def begin(self, x: Tensor) -> None:
        """Show the network each image and one view of it."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with proxies in place of a linear layer."""
        temperature = self.settings.temperature
        install_whole(self, lambda outputs: CosineNetwork(network, features, outputs, temperature))

    def forward_sizes(self, batch: int) -> set[int]:
        """B_n and a view of each sample; those of B_M pass by themselves."""
        return {2 * batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on the proxy-contrastive loss of B_n ∪ B_M and their views. x: `[2, batch, ...]`."""
        old, old_slots = replay
        features = self.network.body(x.flatten(0, 1))
        owners = slots.repeat(2)
        if len(old_slots):
            features = torch.cat([self.network.body(old.flatten(0, 1)), features])
            owners = torch.cat([old_slots.repeat(2), owners])
        proxies = normalize(self.network.head.weight)[owners]
        self.descend(proxy_contrastive_loss(normalize(features), proxies, owners, self.settings.temperature))
