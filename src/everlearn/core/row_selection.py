"""Which rows of a batch are learnt: those with a label, and with a weight above 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.memory.labels import Label, as_labels, is_missing, shape_of
from everlearn.messages import counted

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["as_weights", "labels_of", "new_labels", "select_rows"]

LARGEST_WEIGHT = 1e6


def labels_of(learner: Learner, y: Any, where: str) -> list[Label]:
    """The labels of a batch; None for a missing one, where the learner's `missing_labels` allows it."""
    refuses = learner.settings.missing_labels == "refuse"
    try:
        labels = as_labels(y)
    except ValueError:  # NaN is not a label either
        found = _with_none(y)
        if not any(label is None for label in found):
            raise
        labels = as_labels(found)
    if refuses and None in labels:
        raise ValueError(
            f"{where} got no label (None or NaN) for sample {labels.index(None)}: leave such samples out, or set "
            "missing_labels to 'skip' (they are not learnt) or 'class' (None is a class)"
        )
    return labels


def counts(learner: Learner, label: Label) -> bool:
    """Whether a sample with this label is learnt: None is no label where `missing_labels` is "skip"."""
    return label is not None or learner.settings.missing_labels != "skip"


def _with_none(y: Any) -> list[Any]:
    """Labels with None for each that is missing; empty if there are none."""
    if len(shape_of(y)) > 1 or getattr(y, "ndim", 1) == 0:  # such as a DataFrame; a single value
        return []
    if isinstance(y, Tensor):  # it may hold no values to read
        return (
            []
            if y.ndim != 1 or not y.is_floating_point() or y.device.type == "meta"
            else _with_none(y.tolist())
        )
    y = y.tolist() if isinstance(y, np.ndarray) else y
    sequence = isinstance(y, Iterable) and not isinstance(y, (str, bytes, Set, Mapping))
    return [None if is_missing(label) else label for label in y] if sequence else []


def new_labels(learner: Learner, labels: list[Label]) -> list[Label]:
    """The labels that were never seen, once each."""
    new = learner.labels.new(labels)
    return [label for label in new if label is not None] if learner.settings.missing_labels == "skip" else new


def as_weights(weights: Any, samples: int, where: str) -> NDArray[np.float32]:
    """The weight of each sample of a batch; raises a ValueError unless these are numbers of at least 0."""
    if np.ma.is_masked(weights):
        raise ValueError(f"{where} got a masked value in sample_weight, which is a missing one")
    try:
        given = np.asarray(weights.tolist() if isinstance(weights, Tensor) else weights, np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise ValueError(f"{where} takes sample_weight as one number for each sample") from None
    if given.shape != (samples,):
        raise ValueError(
            f"{where} got {counted(samples, 'sample')} but sample_weight of shape {list(given.shape)}"
        )
    wrong = given[~((given >= 0) & (given <= LARGEST_WEIGHT))]
    if len(wrong):
        raise ValueError(
            f"{where} takes a sample_weight of at least 0 and at most {LARGEST_WEIGHT:.0e}, not {wrong[0]:g}"
        )
    return given.astype(np.float32)


def select_rows(
    learner: Learner, x: Tensor, labels: list[Label], weights: Any, method: str
) -> tuple[Tensor, list[Label], list[Label], NDArray[np.float32] | None]:
    """The rows of a batch that are learnt: samples, labels, the new ones of these, and weights.

    A row of weight 0 is left out as if it had not been given. One without a label is left out; `observe` counts it.
    """
    where = f"{type(learner).__name__}.{method}"
    own = None if weights is None else as_weights(weights, len(x), where)
    if own is not None and not learner.weighs_samples:
        raise ValueError(
            f"{where} takes no sample_weight: the loss of {type(learner).__name__} has no term for each new sample"
        )
    if (
        own is not None
        and isinstance(learner.given, str)
        and learner.given == "identity"
        and not learner.has_head
    ):
        raise ValueError(f"{where} takes no sample_weight with the network identity, which is not trained")
    skipped = [learner.settings.missing_labels == "skip" and label is None for label in labels]
    if method == "observe":
        learner.unlabelled += sum(skipped)
    stays = [i for i in range(len(labels)) if not skipped[i] and (own is None or own[i] > 0)]
    if len(stays) < len(labels):
        x, labels = x[torch.tensor(stays, dtype=torch.int64, device=x.device)], [labels[i] for i in stays]
        own = None if own is None else own[stays]
    return x, labels, new_labels(learner, labels), own
