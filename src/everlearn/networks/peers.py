"""Two networks of the same kind that learn from each other."""

from __future__ import annotations

import copy

from torch import Tensor, nn

from everlearn.networks.backbones import SoftmaxNetwork
from everlearn.randomness import on_cpu
from everlearn.transaction import on_undo

__all__ = ["Peers"]


class Peers(SoftmaxNetwork):
    """A network and a second one beside it, with other initial weights.

    The weights of the second body are drawn anew by each layer's own `reset_parameters`; those of a layer without one
    are the same in both.
    """

    def __init__(self, body: nn.Module, features: int, outputs: int) -> None:
        super().__init__(body, features, outputs)
        self.peer = SoftmaxNetwork(copy.deepcopy(body), features, outputs)
        with on_cpu(self.peer.body):
            for part in self.peer.body.modules():
                reset = getattr(part, "reset_parameters", None)
                if callable(reset):
                    reset()

    def first(self, x: Tensor) -> Tensor:
        """The logits of the first network, `[samples, outputs]`."""
        logits: Tensor = self.head(self.body(x))
        return logits

    def second(self, x: Tensor) -> Tensor:
        """The logits of the second network, `[samples, outputs]`."""
        logits: Tensor = self.peer(x)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """The mean logits of both, `[samples, outputs]`."""
        return (self.first(x) + self.second(x)) / 2

    def make_room(self, classes: int) -> bool:
        """Double the last layers until they have room for this many classes; True if they were replaced."""
        peer, head = self.peer, self.peer.head
        on_undo(lambda: setattr(peer, "head", head))
        peer.make_room(classes)
        return super().make_room(classes)

    def forget(self, slot: int, room: int) -> None:
        """Remove the logit of a class from both."""
        peer, head = self.peer, self.peer.head
        on_undo(lambda: setattr(peer, "head", head))
        peer.forget(slot, room)
        super().forget(slot, room)
