"""A softmax head: one logit per class, in a last layer that grows with the classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.arrays import Array, takes_arrays
from everlearn.core.turned_images import fit_turned, turns_of
from everlearn.networks import SoftmaxNetwork, as_input
from everlearn.training.passes import gradients_of
from everlearn.transaction import assign, on_undo

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = [
    "UNSEEN",
    "SoftmaxHead",
    "features",
    "fit",
    "install",
    "install_whole",
    "logits",
    "scores",
    "weighted_cross_entropy",
]

UNSEEN = -1e4  # the logit of an unseen class


class SoftmaxHead:
    """The part of a learner that predicts the class with the largest logit."""

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self.open: Any = None  # which logits take part in the softmax, `[outputs]`

    def among_open(self, logits: Tensor) -> Tensor:
        """The logits with outputs of unseen classes masked."""
        return torch.where(self.open, logits, UNSEEN)

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        network, head = self._learner.network, self._learner.network.head
        on_undo(lambda: setattr(network, "head", head))
        with self._learner.seeded():
            grown = network.make_room(classes)
        if grown:
            self._learner.use(network)
            self.open = self.first(classes)
        else:
            assign(self.open, slice(classes), True)

    def forget(self, slot: int) -> None:
        """Remove the logit of a class; those after it move down by one."""
        learner = self._learner
        classes, outputs = len(learner.labels) - 1, learner.settings.outputs
        room = outputs or 16
        while room < classes:
            room *= 2
        network, head = learner.network, learner.network.head
        on_undo(lambda: setattr(network, "head", head))
        with learner.seeded():
            network.forget(slot, room)
        learner.use(network)
        self.open = self.first(max(classes, outputs))

    def first(self, classes: int) -> Tensor:
        """A mask of the logits of the first classes."""
        outputs = self._learner.network.head.out_features
        return torch.arange(outputs, device=self._learner.device) < classes

    def copy(self, learner: Learner) -> SoftmaxHead:
        """The head of a copy of the learner."""
        head = SoftmaxHead(learner)
        head.open = None if self.open is None else self.open.clone()
        return head


def logits(learner: Learner, x: Tensor) -> Tensor:
    """The logits in training mode, with outputs of unseen classes masked."""
    masked: Tensor = learner.head.among_open(learner.network(x))
    return masked


def descend(learner: Learner, loss: Tensor) -> None:
    """One SGD step on a loss, by autograd; nothing where the network has nothing to train."""
    if learner.parameters:
        learner.sgd.step(gradients_of(loss, learner.parameters))


def fit(learner: Learner, x: Tensor, slots: Tensor, weights: Tensor | None = None) -> None:
    """One SGD step on the mean cross-entropy, whose gradient by the logits is softmax − one-hot.

    weights: how much the gradient of each sample counts, `[samples, 1]`.
    """
    turns = turns_of(learner)
    if turns is not None:
        fit_turned(learner, x, slots, turns, weights)
        return
    forward = learner.sgd.forward(as_input(x))
    slope = learner.head.among_open(forward.output).softmax(1)
    slope.scatter_add_(1, slots[:, None], slope.new_full((len(slots), 1), -1))
    if weights is not None:
        slope *= weights
    forward.descend(slope.div_(len(slots)))


def weighted_cross_entropy(learner: Learner, logits: Tensor, slots: Tensor, old: int = 0) -> Tensor:
    """The mean cross-entropy of new samples by their `sample_weight`, and of this many replayed ones after them."""
    own = learner.sample_weights
    if own is None:
        return cross_entropy(logits, slots)
    weights = torch.cat([own, own.new_ones(old)])
    return (cross_entropy(logits, slots, reduction="none") * weights).sum() / weights.sum()


def scores(learner: Learner, x: Tensor) -> Tensor:
    """The score of each class seen, `[samples, classes]`: its logit. Their softmax gives the probabilities."""
    by_predictor: Tensor = learner.scores_with(learner.predictor, x)
    return by_predictor


def scores_with(learner: Learner, network: Any, x: Tensor) -> Tensor:
    """The same by the weights of this network."""
    scores: Tensor = learner.scores_of(network(x))
    return scores


@takes_arrays
def scores_of(learner: Learner, output: Array) -> Array:
    """The scores from the output of the network, a tensor or an array: the logits of the classes seen."""
    return output[:, : len(learner.labels)]


def features(learner: Learner, x: Tensor) -> Tensor:
    """The features that `embed` returns, `[samples, d]`: the input of the last layer."""
    given: Tensor = learner.predictor.body(x)
    return given


def install(learner: Learner, network: nn.Module, features: int) -> None:
    """Start with a network whose output has this number of features, and a last layer on top."""
    install_whole(learner, lambda outputs: SoftmaxNetwork(network, features, outputs))


def install_whole(learner: Learner, make: Callable[[int], SoftmaxNetwork]) -> None:
    """Start with a network that has a last layer. make: makes it, with this number of logits."""
    outputs = learner.settings.outputs
    learner.use(make(outputs or 16))
    learner.head.open = learner.head.first(outputs)
