"""The k nearest exemplars of a class-balanced memory, on fixed features."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.core.chunks import chunk_size
from everlearn.core.fixed_features import FixedFeatureLearner, FixedFeatureSettings
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.networks import as_input, to_unit_length

__all__ = ["KNN", "KNNSettings"]

SMALLEST = 1e-6  # the share of a class without neighbours


@dataclasses.dataclass(frozen=True)
class KNNSettings(FixedFeatureSettings):
    """The settings of the k nearest exemplars. Nothing is trained: learning rate and optimiser change nothing."""

    memory_size: int = 2000
    """|M_r|, exemplars in the memory, shared equally by the classes seen"""
    neighbours: int = 20
    """k, the nearest exemplars that vote"""
    temperature: float = 0.1
    """τ, each neighbour's vote counts exp(cosine / τ)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")
        self._check("neighbours", self.neighbours >= 1, "at least 1")
        self._check("temperature", self.temperature > 0, "above 0")


class KNN(FixedFeatureLearner):
    """The k nearest exemplars of a class-balanced memory vote, nearer ones more, by cosine similarity.

    The cosine is that of the angle at the mean of all exemplars. The memory is CoPE's, and there is nothing else. It
    is meant for features of a pretrained model: `KNN("identity")`, or with an `encoder`.

    >>> learner = KNN("identity", neighbours=1)
    >>> learner.observe(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["right", "up"])
    >>> learner.predict(torch.tensor([[3.0, 1.0], [1.0, 2.0]]))
    ['right', 'up']

    Cover, T. and Hart, P. Nearest Neighbor Pattern Classification. IEEE Transactions on Information Theory, 1967.
    The weights of the votes are those of Wu, Z. et al. Unsupervised Feature Learning via Non-Parametric Instance
    Discrimination. CVPR 2018.
    """

    name = "knn"
    Settings = KNNSettings
    Memory = BalancedMemory
    settings: KNNSettings
    memory: BalancedMemory
    _exemplars: tuple[Tensor, Tensor, Tensor] | None = (
        None  # features, mean and slots, until something changes
    )

    def add(self, features: Tensor, slots: Tensor) -> None:
        """Nothing: the memory has the samples."""

    def scores(self, x: Tensor) -> Tensor:
        """The logarithm of the share of the votes that each class has."""
        exemplars, mean, slots = self._neighbourhood()
        classes = len(self.labels)
        if not len(slots):
            return (0 * self.features(x).sum(1, keepdim=True)).expand(-1, classes)
        similarity = to_unit_length(self.features(x) - mean)[0] @ exemplars.T
        nearest = similarity.topk(min(self.settings.neighbours, len(slots)), dim=1)
        shares = (nearest.values / self.settings.temperature).softmax(1)
        votes = shares.new_zeros(x.shape[0], classes).scatter_add(1, slots[nearest.indices], shares)
        return (votes + SMALLEST).log()

    def _neighbourhood(self) -> tuple[Tensor, Tensor, Tensor]:
        """The unit-length features of all exemplars around their mean, this mean, and their classes."""
        if self._exemplars is None:
            rows, slots = (torch.from_numpy(part).to(self.device) for part in self.memory.kept())
            chunks = torch.split(rows, chunk_size(self))
            parts = [as_input(self.memory.recall(part)) for part in chunks if len(part)]
            found = torch.cat([self.features(part) for part in parts]) if parts else torch.zeros(0, 1)
            mean = found.sum(0) / max(len(slots), 1)
            self._exemplars = to_unit_length(found - mean)[0], mean, slots
        return self._exemplars

    def invalidate(self) -> None:
        """Drop the features: the memory is about to change."""
        super().invalidate()
        self._exemplars = None

    def install(self, network: nn.Module, features: int) -> None:
        """Start with this network; there are no class means."""
        self.use(network)

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Compute the features now: a snapshot has no memory."""
        if self.labels:
            with torch.no_grad():
                frozen._exemplars = self._neighbourhood()
