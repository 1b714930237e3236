"""How a learner predicts, at any moment."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.learners.asked import Asked
from everlearn.learners.foundation import Foundation
from everlearn.learners.snapshot import Snapshot, Turn, in_turn
from everlearn.learners.unknown import threshold, withhold
from everlearn.memory.labels import Label, LabelTable
from everlearn.networks import as_input
from everlearn.threads import computing_with

__all__ = ["CHUNK", "Diverged", "NotLearntYet", "Predicting"]

# So many samples pass the network at once, which bounds what a prediction takes.
CHUNK = 1000


class NotLearntYet(RuntimeError):
    """A prediction was asked before the first label."""


class Diverged(RuntimeError):
    """A prediction was asked of a network that gives no numbers any more."""


class Predicting(Foundation):
    """The part of a learner that predicts."""

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen so far; UNKNOWN where it may say so and is not sure enough."""
        labels, scores = self.classes, self._scored(x)
        predicted = [labels[slot] for slot in scores.argmax(1).tolist()]
        return (
            predicted if self.settings.unknown is None else withhold(predicted, scores, self._least_score())
        )

    def _least_score(self) -> float:
        self._least = threshold(self) if self._least is None else self._least
        return self._least

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        probabilities: NDArray[np.float32] = self._scored(x, "predict_proba").softmax(1).cpu().numpy()
        return probabilities

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made, `[samples, d]`; never of a mirror image."""
        return self._in_chunks(x, "embed", self.features)

    def _scored(self, x: Any, method: str = "predict") -> Tensor:
        if not self.labels:
            raise NotLearntYet(
                f"{type(self).__name__} has seen no label yet: observe a batch first, then predict"
            )
        scores = self._in_chunks(x, method, self._answer)
        if scores.isnan().any():
            raise Diverged(
                f"{type(self).__name__} has no numbers for these samples: its network has diverged, so begin anew "
                "with samples that are scaled or a lower learning_rate; or x is far too large"
            )
        return scores

    def _answer(self, x: Tensor) -> Tensor:
        """The scores that are predicted from, of samples as the network takes them."""
        return self.scores(x)

    def _in_chunks(self, x: Any, method: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of the samples, in evaluation mode and in parts that bound what it takes."""
        if self.network is None:
            raise NotLearntYet(
                f"{type(self).__name__} has seen no batch yet: observe one first, then {method}"
            )
        parts = torch.split(self._samples(x, method), CHUNK)
        with computing_with(self.settings.threads):
            return self._in_evaluation(
                lambda: torch.cat([function(as_input(part.to(self.device))) for part in parts])
            )

    @torch.no_grad()
    def _in_evaluation(self, function: Callable[[], Tensor]) -> Tensor:
        """What a function gives while the network is in evaluation mode."""
        network = self._predictor
        training = network.training
        if training:
            network.eval()
        try:
            return function()
        finally:
            if training:
                network.train()

    @property
    def _predictor(self) -> nn.Module:
        """The network that predictions are made with."""
        assert self.network is not None
        return self.network

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """What `embed` gives, of samples as the network takes them."""

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """The log-odds of each class seen, `[samples, classes]`, of samples as the network takes them."""

    @in_turn
    def snapshot(self) -> Snapshot:
        """The learner as it is now, for predictions alone: it stays as it is while this one goes on."""
        still = copy.copy(self)
        still.labels = LabelTable(self.classes)
        still.network = copy.deepcopy(self.network)
        if still.network is not None:
            still.network.eval().requires_grad_(False)
        still.parameters, still.memory, still._captured = [], None, None
        vars(still).pop("sgd", None)  # it never learns
        still.asked, still._turn = Asked(), Turn()
        still._least = None if self.settings.unknown is None or not self.labels else self._least_score()
        self._hold_still(still)
        return Snapshot(still, self.exemplars())

    def _hold_still(self, still: Any) -> None:
        """Give a snapshot its own copy of whatever else predictions are made from."""
