"""GDumb: a greedy sampler, and a network that learns from scratch what the memory holds."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.core.images import ImageChanges
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.memory.greedy import GreedyMemory
from everlearn.networks import SoftmaxNetwork, as_input
from everlearn.randomness import DrawFrom
from everlearn.threads import computing_with
from everlearn.training.passes import gradients_of
from everlearn.training.sgd import with_gradients
from everlearn.transaction import suspended

__all__ = ["GDumb", "GDumbSettings"]

MOMENTUM = 0.9
LARGEST_GRADIENT = 10.0


@dataclasses.dataclass(frozen=True)
class GDumbSettings(SoftmaxReplaySettings):
    """GDumb's settings. Nothing is learnt with a batch: `iterations`, `replayed` and `averaging` change nothing."""

    learning_rate: float = 0.05
    """the largest step size of SGD with momentum 0.9; it falls along a cosine and starts again, over and over"""
    lowest_rate: float = 0.0005
    """the smallest step size"""
    passes: int = 256
    """passes over the memory before a prediction"""
    batch: int = 16
    """samples per step of these"""
    decay: float = 1e-6
    """weight decay"""
    cutmix: float = 0.0
    """the probability that a step mixes patches of images, and their labels"""

    trains_with: ClassVar[str | None] = "sgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            "lowest_rate", 0 < self.lowest_rate <= self.learning_rate, "above 0, at most learning_rate"
        )
        self._check("passes", self.passes >= 1, "at least 1")
        self._check("batch", self.batch >= 1, "at least 1")
        self._check("decay", self.decay >= 0, "at least 0")
        self._check("cutmix", 0 <= self.cutmix <= 1, "between 0 and 1")


class GDumb(Learner):
    """Stores a balanced part of the stream, and trains a network from scratch on it when a prediction is asked for.

    The network is trained at the first prediction after a batch, always from the same initial weights. It needs no
    task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = GDumb("mlp", memory_size=10, hidden=16, passes=20, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Prabhu, A., Torr, P. and Dokania, P. GDumb: A Simple Approach that Questions Our Progress in Continual Learning.
    ECCV 2020.
    """

    name = "gdumb"
    Settings = GDumbSettings
    settings: GDumbSettings
    Memory = GreedyMemory
    tensors_alone = False  # nothing is learnt from a batch
    _trained: Any = None  # the network trained on the memory, until this changes

    def plan(self, labels: Any, keep: bool = True) -> Plan:
        """Only where the samples are stored."""
        plan = super().plan(labels, keep)
        return Plan(plan.slots, keep=plan.keep)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Store the batch."""
        if plan.keep is not None:
            with torch.inference_mode():
                self.memory.write(x, plan.keep)

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """Nothing: see `_train`."""

    # The network of predictions.

    @property
    def predictor(self) -> Any:
        """The network trained on the memory; if there is none yet, it is trained now."""
        if self._trained is None and self.network is not None:
            with with_gradients():  # a prediction has switched them off
                self._trained = self._train() if len(self.memory) else self.network
        return self._trained

    def invalidate(self) -> None:
        """Drop the trained network: the memory is about to change."""
        super().invalidate()
        self._trained = None

    def _train(self) -> Any:
        """Train a copy of the initial network on the memory. The random numbers depend only on the seed."""
        network = copy.deepcopy(self.network).train()
        parameters = [part for part in network.parameters() if part.requires_grad]
        if not parameters:
            return network.eval()
        optimiser = torch.optim.SGD(
            parameters, self.settings.learning_rate, MOMENTUM, weight_decay=self.settings.decay
        )
        generator = torch.Generator().manual_seed(self.seed)
        rows, slots = (torch.from_numpy(part) for part in self.memory.kept())
        size = max(self.settings.batch, 2)
        with suspended(), computing_with(self.settings.threads), DrawFrom(generator):
            for passed in range(self.settings.passes):
                for group in optimiser.param_groups:
                    group["lr"] = self._rate(passed)
                for part in torch.split(torch.randperm(len(rows), generator=generator), size):
                    if len(part) > self.may_reject:  # batch norm can't take a single sample
                        x = self.prepared(self.memory.recall(rows[part].to(self.device)))
                        loss = self._loss(network, x, slots[part].to(self.device), generator)
                        for parameter, slope in zip(parameters, gradients_of(loss, parameters), strict=True):
                            parameter.grad = slope
                        nn.utils.clip_grad_norm_(parameters, LARGEST_GRADIENT)
                        optimiser.step()
        return network.eval().requires_grad_(False)

    def _rate(self, passed: int) -> float:
        """A tenth in the first pass, the largest in the second; then cosines over 1, 2, 4, … passes."""
        highest, lowest = self.settings.learning_rate, self.settings.lowest_rate
        if passed < 2:
            return highest if passed else highest / 10
        start = passed - 1
        period = 2 ** int(math.log2(start + 1))
        place = (start - (period - 1)) / period
        return lowest + (highest - lowest) * (1 + math.cos(math.pi * place)) / 2

    def _loss(self, network: SoftmaxNetwork, x: Tensor, slots: Tensor, generator: torch.Generator) -> Tensor:
        images: ImageChanges | None = self.images
        if images is not None:
            numbers = [
                torch.from_numpy(part[0]).to(self.device) for part in images.draw(generator, 1, len(x))
            ]
            x, _ = images.change(x, x[:0], numbers, generator)
        x = as_input(x)
        if x.dim() != 4 or float(torch.rand((), generator=generator)) >= self.settings.cutmix:
            return cross_entropy(self.head.among_open(network(x)), slots)
        order = torch.randperm(len(x), generator=generator).to(self.device)
        x, kept = _with_patches(x, x[order], generator)
        logits = self.head.among_open(network(x))
        return kept * cross_entropy(logits, slots) + (1 - kept) * cross_entropy(logits, slots[order])

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Train the network now: a snapshot has no memory."""
        frozen._trained = copy.deepcopy(self.predictor)


def _with_patches(x: Tensor, others: Tensor, generator: torch.Generator) -> tuple[Tensor, float]:
    """Images with a rectangle of others at a random place, and the share of each image that is left."""
    height, width = x.shape[-2:]
    share = math.sqrt(1 - float(torch.rand((), generator=generator)))
    row, column = (int(torch.randint(size, (), generator=generator)) for size in (height, width))
    half_height, half_width = int(height * share) // 2, int(width * share) // 2
    top, bottom = max(row - half_height, 0), min(row + half_height, height)
    left, right = max(column - half_width, 0), min(column + half_width, width)
    mixed = x.clone()
    mixed[..., top:bottom, left:right] = others[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)
