"""Prediction, at any moment: in evaluation mode and in chunks, without changing the learner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.arrays import Array
from everlearn.core.calibration import calibrated
from everlearn.core.chunks import chunk_size
from everlearn.core.few_samples import scores_of_one
from everlearn.core.images import scores_over_views
from everlearn.core.rejection import rejected
from everlearn.core.sparse import is_sparse, row_chunks
from everlearn.core.validation import check_samples
from everlearn.memory.labels import Label
from everlearn.networks import as_input
from everlearn.threads import computing_with
from everlearn.torch_modes import keeping_modes

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Diverged", "NotLearntYet", "embed", "evaluate", "predict", "predict_proba"]

Result = TypeVar("Result")


class NotLearntYet(RuntimeError):
    """Raised by a prediction before the first label."""


class Diverged(RuntimeError):
    """Raised when the network's output is NaN."""


def predict(learner: Learner, x: Any) -> list[Label]:
    """The label of each sample, among those seen so far; UNKNOWN where the learner rejects the sample."""
    labels, scores = learner.classes, scored(learner, x)
    predicted = [labels[slot] for slot in scores.argmax(1).tolist()]
    return predicted if learner.settings.unknown is None else rejected(learner, predicted, x)


def predict_proba(learner: Learner, x: Any) -> NDArray[np.float32]:
    """A row of probabilities per sample, over `classes`."""
    scores = torch.as_tensor(scored(learner, x, "predict_proba"))
    probabilities: NDArray[np.float32] = scores.softmax(1).cpu().numpy()
    return probabilities


def embed(learner: Learner, x: Any) -> Tensor:
    """The features of each sample that predictions are based on, `[samples, d]`."""
    return in_chunks(learner, x, "embed", learner.features)


def scored(learner: Learner, x: Any, method: str = "predict") -> Array:
    """The learner's `scores` of samples, `[samples, classes]`; with `mirrored` or `shifted`, the mean over views.

    method: the name of the called method, for error messages.
    """
    name = type(learner).__name__
    if not learner.labels:
        raise NotLearntYet(f"{name} has seen no label yet: observe a batch first, then predict")
    if (single := scores_of_one(learner, x)) is not None:
        return single
    scores = in_chunks(learner, x, method, lambda part: calibrated(learner, part, scores_over_views))
    if scores.isnan().any():
        raise Diverged(
            f"{name} gives NaN for these samples: its network has diverged, so start again with scaled samples "
            "or a lower learning_rate; or x is far too large"
        )
    return scores


@keeping_modes
def in_chunks(learner: Learner, x: Any, method: str, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to the samples, in evaluation mode and in chunks."""
    if learner.network is None:
        raise NotLearntYet(
            f"{type(learner).__name__} has seen no batch yet: observe one first, then {method}"
        )
    learner.settle()
    parts: Iterable[Tensor]
    if is_sparse(x):  # made dense one chunk after the other
        parts = (check_samples(learner, part, method) for part in row_chunks(x, chunk_size(learner)))
    else:
        parts = torch.split(check_samples(learner, x, method), chunk_size(learner))
    try:
        inputs = (learner.prepared(as_input(part.to(learner.device))) for part in parts)
        return evaluate(learner, lambda: torch.cat([function(part) for part in inputs]))
    except Exception as error:
        if isinstance(learner.given, str):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"the network can't take the samples of this {method}: {reason}") from error


@torch.no_grad()
def evaluate(learner: Learner, function: Callable[[], Result]) -> Result:
    """Call a function while the networks that predict are in evaluation mode."""
    networks = [learner.network, learner.predictor] if learner.options.blend else [learner.predictor]
    training = [network for network in networks if network.training and learner.traits.has_modes]
    with computing_with(learner.settings.threads):
        for network in training:
            network.eval()
        try:
            return function()
        finally:
            for network in training:
                network.train()
