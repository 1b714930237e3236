"""A history as plain values and one tensor, and back, exactly: what a run keeps on disk of its metrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.evaluation.history import Evaluation, History
from everlearn.memory.labels import Label, decode_label, encode_label

__all__ = ["from_record", "to_record"]


def to_record(history: History) -> tuple[list[dict[str, Any]], Tensor]:
    """Each evaluation as JSON takes it, and all their confusions one after another."""
    confusions = [look.confusion.ravel() for look in history]
    counts = np.concatenate([*confusions, np.zeros(0, np.int64)])
    return [_plain(look) for look in history], torch.from_numpy(counts)


def from_record(record: list[dict[str, Any]], confusions: Tensor) -> list[Evaluation]:
    """The history that `to_record` wrote."""
    history, start = [], 0
    for look in record:
        classes = len(look["labels"])
        counts = confusions[start : start + classes**2].numpy().reshape(classes, classes).copy()
        history.append(_evaluation(look, counts))
        start += classes**2
    return history


def _plain(look: Evaluation) -> dict[str, Any]:
    return {
        "batches": look.batches,
        "samples": look.samples,
        "task": look.task,
        "accuracies": list(look.accuracies.items()),
        "labels": [encode_label(label) for label in look.labels],
        "seen": None if look.seen is None else list(look.seen),
        "exemplars": _pairs(look.exemplars),
        "prototype_truth": _pairs(look.prototype_truth),
        "variance": None if look.variance is None else list(look.variance),
        "prototype_shift": _pairs(look.prototype_shift),
    }


def _evaluation(look: dict[str, Any], confusion: Any) -> Evaluation:
    return Evaluation(
        look["batches"],
        look["samples"],
        look["task"],
        dict(look["accuracies"]),
        tuple(decode_label(code) for code in look["labels"]),
        confusion,
        None if look["seen"] is None else tuple(look["seen"]),
        _by_label(look["exemplars"]),
        _by_label(look["prototype_truth"]),
        None if look["variance"] is None else tuple(look["variance"]),
        _by_label(look["prototype_shift"]),
    )


def _pairs(values: dict[Label, Any]) -> list[list[Any]]:
    return [[encode_label(label), value] for label, value in values.items()]


def _by_label(pairs: list[list[Any]]) -> dict[Label, Any]:
    return {decode_label(code): value for code, value in pairs}
