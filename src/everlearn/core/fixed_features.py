"""Learners of fixed features: the network is never trained, and what is learnt are statistics of its output."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.core.forget import drop_class
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import Settings
from everlearn.memory.class_means import ClassMeans
from everlearn.memory.labels import Label
from everlearn.networks import as_input, embedding_network
from everlearn.training.passes import NotFinite

__all__ = ["FixedFeatureLearner", "FixedFeatureSettings"]


@dataclasses.dataclass(frozen=True)
class FixedFeatureSettings(Settings):
    """Nothing is trained: learning rate, iterations and optimiser change nothing."""

    trains_with: ClassVar[str | None] = "sgd"


class FixedFeatureLearner(Learner):
    """A learner that counts every sample once, in statistics of the features that a frozen network gives.

    The network is `"identity"` for samples that are features already, also those of an `encoder`. Any other is used
    as it is, in evaluation mode. A revisited batch changes nothing: its samples have been counted.

    class_means: the mean of all features of each class.
    """

    has_head = False
    Settings = FixedFeatureSettings
    standardises = False  # the scale follows the stream, and statistics of the past would keep the old one
    tensors_alone = False  # statistics are replaced, not changed in place
    class_means: ClassMeans | None = None

    def add(self, features: Tensor, slots: Tensor) -> None:
        """Count new samples. features: `[samples, d]`. slots: the class of each."""
        assert self.class_means is not None
        self.class_means.add(features, slots)

    def must_be_finite(self) -> list[Tensor]:
        """What shows whether all statistics are finite; of a matrix of squares, the diagonal is the largest."""
        return [] if self.class_means is None else [self.class_means.means]

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, and the rows where it is stored; no replay."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        if self.memory is not None:
            return Plan(slots, keep=self.memory.admit(slots) if keep else None)
        return Plan(slots, keep=slots if keep else None)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Count a batch, unless it is revisited."""
        if plan.keep is not None:
            with torch.no_grad():
                self.add(self.features(as_input(self.prepared(x))), plan.slots)
                if not all(bool(part.sum().isfinite()) for part in self.must_be_finite()):
                    raise NotFinite
                if self.memory is not None:
                    self.memory.write(x, plan.keep)

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """Nothing: there are no gradients."""

    def features(self, x: Tensor) -> Tensor:
        """The output of the frozen network, `[samples, d]`."""
        given: Tensor = self.network(x)
        return given

    def scores_with(self, network: Any, x: Tensor) -> Tensor:
        """The scores: there is only one network."""
        return self.scores(x)

    # The network.

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """Build the named network; its output are the features."""
        return embedding_network(name, shape, self.settings.hidden, None)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network that gives this number of features."""
        self.use(network)
        self.class_means = ClassMeans(features, self.device)

    def use(self, network: nn.Module) -> None:
        """Use this network as it is: none of its parameters is trained."""
        super().use(network)
        self.parameters = []
        network.eval()

    def prepare_network(self) -> None:
        """Keep the network in evaluation mode."""
        self.network.eval()

    def forward_sizes(self, batch: int) -> set[int]:
        """None: there are no forward passes in training mode, which might reject a batch of some size."""
        return set()

    # Classes and state.

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        super().open_classes(classes)
        if self.class_means is not None:
            self.class_means.open_classes(classes)

    def forget_class(self, slot: int) -> None:
        """Remove the mean of a class, and its exemplars if there are any."""
        drop_class(self, slot)
        if self.class_means is not None:
            self.class_means.forget(slot)

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Count the samples that the other has counted."""
        if self.memory is not None:
            self.memory.merge(other.memory, slots)
        if self.class_means is not None:
            self.class_means.merge(other.class_means, slots)

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Copy the means."""
        if self.class_means is not None:
            frozen.class_means = self.class_means.copy()

    def changing_parts(self) -> list[object]:
        """The objects whose attributes change while learning."""
        return [*super().changing_parts(), *([] if self.class_means is None else [self.class_means])]

    def footprint(self) -> dict[str, int]:
        """Bytes by part."""
        held = {} if self.class_means is None else {"class means": self.class_means.nbytes()}
        return super().footprint() | held

    def extra_state(self) -> State:
        """The tensors of the state besides the network's and the generator's."""
        return super().extra_state() | ({} if self.class_means is None else self.class_means.state())

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        if self.class_means is not None:
            self.class_means.restore(state)
