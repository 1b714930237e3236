"""Promises about labels and predictions."""

from __future__ import annotations

import numpy as np

from everlearn.core.learner import Learner, NotLearntYet
from everlearn.label_json import UNKNOWN
from everlearn.memory.labels import Label
from everlearn.testing.requirements import (
    refusal,
    require,
    require_same_predictions,
    require_same_state,
    state_copy,
)
from everlearn.testing.samples import Subject, batches, samples, teach

__all__ = [
    "before_the_first_label",
    "labels_of_any_kind",
    "many_classes",
    "prediction_changes_nothing",
    "probabilities",
    "snapshots",
]


def labels_of_any_kind(subject: Subject) -> None:
    """Labels of any kind come in any order, at any time."""
    learner = subject.make(missing_labels="class")
    kinds: list[Label] = ["word", 7, 2.5, None, b"bytes", (1, "pair"), False, "new", -3, ""]
    for i, label in enumerate(kinds):
        teach(learner, samples(2, seed=i), [label, kinds[i // 2]], i // 3)
        seen = learner.classes
        require(seen == kinds[: i + 1], f"classes are {seen} after {kinds[: i + 1]}")
        strange = set(_predicted(learner, i)) - set(seen)
        require(not strange, f"predict gives labels that were never seen: {strange}")
    shape = learner.predict_proba(samples(4)).shape
    require(shape == (4, len(kinds)), f"predict_proba gives {shape} for 4 samples of {len(kinds)} classes")


def _predicted(learner: Learner, seed: int) -> list[Label]:
    """The labels of some samples, without those that the learner may reject."""
    rejects = learner.settings.unknown is not None
    return [label for label in learner.predict(samples(4, seed)) if not (rejects and label is UNKNOWN)]


def many_classes(subject: Subject) -> None:
    """There is room for more classes than at first."""
    learner = subject.make(memory_size=200)
    for start in range(0, 80, 4):
        teach(learner, samples(4, seed=start), list(range(start, start + 4)), start // 20)
    seen = learner.classes
    require(seen == list(range(80)), f"80 classes were observed, and classes are {seen}")
    shape = learner.predict_proba(samples(3)).shape
    require(shape == (3, 80), f"predict_proba gives {shape} for 3 samples of 80 classes")


def probabilities(subject: Subject) -> None:
    """Probabilities are a distribution, whose largest is the prediction."""
    learner, x = subject.taught(), samples(50)
    rows = learner.predict_proba(x)
    require(np.allclose(rows.sum(1), 1, rtol=1e-5), f"the rows of predict_proba sum to {rows.sum(1)}")
    require((rows >= 0).all(), "predict_proba gives negative numbers")
    largest, predicted = [learner.classes[i] for i in rows.argmax(1)], learner.predict(x)
    rejects = learner.settings.unknown is not None
    same = [
        one == other or (rejects and one is UNKNOWN) for one, other in zip(predicted, largest, strict=True)
    ]
    require(all(same), "predict is not the class with the largest of predict_proba")


def before_the_first_label(subject: Subject) -> None:
    """Before the first label, predict says what to do."""
    learner = subject.make()
    said = refusal(NotLearntYet, lambda: learner.predict(samples(2)))
    require(said is not None, "predict gives labels before any was seen")
    require("observe a batch first" in str(said), f"the error does not say what to do: {said!r}")


def prediction_changes_nothing(subject: Subject) -> None:
    """Prediction changes nothing."""
    learner = subject.taught()
    before = state_copy(learner)
    learner.predict(samples(20))
    learner.predict_proba(samples(20))
    require_same_state(before, learner.state_dict(), "predict")
    asked, other = subject.make(), subject.make()
    for i, (x, y) in enumerate(batches()):
        teach(asked, x, y, i // 2)
        teach(other, x, y, i // 2)
        asked.predict(x)
    require_same_state(other.state_dict(), asked.state_dict(), "predictions between batches")
    require_same_predictions(other, asked, "predictions between batches")


def snapshots(subject: Subject) -> None:
    """A snapshot predicts the same while the learner goes on."""
    learner, x = subject.taught(), samples(40)
    learner.end_horizon()
    snapshot = learner.snapshot()
    labels, rows = snapshot.predict(x), snapshot.predict_proba(x)
    require(labels == learner.predict(x), "a snapshot does not predict what the learner does")
    for i, (more, y) in enumerate(batches(labels=("d", "e", "f"), seed=4)):
        teach(learner, more, y, 3 + i // 4)
    learner.end_horizon()
    require((snapshot.predict_proba(x) == rows).all(), "a snapshot changes when the learner goes on")
