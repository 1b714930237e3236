"""Exemplars that follow a world that changes: by contradiction, or by the alarm of a drift detector.

Both watch the predictions of new samples, before these are learnt.

Contradiction: where the current weights are wrong about the exemplars of a class more often than about its recent
samples, the data has changed its mind about these exemplars, and the most doubtful ones lose their place. A class
that is away has no recent samples, so that nothing of it is removed.

Alarm: the error rate p of the last samples is watched as in Gama et al. 2004, Learning with drift detection. When it
rises by three standard deviations, the classes that are present lose the older half of their exemplars. A class
counts only once it has been seen a while, so that the arrival of a new class is no alarm.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from everlearn.checkpoint import State
from everlearn.core.forget import copy_before_writing
from everlearn.core.prediction import scored
from everlearn.encoders import Features
from everlearn.memory.renewal import older_half, remove
from everlearn.transaction import atomic

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Drift", "alarm", "check_alarm", "halve", "refuted"]

RECENT = 100  # samples of a class over which its error rate is taken
LEAST = 30  # samples of a class before it counts
AWAY = 10.0  # times the usual time between two of its samples, after which a class is away
EVERY = 100  # samples between two comparisons with the exemplars
SURE = 2.0  # standard deviations by which the exemplars must be worse
RISE = 3.0  # standard deviations by which the error rate must rise for an alarm

Numbers = NDArray[np.float64]


class Drift:
    """What the predictions of new samples have shown so far, and what is done about it.

    classes: of each class, the error rate over its recent samples; how many these are, at most 100; how many samples
        have arrived since its last one; and the same on average between two of its samples, `[4, classes]`.
    rate: samples since the last alarm, their error rate, and rate and deviation when these were lowest.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.classes: Numbers = np.zeros((4, 0))
        self.rate: Numbers = np.array(NOTHING)
        self.unchecked = 0

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        self.classes = np.append(self.classes, np.zeros((4, classes - self.classes.shape[1])), axis=1)

    def forget(self, slot: int) -> None:
        """Remove a class."""
        self.classes = np.delete(self.classes, slot, axis=1)

    def follow(self, learner: Learner, predicted: NDArray[np.int64], slots: list[int]) -> None:
        """Note the predictions of new samples and their true classes, then do what these call for."""
        alarms = self._note((predicted != np.array(slots)).tolist(), slots)
        self.unchecked += len(slots)
        if self._kind == "alarm" and alarms:
            halve(learner, self.present())
        elif self._kind == "contradiction" and self.unchecked >= EVERY:
            self.unchecked = 0
            self._remove_refuted(learner)

    def _note(self, wrong: list[bool], slots: list[int]) -> bool:
        """Count samples and errors; whether the error rate calls for an alarm."""
        errors, counts, absent, gaps = classes = self.classes.copy()
        alarms = False
        for is_wrong, slot in zip(wrong, slots, strict=True):
            if counts[slot] >= LEAST:
                alarms = self._rises(is_wrong) or alarms
            absent += 1
            counts[slot] = min(counts[slot] + 1, RECENT)
            errors[slot] += (is_wrong - errors[slot]) / counts[slot]
            if counts[slot] > 1:
                gap = min(absent[slot], AWAY * max(gaps[slot], 1))
                gaps[slot] += (gap - gaps[slot]) / (counts[slot] - 1)
            absent[slot] = 0
        self.classes = classes
        return alarms

    def present(self) -> NDArray[np.bool_]:
        """The classes that keep sending samples: their last one is not ten times longer ago than usual."""
        _, counts, absent, gaps = self.classes
        is_present: NDArray[np.bool_] = (counts > 1) & (absent < AWAY * gaps)
        return is_present

    def _rises(self, wrong: bool) -> bool:
        """Add a prediction to the error rate; whether it has risen so far that this is an alarm."""
        seen, rate, lowest, deviation = self.rate.tolist()
        seen += 1
        rate += (wrong - rate) / seen
        now = math.sqrt(rate * (1 - rate) / seen)
        if seen > LEAST and rate + now <= lowest + deviation:
            lowest, deviation = rate, now
        alarm: bool = seen > LEAST and rate + now > lowest + RISE * deviation
        self.rate = np.array(NOTHING if alarm else (seen, rate, lowest, deviation))
        return alarm

    def _remove_refuted(self, learner: Learner) -> None:
        owners = learner.memory.kept()[1]
        if not len(owners):
            return
        exemplars = Features(learner.memory.samples()[0])
        scores = np.asarray(torch.as_tensor(scored(learner, exemplars)).cpu())
        errors, counts, *_ = self.classes
        gone = refuted(scores, owners, errors, np.where(self.present(), counts, 0))
        if gone.any():
            copy_before_writing(learner)
            remove(learner.memory, gone)

    def state(self) -> State:
        """Its numbers, by name."""
        return {
            "drift.classes": torch.from_numpy(self.classes.copy()),
            "drift.rate": torch.from_numpy(self.rate.copy()),
            "drift.unchecked": torch.tensor(self.unchecked),
        }

    def restore(self, state: State) -> None:
        """Load what `state` returned; raises a ValueError if it does not fit."""
        classes, rate, unchecked = (state[f"drift.{name}"].cpu() for name in ("classes", "rate", "unchecked"))
        if classes.shape != self.classes.shape or rate.shape != (4,) or unchecked.shape != ():
            raise ValueError("its record of drift has another shape than its classes need")
        counted = min(float(part.min()) for part in (classes, rate, unchecked) if part.numel())
        if counted < 0 or float(rate[1]) > 1 or bool((classes[0] > 1).any()):
            raise ValueError(
                "its record of drift has a negative count, or an error rate that is not from 0 to 1"
            )
        self.classes = classes.double().numpy()
        self.rate, self.unchecked = rate.double().numpy(), int(unchecked)


