"""What learners with a softmax share: one logit per class, in a last layer that grows with the classes."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.learners.base import Learner, Settings
from everlearn.networks import SoftmaxNetwork, as_input, trunk
from everlearn.transaction import assign, on_undo

__all__ = ["SoftmaxLearner", "SoftmaxSettings"]

UNSEEN = -1e4


@dataclasses.dataclass(frozen=True)
class SoftmaxSettings(Settings):
    """The settings of a learner with a softmax; where no benchmark is named, the defaults are Split-MNIST's."""

    learning_rate: float = 0.05
    """step size of plain SGD"""
    clip: float | None = 1.0
    """longest step of SGD, learning rate times gradient; a longer one is shortened to it. None for any length"""
    outputs: int = 0
    """logits in the softmax from the start, seen or not; 0 lets them come with the classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("outputs", self.outputs >= 0, "at least 0")


class SoftmaxLearner(Learner):
    """Predicts the class with the largest logit."""

    Settings = SoftmaxSettings
    settings: SoftmaxSettings

    def scores(self, x: Tensor) -> Tensor:
        """The logits of the classes seen."""
        return self._among_open(self._predictor(x))[:, : len(self.labels)]

    def features(self, x: Tensor) -> Tensor:
        """What the last layer is given."""
        network = self._predictor
        assert isinstance(network, SoftmaxNetwork)
        given: Tensor = network.body(x)
        return given

    def _logits(self, x: Tensor) -> Tensor:
        assert self.network is not None
        return self._among_open(self.network(x))

    def _among_open(self, logits: Tensor) -> Tensor:
        """The logits, of which those of no class yet take no part in the softmax."""
        return torch.where(self._open, logits, UNSEEN)

    def _fit(self, x: Tensor, slots: Tensor) -> None:
        """One step of plain SGD on the mean cross-entropy, whose slope by the logits is softmax − one-hot."""
        passed = self.sgd.forward(as_input(x))
        slope = self._among_open(passed.output).softmax(1)
        slope.scatter_add_(1, slots[:, None], slope.new_full((len(slots), 1), -1))
        passed.descend(slope.div_(len(slots)))

    def _hold_still(self, still: Any) -> None:
        super()._hold_still(still)
        still._open = self._open.clone()

    def _build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        body, _ = trunk(name, shape, self.settings.hidden)
        return body

    def _install(self, network: nn.Module, features: int) -> None:
        self._use(SoftmaxNetwork(network, features, self.settings.outputs or 16))
        self._open = self._room(self.settings.outputs)

    def _open_classes(self, classes: int) -> None:
        super()._open_classes(classes)
        assert isinstance(self.network, SoftmaxNetwork)
        network, head = self.network, self.network.head
        on_undo(lambda: setattr(network, "head", head))
        with self._seeded():
            grown = network.make_room(classes)
        if grown:
            self._use(network)
            self._open = self._room(classes)
        else:
            assign(self._open, slice(classes), True)

    def _forget_class(self, slot: int) -> None:
        super()._forget_class(slot)
        assert isinstance(self.network, SoftmaxNetwork)
        classes = len(self.labels) - 1
        room = self.settings.outputs or 16
        while room < classes:
            room *= 2
        network, head = self.network, self.network.head
        on_undo(lambda: setattr(network, "head", head))
        with self._seeded():
            network.forget(slot, room)
        self._use(network)
        self._open = self._room(max(classes, self.settings.outputs))

    def _room(self, classes: int) -> Tensor:
        """Which logits take part in the softmax."""
        assert isinstance(self.network, SoftmaxNetwork)
        return torch.arange(self.network.head.out_features, device=self.device) < classes
