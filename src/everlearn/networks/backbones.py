"""The networks of the paper by name, sized from the first batch.

A named network is a trunk and a last linear layer. CoPE's last layer gives the embedding; a softmax
learner's gives one logit per class and grows with them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

__all__ = [
    "EMBEDDINGS",
    "IDENTITY",
    "MLP",
    "BasicBlock",
    "PixelMean",
    "SlimResNet18",
    "SoftmaxNetwork",
    "as_input",
    "convolution",
    "last_layer",
    "to_unit_length",
    "truncate",
]

# The size d of the embedding of each network; of the first two it is the paper's.
EMBEDDINGS = {"mlp": 100, "slim-resnet18": 256, "resnet18": 256, "cnn": 128}

# For samples that are already embeddings of another model; it has no parameters.
IDENTITY = "identity"


def as_input(x: Tensor) -> Tensor:
    """Samples as network input: bytes 0 … 255 become floats 0 … 1."""
    if x.dtype == torch.uint8:
        return x / 255
    return x.float() if x.is_floating_point() else x


def to_unit_length(embedded: Tensor) -> tuple[Tensor, Tensor]:
    """The rows at unit length, and their original lengths.

    A row of zeros gets the length ∞, so that it stays zero, and gradients divided by the length become zero instead
    of infinite. Such rows occur: a network whose biases are zero maps samples of zeros to zero.
    """
    lengths = torch.linalg.vector_norm(embedded, dim=1, keepdim=True)
    lengths = torch.threshold(lengths, 1e-12, torch.inf)  # values up to 1e-12 become infinite
    return embedded / lengths, lengths


class SoftmaxNetwork(nn.Sequential):
    """A body and a last linear layer with one logit per class, whose size doubles when it is full."""

    body: nn.Module
    head: nn.Linear

    def __init__(self, body: nn.Module, features: int, outputs: int) -> None:
        super().__init__(OrderedDict(body=body, head=last_layer(body, features, outputs)))

    def make_room(self, classes: int) -> bool:
        """Double the last layer until it has room for this many classes; True if it was replaced."""
        old = self.head
        room = old.out_features
        while room < classes:
            room *= 2
        if room == old.out_features:
            return False
        self.head = last_layer(self.body, old.in_features, room).to(old.weight.device)
        with torch.no_grad():
            self.head.weight[: old.out_features] = old.weight
            self.head.bias[: old.out_features] = old.bias
        return True

    def forget(self, slot: int, room: int) -> None:
        """Remove the logit of a class; those after it move down by one. room: the new number of logits."""
        old = self.head
        weight = torch.cat([old.weight[:slot], old.weight[slot + 1 :]])[:room]
        bias = torch.cat([old.bias[:slot], old.bias[slot + 1 :]])[:room]
        self.head = last_layer(self.body, old.in_features, room).to(old.weight.device)
        with torch.no_grad():
            self.head.weight[: len(weight)] = weight
            self.head.bias[: len(bias)] = bias


def truncate(modules: nn.ModuleList, length: int) -> None:
    """Keep only the first `length` modules."""
    while len(modules) > length:
        del modules[len(modules) - 1]


class MLP(nn.Sequential):
    """Two hidden layers with ReLU; Xavier-uniform weights and zero biases."""

    def __init__(self, inputs: int, hidden: int) -> None:
        first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        super().__init__(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())
        _xavier(first)
        _xavier(second)


def _xavier(layer: nn.Linear) -> None:
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def last_layer(body: nn.Module, features: int, outputs: int) -> nn.Linear:
    """A linear layer, initialised like the layers before it."""
    layer = nn.Linear(features, outputs)
    if isinstance(body, MLP):
        _xavier(layer)
    return layer


class SlimResNet18(nn.Module):
    """A ResNet18 with 20 filters in its first stage, no max-pool, and 160 features after pooling."""

    widths = (20, 40, 80, 160)
    features = 160
    mixed = False  # train with convolutions in bfloat16, on a GPU

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(channels, self.widths[0], 3, 1), nn.ReLU())
        self.stages = nn.Sequential(*self._blocks())
        self.pool = PixelMean()

    def _blocks(self) -> Iterator[nn.Module]:
        inputs = self.widths[0]
        for width, stride in zip(self.widths, (1, 2, 2, 2), strict=True):
            yield BasicBlock(inputs, width, stride)
            yield BasicBlock(width, width, 1)
            inputs = width

    def forward(self, x: Tensor) -> Tensor:
        with self.precision(x):
            pooled: Tensor = self.pool(self.stages(self.stem(x)))
        return pooled.float()

    def precision(self, x: Tensor) -> torch.autocast:
        """A context in which convolutions are in bfloat16, if the network is to train so."""
        mixed = self.mixed and self.training and x.is_cuda
        # Every weight is used once, so that a cache of the converted ones would only cost memory.
        return torch.autocast(x.device.type, torch.bfloat16, enabled=mixed, cache_enabled=False)


class PixelMean(nn.Module):
    """The mean of each channel, `[batch, channels]`; `vmap` takes it in any memory format, unlike a pool."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1))


class BatchNorm(nn.BatchNorm2d):
    """Batch norm that does not count batches: the count is not used, and costs a kernel on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        statistics, parameters = (self.running_mean, self.running_var), (self.weight, self.bias)
        return batch_norm(x, *statistics, *parameters, training=self.training, eps=self.eps)


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: type[nn.Module] = BatchNorm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            convolution(inputs, outputs, 3, stride, norm),
            nn.ReLU(),
            convolution(outputs, outputs, 3, 1, norm),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else convolution(inputs, outputs, 1, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.residual(x) + self.shortcut(x))


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int, norm: type[nn.Module] = BatchNorm
) -> nn.Module:
    """A convolution without bias and with padding, followed by a norm."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(layer, norm(outputs))
