"""A learner at one moment, for predictions alone."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core import prediction
from everlearn.core.delayed_labels import WaitingSamples
from everlearn.core.locking import LearnerLock
from everlearn.memory.labels import Label, LabelTable

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Snapshot", "take_snapshot"]


class Snapshot:
    """A learner at one moment: immutable, and safe to ask from other threads while the learner goes on.

    batches, samples: how much the learner had observed.
    """

    def __init__(self, still: Learner, exemplars: dict[Label, int]) -> None:
        self._still = still
        self._exemplars = exemplars
        self.batches, self.samples = still.batches, still.samples
        self.settings = still.settings

    @property
    def classes(self) -> list[Label]:
        """The labels seen by then, in the order first seen."""
        return self._still.classes

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The prototype of each class, where the learner has any."""
        return dict(getattr(self._still, "prototypes", {}))

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory held."""
        return dict(self._exemplars)

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen by then."""
        return self._still.predict(x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return self._still.predict_proba(x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made."""
        return self._still.embed(x)

    def observe(self, *_: Any, **__: Any) -> None:
        """Refused: a snapshot does not change."""
        raise TypeError("a snapshot only predicts: let the learner that it was taken of observe")


def take_snapshot(learner: Learner) -> Snapshot:
    """The learner as it is now; it stays as it is while the learner goes on."""
    still = copy.copy(learner)
    still.labels = LabelTable(learner.classes)
    still.network = copy.deepcopy(learner.network)
    if still.network is not None:
        still.network.eval().requires_grad_(False)
    still.average = None if learner.average is None else learner.average.copy()
    if learner.head is not None:
        still.head = learner.head.copy(still)
    still.parameters, still.memory, still.graphs = [], None, None
    vars(still).pop("sgd", None)  # it never learns
    still.waiting, still.lock = WaitingSamples(), LearnerLock()
    rejects = learner.settings.unknown is not None and bool(learner.labels)
    still.rejection_threshold = prediction.least_score(learner) if rejects else None
    learner.hold_still(still)
    return Snapshot(still, learner.exemplars())
