"""CCL-DC: collaborative continual learning with a distillation chain, on top of experience replay."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.core.images import SeveralViews
from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import install_whole
from everlearn.losses.distillation import distillation_loss
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks.peers import Peers
from everlearn.training.rand_augment import OPERATIONS, rand_augment
from everlearn.training.strong_views import StrongViews

__all__ = ["CCLDC", "CCLDCSettings"]


@dataclasses.dataclass(frozen=True)
class CCLDCSettings(SoftmaxReplaySettings):
    """CCL-DC's settings; `augmentation` is that of the view beside the chain; with "none" there is no chain."""

    distillation: float = 2.0
    """λ, the weight of what the networks learn from each other"""
    temperature: float = 4.0
    """T, the temperature of the distillation"""
    operations: int = 3
    """random operations in each of the last two links of the chain"""
    strength: int = 15
    """how strong they are, from 0 to 30"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("distillation", self.distillation >= 0, "at least 0")
        self._check("temperature", self.temperature > 0, "above 0")
        self._check("operations", self.operations >= 1, "at least 1")
        self._check("strength", 0 <= self.strength <= 30, "between 0 and 30")


class CCLDC(Learner):
    """Two networks that learn from each other along a chain of ever harder views of the same samples.

    The chain is: the sample, a crop of it, that crop after random operations, and the result after more of them. Each
    network learns the labels of every link and of another view, and what its peer says about the next link: a harder
    sample, so a less certain answer. Predictions are by the mean logits of both. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CCLDC("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Wang, M. et al. Improving Plasticity in Online Continual Learning via Collaborative Learning. CVPR 2024.
    """

    name = "ccl-dc"
    Settings = CCLDCSettings
    settings: CCLDCSettings
    Memory = ReservoirMemory
    networks = "two"
    _crops: StrongViews | None = None  # the first link of the chain, where samples are images

    def begin(self, x: Tensor) -> None:
        """Show the networks each image and a view of it; the chain is made in `step`."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device)
        if x.dim() == 4 and self.settings.augmentation != "none":
            self._crops = StrongViews("large-crop-flip", tuple(x.shape[1:]))

    def install(self, network: nn.Module, features: int) -> None:
        """Start with two networks."""
        install_whole(self, lambda outputs: Peers(network, features, outputs))

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Rows and slots, and the random choices of the chain: crops, operations and their signs."""
        rows, slots = super().draw_replay(batch)
        if self._crops is None:
            return rows, slots
        count = batch + len(rows)
        crops = torch.randint(self._crops.count(count), (count,), generator=self.generator)
        shape = (2, self.settings.operations)
        operations = torch.randint(len(OPERATIONS), shape, generator=self.generator)
        signs = torch.randint(2, shape, generator=self.generator)
        return rows, slots, crops.numpy(), operations.numpy(), signs.numpy()

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of both networks on CE / 2 over all views + λ · distillation along the chain."""
        old, old_slots, *drawn = replay
        samples, view = torch.cat([x, old], dim=1)
        owners = torch.cat([slots, old_slots])
        views = [view, *self._chain(samples, *drawn)]
        both = [
            [self.head.among_open(network(each)) for each in views]
            for network in (self.network.first, self.network.second)
        ]
        losses = [cross_entropy(logits, owners) / 2 for each in both for logits in each]
        for mine, (_, *peers) in zip(both, reversed(both), strict=True):
            next_links = [*peers[1:], peers[-1]]  # nothing is harder than the last link
            links = zip(mine[1:], next_links, strict=True)
            losses += [self.settings.distillation * self._divergence(*link) for link in links]
        self.descend(torch.stack(losses).sum())

    def _divergence(self, logits: Tensor, teacher: Tensor) -> Tensor:
        return distillation_loss(logits, teacher, self.settings.temperature)

    def _chain(self, samples: Tensor, *drawn: Tensor) -> list[Tensor]:
        """The four links; four times the samples, where these are no images."""
        if self._crops is None:
            return [samples] * 4
        crops, operations, signs = drawn
        links = [samples, self._crops(samples, crops)]
        for operation, sign in zip(operations, signs, strict=True):
            links.append(rand_augment(links[-1], operation, sign, self.settings.strength))
        return links
