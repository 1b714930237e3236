"""What OCM and OnPro share: settings of contrastive losses, a projection, a replay that grows with the classes."""

from __future__ import annotations

import dataclasses

from torch import nn

from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import install_whole
from everlearn.networks.heads import ProjectedNetwork

__all__ = ["ContrastiveSettings", "install_projection", "replay_by_class"]


@dataclasses.dataclass(frozen=True)
class ContrastiveSettings(SoftmaxReplaySettings):
    """Settings of contrastive losses beside a softmax; `augmentation` is that of all views."""

    temperature: float = 0.07
    """τ, the temperature of the contrastive losses between samples"""
    projection: int = 128
    """the size of the projection that these losses compare; at most that of the features"""
    similarity: float = 1.0
    """the weight of similarities from the second task on"""
    per_class: int = 7
    """exemplars replayed in an iteration for each class seen, at most, up to `replayed`"""
    rotations: bool = True
    """learn 16 turned versions of each image as classes of their own in the contrastive losses"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("temperature", "similarity"):
            self._check(name, getattr(self, name) > 0, "above 0")
        for name in ("projection", "per_class"):
            self._check(name, getattr(self, name) >= 1, "at least 1")


def install_projection(learner: Learner, network: nn.Module, features: int) -> None:
    """Start with a projection beside the last layer."""
    size = min(learner.settings.projection, features)
    install_whole(learner, lambda outputs: ProjectedNetwork(network, features, outputs, size))


def replay_by_class(learner: Learner, size: int) -> int:
    """At most `per_class` exemplars for each class seen."""
    return min(size, int(learner.settings.per_class) * max(len(learner.labels), 1))
