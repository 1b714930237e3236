"""An immutable copy of a learner, for predictions only."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core import prediction
from everlearn.core.class_means import prediction_prototypes
from everlearn.core.delayed_labels import WaitingSamples
from everlearn.core.locking import LearnerLock, synchronized
from everlearn.core.rejection import known_region
from everlearn.memory.labels import Label, LabelTable

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Snapshot", "copied", "copy_for_snapshot", "take_snapshot"]


class Snapshot:
    """An immutable copy of a learner, safe to use in other threads while the learner continues to learn.

    batches, samples: the number of batches and samples observed so far.
    """

    def __init__(self, frozen: Learner, exemplars: dict[Label, int]) -> None:
        self._frozen = frozen
        self._exemplars = exemplars
        self.batches, self.samples = frozen.batches, frozen.samples
        self.settings = frozen.settings

    @property
    def classes(self) -> list[Label]:
        """The labels seen by then, in the order first seen."""
        return self._frozen.classes

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The prototype of each class, where the learner has any."""
        return dict(getattr(self._frozen, "prototypes", {}))

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory held."""
        return dict(self._exemplars)

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen by then."""
        return self._frozen.predict(x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return self._frozen.predict_proba(x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made."""
        return self._frozen.embed(x)

    def observe(self, *_: Any, **__: Any) -> None:
        """Raise a TypeError: a snapshot does not change."""
        raise TypeError("a snapshot only predicts: call observe of the learner it was taken from")


@synchronized
def take_snapshot(learner: Learner) -> Snapshot:
    """An immutable copy of the learner as it is now, for predictions only."""
    learner.settle()
    # Not copied: nothing is drawn for a prediction, and torch does not free the copies of a generator.
    shared: dict[int, Any] = {id(learner.generator): learner.generator}
    frozen: Any = object.__new__(type(learner))
    vars(frozen).update(vars(learner))
    frozen.labels = LabelTable(learner.classes)
    frozen.network = copy.deepcopy(learner.network, dict(shared))
    if frozen.network is not None:
        frozen.network.eval().requires_grad_(False)
    frozen.average = None if learner.average is None else learner.average.copy()
    if learner.standardisation is not None:
        frozen.standardisation = learner.standardisation.copy()
    if learner.calibration is not None:
        frozen.calibration = learner.calibration.copy()
    if learner.head is not None:
        frozen.head = learner.head.copy(frozen)
    frozen.parameters, frozen.memory, frozen.graphs, frozen.part_graphs = [], None, None, {}
    vars(frozen).pop("sgd", None)  # it never learns
    frozen.waiting, frozen.lock = WaitingSamples(), LearnerLock()
    rejects = learner.settings.unknown is not None and bool(learner.labels)
    frozen.rejection = known_region(learner) if rejects else None
    learner.copy_for_snapshot(frozen)
    if learner.prototype_memory is not None and learner.labels:
        prediction.evaluate(learner, lambda: prediction_prototypes(learner))  # the copy has no memory
    frozen.prototype_memory = copy.deepcopy(learner.prototype_memory, dict(shared))
    return Snapshot(frozen, learner.exemplars())


def copied(learner: Learner) -> Learner:
    """A copy of its own, also by `copy.copy`: a shallow one would share weights and memory."""
    return copy.deepcopy(learner)


def copy_for_snapshot(learner: Learner, frozen: Any) -> None:
    """Give the copy `frozen`, which has no memory, its own version of anything else that predictions use."""
