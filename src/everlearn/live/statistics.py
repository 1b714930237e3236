"""How well a live learner does: accuracy of its answers, the delay of labels, and what happened when.

Everything here is a function of the journal's entries and the learner's answers, so a replay computes the same again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from statistics import mean, median
from typing import Any, NamedTuple, Protocol

from everlearn.label_json import Label, decode_label, encode_label
from everlearn.memory.labels import shortened

__all__ = ["Answer", "DriftDetector", "Statistics", "check_detector"]

WINDOW = 1000  # answers in the rolling figures
MOST_EVENTS = 1000
MOST_POINTS = 500  # of the accuracy over time; beyond it, every second point is dropped


class DriftDetector(Protocol):
    """A drift detector, as River's are: it is updated with 1 for a wrong answer and 0 for a right one."""

    @property
    def drift_detected(self) -> bool:
        """Whether the last update was an alarm."""

    def update(self, x: float) -> Any:
        """Take the next value."""


def check_detector(drift: Any) -> None:
    """Raise a ValueError for what is not a drift detector.

    >>> check_detector(3)
    Traceback (most recent call last):
    ValueError: drift is a detector with update and drift_detected, such as river.drift.ADWIN(), not 3
    """
    if isinstance(drift, type):
        raise ValueError(f"drift is a detector, not a class: give {drift.__name__}()")
    try:
        alarm = drift.drift_detected
        usable = callable(drift.update) and not callable(alarm) and bool(alarm) in (True, False)
    except Exception:  # of its own code, too
        usable = False
    if not usable:
        raise ValueError(
            "drift is a detector with update and drift_detected, such as river.drift.ADWIN(), "
            f"not {shortened(drift)}"
        )


class Answer(NamedTuple):
    """An answer whose label is known by now.

    delay: seconds from the answer to the label. position: of the label in the journal.
    """

    label: Label
    answer: Label
    delay: float
    position: int

    @property
    def right(self) -> bool:
        """Whether the answer was the label."""
        return self.label == self.answer