# Before the first sample and after an alarm: one right and one wrong prediction, so that the rate is never 0.
NOTHING = (2.0, 0.5, 1.0, 1.0)


def refuted(
    scores: NDArray[np.float32], owners: NDArray[np.int64], errors: Numbers, counts: Numbers
) -> NDArray[np.bool_]:
    """Which exemplars the recent samples of their class refute.

    If the share of a class's exemplars that are predicted wrongly is larger than the error rate of its recent
    samples, by two standard deviations, as many as are too many go: those whose own class is farthest behind.

    scores: of exemplars and classes. owners: the class of each. errors, counts: the error rate of each class over so
    many recent samples.

    >>> scores = np.array([[0.0, 9.0]] * 40 + [[1.0, 0.0]] * 60)
    >>> int(refuted(scores, np.zeros(100, int), np.array([0.1, 0.0]), np.array([100.0, 0.0])).sum())
    30
    """
    behind = scores.max(1) - scores[np.arange(len(owners)), owners]
    gone = np.zeros(len(owners), bool)
    for slot in np.unique(owners):
        mine = (owners == slot).nonzero()[0]
        wrong, error, seen = float((behind[mine] > 0).mean()), float(errors[slot]), float(counts[slot])
        if seen < LEAST:
            continue
        both = (wrong * len(mine) + error * seen) / (len(mine) + seen)
        deviation = math.sqrt(both * (1 - both) * (1 / len(mine) + 1 / seen))
        if wrong > error + SURE * deviation:
            most = round((wrong - error) * len(mine))
            gone[mine[np.argsort(-behind[mine], kind="stable")[:most]]] = True
    return gone


def halve(learner: Learner, classes: NDArray[np.bool_]) -> None:
    """These classes lose the older half of their exemplars."""
    gone = older_half(learner.memory, classes)
    if gone.any():
        copy_before_writing(learner)
        remove(learner.memory, gone)


def check_alarm(learner: Learner) -> None:
    """Raise a ValueError if the learner has no memory that an alarm could halve."""
    if not hasattr(learner.memory, "half_life"):
        raise ValueError(f"{learner.name} has no class-balanced memory that an alarm could halve")


@atomic
def alarm(learner: Learner) -> None:
    """The world has changed: the classes that are present lose the older half of their exemplars.

    For drift detectors: they decide when. Without the setting `drift`, all classes are taken as present.
    """
    check_alarm(learner)
    learner.settle()
    learner.invalidate()
    everything = np.ones(len(learner.labels), bool)
    halve(learner, everything if learner.drift is None else learner.drift.present())
