"""Networks with more than a linear layer on top: cosine logits, a projection for contrastive losses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from everlearn.networks.backbones import SoftmaxNetwork

__all__ = ["CosineNetwork", "EmbeddedNetwork", "ProjectedNetwork", "projection"]


def projection(features: int, size: int, hidden: bool = False) -> nn.Module:
    """A linear layer, or two with a ReLU between them, from features to the space of a contrastive loss."""
    if not hidden:
        return nn.Linear(features, size)
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, size))


class CosineNetwork(SoftmaxNetwork):
    """A body and one proxy per class, the rows of the last layer: a logit is their cosine over the temperature."""

    def __init__(self, body: nn.Module, features: int, outputs: int, temperature: float) -> None:
        super().__init__(body, features, outputs)
        self.temperature = temperature
        self._drop_bias()

    def forward(self, x: Tensor) -> Tensor:
        """The logits, `[samples, outputs]`."""
        return normalize(self.body(x)) @ normalize(self.head.weight).T / self.temperature

    def make_room(self, classes: int) -> bool:
        """Double the proxies until there is one for each class; True if they were replaced."""
        grown = super().make_room(classes)
        self._drop_bias()
        return grown

    def forget(self, slot: int, room: int) -> None:
        """Remove the proxy of a class."""
        super().forget(slot, room)
        self._drop_bias()

    def _drop_bias(self) -> None:
        """A cosine has no bias; the layer keeps one of zeros."""
        with torch.no_grad():
            self.head.bias.requires_grad_(False).zero_()


class ProjectedNetwork(SoftmaxNetwork):
    """A body with a last layer for predictions and, beside it, a projection for a contrastive loss."""

    def __init__(self, body: nn.Module, features: int, outputs: int, size: int) -> None:
        super().__init__(body, features, outputs)
        self.projection = projection(features, size)

    def forward(self, x: Tensor) -> Tensor:
        """The logits, `[samples, outputs]`."""
        logits: Tensor = self.head(self.body(x))
        return logits


class EmbeddedNetwork(nn.Module):
    """A body and a projection for a contrastive loss; predictions use the features of the body."""

    def __init__(self, body: nn.Module, features: int, size: int) -> None:
        super().__init__()
        self.body = body
        self.projection = projection(features, size, hidden=True)

    def forward(self, x: Tensor) -> Tensor:
        """The projected features, `[samples, size]`."""
        projected: Tensor = self.projection(self.body(x))
        return projected