class Statistics:
    """Counts and rolling figures of a live learner."""

    def __init__(self) -> None:
        self.asked = self.told = self.dropped = self.refused = self.alarms = 0
        self.observed: dict[Label, int] = {}  # samples learnt, by class
        self.totals: dict[Label, list[int]] = {}  # right answers and answers, by class
        self.pending: dict[Label, tuple[Label, float]] = {}  # answers without label: the answer and its time
        self.window: deque[Answer] = deque(maxlen=WINDOW)
        self.events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.points: list[tuple[int, float, int, float]] = []  # position, time, labels told, rolling accuracy
        self.point_every = 10  # labels told between two points
        self.drift: DriftDetector | None = None
        self.acts = False  # whether the alarms of the detector change the learner
        self.alarm_due = False  # whether it has called for a change that has not been made yet
        self.detector_error: str | None = None  # why it is no longer used

    # What happens.

    def event(self, kind: str, position: int, time: float, **detail: Any) -> None:
        """Add an event to the history."""
        self.events.append({"event": kind, "position": position, "time": time, **detail})

    def learnt(self, labels: Iterable[Label], position: int, time: float) -> None:
        """Samples of these labels were learnt."""
        for label in labels:
            if label not in self.observed:
                self.event("new class", position, time, label=label)
            self.observed[label] = self.observed.get(label, 0) + 1

    def forgotten(self, label: Label, position: int, time: float) -> None:
        """A class was forgotten. The accuracy of earlier answers stays."""
        self.observed.pop(label, None)
        self.event("forgotten", position, time, label=label)

    def answered(
        self, ids: Sequence[Label], answers: Sequence[Label], time: float, waiting: Container[Label]
    ) -> None:
        """The learner was asked. waiting: the ids that wait now; the others of earlier calls were dropped."""
        self.asked += len(ids)
        for key, answer in zip(ids, answers, strict=True):
            if self.pending.pop(key, None) is not None:  # asked again: the older answer is never told
                self.dropped += 1
            self.pending[key] = answer, time
        for key in list(self.pending):  # the oldest are dropped first
            if key in waiting:
                break
            del self.pending[key]
            self.dropped += 1

    def label_told(self, key: Label, label: Label, position: int, time: float) -> Answer | None:
        """The label of an answer is known; None if the learner was asked before the folder was made."""
        if key not in self.pending:
            return None
        predicted, asked_at = self.pending.pop(key)
        answer = Answer(label, predicted, max(time - asked_at, 0.0), position)
        self.told += 1
        self.window.append(answer)
        total = self.totals.setdefault(label, [0, 0])
        total[0] += answer.right
        total[1] += 1
        if self.told % self.point_every == 0:
            self._add_point(position, time)
        if self.drift is not None:
            detector = type(self.drift).__name__
            if self._detected(self.drift, answer, time):
                self.alarms += 1
                self.alarm_due = self.acts
                self.event("drift", position, time, detector=detector, accuracy=self.rolling_accuracy())
        return answer

    def _detected(self, drift: DriftDetector, answer: Answer, time: float) -> bool:
        """Whether the detector reports a change at an answer. One that raises an error is not used any more."""
        try:
            drift.update(float(not answer.right))
            return bool(drift.drift_detected)
        except Exception as error:  # the change itself is made by now, and must not fail
            name, reason = type(drift).__name__, f"{type(error).__name__}: {error}"
            self.drift, self.detector_error = None, f"{name} raised {reason}"
            self.event("detector failed", answer.position, time, detector=name, reason=reason)
            return False

    def _add_point(self, position: int, time: float) -> None:
        accuracy = self.rolling_accuracy()
        assert accuracy is not None
        self.points.append((position, time, self.told, accuracy))
        if len(self.points) > MOST_POINTS:
            self.points, self.point_every = self.points[1::2], 2 * self.point_every

    def removed(self, ids: Iterable[Label]) -> None:
        """Samples with these ids were deleted."""
        for key in ids:
            self.pending.pop(key, None)

    def attach(self, drift: DriftDetector, acts: bool) -> None:
        """Use a drift detector; it gets the answers in the window first, whose alarms are not counted.

        acts: whether each of its alarms is a change of the learner, too.
        """
        try:
            for answer in self.window:
                drift.update(float(not answer.right))
        except Exception as error:
            raise ValueError(
                f"the drift detector {type(drift).__name__} can't be updated: {type(error).__name__}: {error}"
            ) from error
        self.drift, self.acts = drift, acts

    def attach_that_of(self, other: Statistics) -> None:
        """Go on with the drift detector of others, as it is."""
        self.drift, self.acts, self.detector_error = other.drift, other.acts, other.detector_error

    # Figures.

    def rolling_accuracy(self) -> float | None:
        """The share of right answers among the last ones; None without any."""
        return sum(answer.right for answer in self.window) / len(self.window) if self.window else None

    def accuracy(self) -> dict[str, Any]:
        """Accuracy since the beginning, of the last answers, and by class."""
        right, answers = (sum(total[i] for total in self.totals.values()) for i in (0, 1))
        recent: dict[Label, list[bool]] = {}
        for answer in self.window:
            recent.setdefault(answer.label, []).append(answer.right)
        return {
            "overall": right / answers if answers else None,
            "rolling": self.rolling_accuracy(),
            "window": len(self.window),
            "told": answers,
            "per_class": {
                label: {
                    "overall": total[0] / total[1],
                    "told": total[1],
                    "rolling": mean(recent[label]) if label in recent else None,
                }
                for label, total in self.totals.items()
            },
        }

    def confusion(self) -> dict[tuple[Label, Label], int]:
        """How often a label got an answer, among the last answers: {(label, answer): count}."""
        counts: dict[tuple[Label, Label], int] = {}
        for answer in self.window:
            pair = answer.label, answer.answer
            counts[pair] = counts.get(pair, 0) + 1
        return counts

    def delay(self) -> dict[str, float | None]:
        """Seconds from an answer to its label, over the last answers."""
        delays = [answer.delay for answer in self.window]
        if not delays:
            return {"mean": None, "median": None, "longest": None}
        return {"mean": mean(delays), "median": median(delays), "longest": max(delays)}

    def never_told(self) -> float | None:
        """The share of answers that were dropped without a label, among those that no longer wait."""
        done = self.told + self.dropped
        return self.dropped / done if done else None

    # State.

    COUNTS = ("asked", "told", "dropped", "refused", "alarms", "point_every")

    def state(self) -> dict[str, Any]:
        """Everything as JSON, except the drift detector."""
        return {
            "counts": {name: getattr(self, name) for name in self.COUNTS},
            "observed": [[encode_label(label), count] for label, count in self.observed.items()],
            "totals": [[encode_label(label), *total] for label, total in self.totals.items()],
            "pending": [
                [encode_label(key), encode_label(answer), time]
                for key, (answer, time) in self.pending.items()
            ],
            "window": [
                [encode_label(each.label), encode_label(each.answer), each.delay, each.position]
                for each in self.window
            ],
            "events": [
                event | ({"label": encode_label(event["label"])} if "label" in event else {})
                for event in self.events
            ],
            "points": [list(point) for point in self.points],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load what `state` returned."""
        for name in self.COUNTS:
            setattr(self, name, state["counts"][name])
        self.observed = {decode_label(code): count for code, count in state["observed"]}
        self.totals = {decode_label(code): [right, total] for code, right, total in state["totals"]}
        self.pending = {
            decode_label(key): (decode_label(answer), time) for key, answer, time in state["pending"]
        }
        self.window.extend(
            Answer(decode_label(label), decode_label(answer), delay, position)
            for label, answer, delay, position in state["window"]
        )
        self.events.extend(
            event | ({"label": decode_label(event["label"])} if "label" in event else {})
            for event in state["events"]
        )
        self.points = [(position, time, told, share) for position, time, told, share in state["points"]]
