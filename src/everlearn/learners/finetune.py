"""Finetuning: learn from what arrives and nothing else, the lower reference of every comparison."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.learners.base import Learner, Settings
from everlearn.networks import SoftmaxNetwork, as_input, trunk
from everlearn.streams.horizon import Horizon

__all__ = ["Finetune", "FinetuneSettings", "IIDOffline", "IIDOnline"]

UNSEEN = -1e4


@dataclasses.dataclass(frozen=True)
class FinetuneSettings(Settings):
    """Finetuning's settings; the defaults are those of Split-MNIST."""

    learning_rate: float = 0.05
    """step size of plain SGD"""
    outputs: int = 0
    """logits in the softmax from the start, seen or not; 0 lets them come with the classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("outputs", self.outputs >= 0, "at least 0")


class Finetune(Learner):
    """Plain SGD with cross-entropy on each batch, once: no memory, and so it forgets.

    It shows what a stream does to a network that nothing protects.

    >>> x = torch.randn(40, 8) + 3 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = Finetune("mlp", hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    French, R. M. Catastrophic forgetting in connectionist networks. Trends in Cognitive Sciences, 1999.
    """

    name = "finetune"
    Settings = FinetuneSettings
    settings: FinetuneSettings

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step of cross-entropy on the batch."""
        self._descend(cross_entropy(self._logits(as_input(x)), slots))

    def scores(self, x: Tensor) -> Tensor:
        """The logits of the classes seen."""
        return self._logits(x)[:, : len(self.labels)]

    def features(self, x: Tensor) -> Tensor:
        """What the last layer is given."""
        assert isinstance(self.network, SoftmaxNetwork)
        given: Tensor = self.network.body(x)
        return given

    def _hold_still(self, still: Any) -> None:
        still._open = self._open.clone()

    def _logits(self, x: Tensor) -> Tensor:
        assert self.network is not None
        return torch.where(self._open, self.network(x), UNSEEN)

    def _build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        body, _ = trunk(name, shape, self.settings.hidden)
        return body

    def _install(self, network: nn.Module, features: int) -> None:
        self._use(SoftmaxNetwork(network, features, self.settings.outputs or 16))
        self._open = self._room(self.settings.outputs)

    def _open_classes(self, classes: int) -> None:
        assert isinstance(self.network, SoftmaxNetwork)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            grown = self.network.make_room(classes)
        if grown:
            self._use(self.network)
            self._open = self._room(classes)
        self._open[:classes] = True

    def _room(self, classes: int) -> Tensor:
        """Which logits take part in the softmax."""
        assert isinstance(self.network, SoftmaxNetwork)
        return torch.arange(self.network.head.out_features, device=self.device) < classes


class IIDOnline(Finetune):
    """Finetuning on the stream shuffled as a whole, once: what online learning reaches without the order.

    It needs no method of its own, only another order of the same stream.

    >>> from everlearn import learner, run, stream
    >>> s = stream("split-digits")
    >>> run(learner("iid-online", stream=s), s).accuracy > 0.5
    True

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    name = "iid-online"
    scenario = "iid"


class IIDOffline(IIDOnline):
    """Finetuning on the stream shuffled as a whole, with 50 passes over it: what offline learning reaches.

    It needs no method of its own, only another order of the same stream, and the stream as its horizon.

    >>> IIDOffline.horizon
    Horizon(extent='stream', samples=None, epochs=50)

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution. ICCV 2021.
    """

    name = "iid-offline"
    horizon = Horizon("stream", epochs=50)
