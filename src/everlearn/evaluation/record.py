"""A history as plain values and one tensor, and back, exactly: for checkpoints of runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.evaluation.history import Evaluation, History
from everlearn.memory.labels import Label, decode_label, encode_label

__all__ = ["from_record", "to_record"]


def to_record(history: History) -> tuple[list[dict[str, Any]], Tensor]:
    """Each evaluation as JSON values, and all confusion matrices in one flat tensor."""
    confusions = [evaluation.confusion.ravel() for evaluation in history]
    counts = np.concatenate([*confusions, np.zeros(0, np.int64)])
    return [_plain(evaluation) for evaluation in history], torch.from_numpy(counts)


def from_record(record: list[dict[str, Any]], confusions: Tensor) -> list[Evaluation]:
    """The history that `to_record` wrote."""
    history, start = [], 0
    for evaluation in record:
        classes = len(evaluation["labels"])
        counts = confusions[start : start + classes**2].numpy().reshape(classes, classes).copy()
        history.append(_evaluation(evaluation, counts))
        start += classes**2
    return history


def _plain(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "batches": evaluation.batches,
        "samples": evaluation.samples,
        "task": evaluation.task,
        "accuracies": list(evaluation.accuracies.items()),
        "labels": [encode_label(label) for label in evaluation.labels],
        "seen": None if evaluation.seen is None else list(evaluation.seen),
        "exemplars": _pairs(evaluation.exemplars),
        "prototype_truth": _pairs(evaluation.prototype_truth),
        "variance": None if evaluation.variance is None else list(evaluation.variance),
        "prototype_shift": _pairs(evaluation.prototype_shift),
    }


def _evaluation(evaluation: dict[str, Any], confusion: Any) -> Evaluation:
    return Evaluation(
        evaluation["batches"],
        evaluation["samples"],
        evaluation["task"],
        dict(evaluation["accuracies"]),
        tuple(decode_label(code) for code in evaluation["labels"]),
        confusion,
        None if evaluation["seen"] is None else tuple(evaluation["seen"]),
        _by_label(evaluation["exemplars"]),
        _by_label(evaluation["prototype_truth"]),
        None if evaluation["variance"] is None else tuple(evaluation["variance"]),
        _by_label(evaluation["prototype_shift"]),
    )


def _pairs(values: dict[Label, Any]) -> list[list[Any]]:
    return [[encode_label(label), value] for label, value in values.items()]


def _by_label(pairs: list[list[Any]]) -> dict[Label, Any]:
    return {decode_label(code): value for code, value in pairs}
