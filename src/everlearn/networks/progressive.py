"""Progressive networks: columns that are added over time, each with the features of all earlier columns as input.

After every stage, a column receives its own features and those of the earlier columns, which do not change. So later
columns can be small.

Rusu, A. A. et al. Progressive Neural Networks. 2016.
"""

from __future__ import annotations

import copy
import itertools
import math

import torch
from torch import Tensor, nn

from everlearn.networks.backbones import BasicBlock, PixelMean, SlimResNet18, convolution

__all__ = ["FILTERS", "Column", "convolutional_column", "mlp_column", "own_column", "residual_column"]

# Filters of the convolutional columns' first stage: of the first column, and of each later one.
FILTERS = (32, 4)
RESIDUAL_FILTERS = (SlimResNet18.widths[0], 4)


class Column(nn.Module):
    """A sequence of stages; each receives the features of this column and of all earlier ones.

    features: the number of features after the last stage, including those of earlier columns.
    """

    def __init__(self, stages: list[nn.Module], features: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.features = features

    def forward(self, x: Tensor, before: list[Tensor]) -> list[Tensor]:
        """The features after each stage, those of earlier columns first. before: the features of earlier columns."""
        after: list[Tensor] = []
        for stage, earlier in itertools.zip_longest(self.stages, before):
            own = stage(after[-1] if after else x)
            after.append(own if earlier is None else torch.cat([earlier, own], 1))
        return after


def mlp_column(number: int, shape: tuple[int, ...], hidden: int, added: int) -> Column:
    """Two hidden layers: of `hidden` units in the first column, of `added` in each later one."""
    own, total = _widths(number, (hidden, added))
    first = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), own), nn.ReLU())
    return Column([first, nn.Sequential(nn.Linear(total, own), nn.ReLU())], total)


def convolutional_column(number: int, shape: tuple[int, ...]) -> Column:
    """Two convolutions with pooling and a hidden layer, for images whose sides can be halved twice."""
    own, total = _widths(number, FILTERS)
    quarter = (shape[1] // 4) * (shape[2] // 4)
    stages: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(shape[0], own, 3, 1, 1), nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(nn.Conv2d(total, 2 * own, 3, 1, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Linear(2 * total * quarter, 4 * own), nn.ReLU()),
    ]
    return Column(stages, 4 * total)


def residual_column(number: int, shape: tuple[int, ...]) -> Column:
    """A slim ResNet with one block per stage, each image normalised by itself, for images of at least 16 x 16."""
    own, total = _widths(number, RESIDUAL_FILTERS)
    norm = nn.InstanceNorm2d
    stages: list[nn.Module] = [
        nn.Sequential(convolution(shape[0], own, 3, 1, norm), nn.ReLU()),
        BasicBlock(total, own, 1, norm),
        BasicBlock(total, 2 * own, 2, norm),
        BasicBlock(2 * total, 4 * own, 2, norm),
        nn.Sequential(BasicBlock(4 * total, 8 * own, 2, norm), PixelMean()),
    ]
    return Column(stages, 8 * total)


def own_column(number: int, network: nn.Module, features: int) -> Column:
    """A column with one stage, a copy of a user's network with its weights."""
    return Column([copy.deepcopy(network)], features * (number + 1))


def _widths(number: int, first_and_added: tuple[int, int]) -> tuple[int, int]:
    """The width of a column, and that of it and all before it."""
    first, added = first_and_added
    return (added if number else first), first + number * added
