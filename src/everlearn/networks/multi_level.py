"""A network with an expert on every level: features, logits and a projection after each stage of the body.

Yan, H. et al. Orchestrate Latent Expertise: Advancing Online Continual Learning with Multi-Level Supervision and
Reverse Self-Distillation. CVPR 2024.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from everlearn.networks.backbones import MLP, PixelMean, SlimResNet18, SoftmaxNetwork
from everlearn.networks.heads import projection
from everlearn.randomness import on_cpu
from everlearn.transaction import on_undo

__all__ = ["MultiLevelNetwork"]


class MultiLevelNetwork(SoftmaxNetwork):
    """A body whose stages each have an expert; the last expert is the body itself.

    A residual network has an expert after each of its stages, an MLP after each hidden layer, any other module one.
    """

    def __init__(self, body: nn.Module, features: int, outputs: int, size: int) -> None:
        super().__init__(body, features, outputs)
        self.experts = nn.ModuleList(self._experts(body, features))
        self.expert_heads = nn.ModuleList(nn.Linear(features, outputs) for _ in self.experts)
        self.projections = nn.ModuleList(projection(features, size) for _ in range(len(self.experts) + 1))
        self.adaption = nn.Linear(
            features, features
        )  # of the last features, before they are compared with others
        if not isinstance(body, MLP) and self.experts:
            with on_cpu(body):
                for part in self.modules():
                    if isinstance(part, nn.Conv2d):
                        nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _experts(body: Any, features: int) -> Iterator[nn.Module]:
        if isinstance(body, MLP):
            yield nn.Sequential(nn.Linear(features, features), nn.ReLU())
        elif isinstance(body, SlimResNet18):
            for width in body.widths[:-1]:
                yield ConvolutionalExpert(width, features)

    def levels(self, x: Tensor) -> list[Tensor]:
        """The features of every expert, the last one's last, `[samples, features]` each."""
        body: Any = self.body
        experts = list(self.experts)
        if not experts:
            return [body(x)]
        found: list[Tensor] = []
        if isinstance(body, MLP):
            flatten, *first, second, last = body
            for layer in (flatten, *first):
                x = layer(x)
            return [experts[0](x), last(second(x))]
        blocks = len(body.stages) // len(body.widths)
        with body.precision(x):
            x = body.stem(x)
            for level in range(len(body.widths)):
                x = body.stages[level * blocks : (level + 1) * blocks](x)
                if level < len(experts):
                    found.append(experts[level](x))
            found.append(body.pool(x).flatten(1))
        return [part.float() for part in found]

    def logits(self, levels: list[Tensor]) -> list[Tensor]:
        """The logits of every expert, given their features."""
        return [head(part) for head, part in zip([*self.expert_heads, self.head], levels, strict=True)]

    def projected(self, levels: list[Tensor]) -> list[Tensor]:
        """The projections of every expert, given their features."""
        return [head(part) for head, part in zip(self.projections, levels, strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the last expert, `[samples, outputs]`."""
        logits: Tensor = self.head(self.body(x))
        return logits

    # Classes.

    def make_room(self, classes: int) -> bool:
        """Double the last layers until they have room for this many classes; True if they were replaced."""
        grown = super().make_room(classes)
        if grown:
            self._resize(self.head.out_features, None)
        return grown

    def forget(self, slot: int, room: int) -> None:
        """Remove the logit of a class from every expert."""
        super().forget(slot, room)
        self._resize(room, slot)

    def _resize(self, outputs: int, gone: int | None) -> None:
        """Give the other experts last layers of this size, without the class that is gone."""
        before = self.expert_heads
        on_undo(lambda: setattr(self, "expert_heads", before))
        heads = []
        for old in before:
            assert isinstance(old, nn.Linear)
            new = nn.Linear(old.in_features, outputs, device=old.weight.device)
            stays = [slot for slot in range(old.out_features) if slot != gone][:outputs]
            with torch.no_grad():
                new.weight[: len(stays)] = old.weight[stays]
                new.bias[: len(stays)] = old.bias[stays]
            heads.append(new)
        self.expert_heads = nn.ModuleList(heads)


class ConvolutionalExpert(nn.Module):
    """Features from the maps of a stage: weighted by attention, then halved until they are as many as the body's."""

    def __init__(self, planes: int, features: int) -> None:
        super().__init__()
        self.attention = nn.Sequential(_halved(planes, planes), nn.BatchNorm2d(planes), nn.ReLU())
        steps = []
        while planes < features:
            steps.append(_halved(planes, 2 * planes))
            planes *= 2
        self.steps = nn.Sequential(*steps)
        self.pool = PixelMean()

    def forward(self, x: Tensor) -> Tensor:
        weights = interpolate(self.attention(x), size=x.shape[-2:], mode="bilinear").sigmoid()
        pooled: Tensor = self.pool(self.steps(x * weights))
        return pooled


def _halved(inputs: int, outputs: int) -> nn.Module:
    """Two separable convolutions, the first with stride 2."""
    layers: list[nn.Module] = []
    for stride, last in ((2, inputs), (1, outputs)):
        layers += [
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.Conv2d(inputs, last, 1, bias=False),
            nn.BatchNorm2d(last),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)
