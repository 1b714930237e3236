"""Pictures of histories, written to files. matplotlib is imported when the first one is drawn.

The functions of the same names in `plots.curves`, `plots.classes`, `plots.plane` and `plots.reliability` return the
Figure instead.

>>> import tempfile
>>> from everlearn.evaluation.history import from_matrix
>>> histories = {"cope": [from_matrix([[0.9], [0.7, 0.8]])], "finetune": [from_matrix([[0.9], [0.1, 0.9]])]}
>>> with tempfile.TemporaryDirectory() as folder:
...     accuracy_over_stream(histories, f"{folder}/accuracy.png").name
'accuracy.png'
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from everlearn.memory.labels import Label
from everlearn.plots import classes, curves, plane, reliability
from everlearn.plots.style import COLOURS, Histories, save

__all__ = [
    "COLOURS",
    "accuracy_over_stream",
    "accuracy_per_task",
    "anytime_accuracy_over_stream",
    "confusion_matrices",
    "drift_over_stream",
    "embedding_plane",
    "memory_over_stream",
    "reliability_diagram",
]

Target = str | os.PathLike[str]


def accuracy_over_stream(histories: Histories, path: Target) -> Path:
    """Accuracy on the tasks seen over samples seen, a line per learner; histories: for each, one per seed."""
    return save(curves.accuracy_over_stream(_checked(histories)), path)


def anytime_accuracy_over_stream(histories: Histories, path: Target) -> Path:
    """Average anytime accuracy so far over samples seen, a line per learner."""
    return save(curves.anytime_accuracy_over_stream(_checked(histories)), path)


def accuracy_per_task(histories: Histories, path: Target) -> Path:
    """Accuracy on each task over samples seen: a panel per learner, a line per task."""
    return save(curves.accuracy_per_task(_checked(histories)), path)


def confusion_matrices(histories: Histories, path: Target) -> Path:
    """The confusion matrix of each learner at the end of the stream, in percent."""
    return save(classes.confusion_matrices(_checked(histories)), path)


def memory_over_stream(histories: Histories, path: Target) -> Path:
    """How many exemplars of each class the replay memory holds over samples seen, a panel per learner."""
    return save(classes.memory_over_stream(_checked(histories)), path)


def drift_over_stream(histories: Histories, path: Target) -> Path:
    """How far each prototype moved between evaluations, over samples seen, a panel per learner."""
    return save(classes.drift_over_stream(_checked(histories)), path)


def embedding_plane(features: Tensor, labels: Any, prototypes: Mapping[Label, Tensor], path: Target) -> Path:
    """Samples and prototypes on the two principal components of the features `[n, d]`."""
    return save(plane.embedding_plane(features, labels, prototypes), path)


def reliability_diagram(predictions: Mapping[str, tuple[ArrayLike, ArrayLike]], path: Target) -> Path:
    """Accuracy over confidence, a panel per learner; for each, confidences and whether the prediction was right."""
    return save(reliability.reliability_diagram(predictions), path)


def _checked(histories: Histories) -> Histories:
    """The histories; a ValueError unless there is one with an evaluation for every seed of every learner."""
    if not histories:
        raise ValueError(
            "there is nothing to draw: give a dict of learners, each with the history of every seed"
        )
    for name, runs in histories.items():
        if not isinstance(runs, Sequence) or not runs or not all(_is_history(history) for history in runs):
            raise ValueError(
                f"there is nothing to draw of {name!r}: give the history of every seed, such as [result.history], of "
                "runs with held-out samples"
            )
    return histories


def _is_history(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) > 0
