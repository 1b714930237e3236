"""The scenarios by name: in which order the samples of a dataset arrive."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from everlearn.messages import nearest
from everlearn.streams import class_incremental, concept_drift, domain_incremental
from everlearn.streams.base import Batch, Stream
from everlearn.streams.dataset_stream import Arrangement, DatasetStream
from everlearn.streams.task_split import TaskSplit

__all__ = [
    "SCENARIOS",
    "Amount",
    "Batch",
    "DatasetStream",
    "Scenario",
    "Stream",
    "arrange",
    "check",
    "rearranged",
]


class Amount(NamedTuple):
    """The `amount` of a scenario: its default, its meaning and its range."""

    default: float
    meaning: str
    least: float = 0
    most: float = 1
    whole: bool = False

    def allows(self, amount: Any) -> bool:
        """Whether this amount is in the range."""
        in_range = isinstance(amount, int | float) and self.least <= amount <= self.most
        return in_range and not (self.whole and amount % 1)

    def __str__(self) -> str:
        """Its meaning and its range, for messages."""
        number = "a whole number" if self.whole else "a number"
        limits = f"of at least {self.least}" if self.most == math.inf else f"from {self.least} to {self.most}"
        return f"{self.meaning}, {number} {limits}"


class Scenario(NamedTuple):
    """How the samples of a dataset are arranged: a function, its description, and its `amount`."""

    arrange: Callable[[TaskSplit, float], Arrangement]
    meaning: str
    amount: Amount | None = None


SCENARIOS = {
    "split": Scenario(class_incremental.split, "tasks of a few classes, one after another"),
    "iid": Scenario(class_incremental.iid, "the same samples, shuffled together"),
    "blurry": Scenario(
        class_incremental.blurry,
        "tasks that are mixed around each boundary",
        Amount(0.5, "the share of a task's length that is mixed"),
    ),
    "long-tailed": Scenario(
        class_incremental.long_tailed,
        "tasks whose classes get rarer and rarer, in sorted order",
        Amount(0.01, "the share of its samples that the last class keeps"),
    ),
    "recurring": Scenario(
        class_incremental.recurring,
        "tasks that return, with other samples",
        Amount(2, "how often each task comes", 1, math.inf, whole=True),
    ),
    "permuted": Scenario(
        domain_incremental.permuted,
        "domains with all classes, each with its own permutation of the inputs",
        Amount(5, "how many domains there are", 1, math.inf, whole=True),
    ),
    "rotated": Scenario(
        domain_incremental.rotated,
        "five domains with all classes, each rotated further",
        Amount(20, "degrees from one domain to the next", -360, 360),
    ),
    "abrupt-drift": Scenario(concept_drift.abrupt, "all classes; from the middle on, images are inverted"),
    "gradual-drift": Scenario(
        concept_drift.gradual,
        "all classes; around the middle, more and more images are inverted",
        Amount(0.5, "the share of the stream over which this happens"),
    ),
}

WITH_IMBALANCE = ("split", "iid", "blurry", "recurring")


def check(scenario: str, amount: float | None, imbalance: int | None) -> None:
    """Raise a ValueError unless the scenario exists and accepts this amount and imbalance.

    >>> check("blury", None, None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: there is no scenario 'blury'; did you mean 'blurry'? (known: split, iid, ...)
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"there is no scenario {scenario!r}{nearest(scenario, SCENARIOS)}")
    allowed = SCENARIOS[scenario].amount
    if amount is not None and allowed is None:
        raise ValueError(f"the scenario {scenario} has no amount, but {amount!r} was given; leave it out")
    if amount is not None and allowed is not None and not allowed.allows(amount):
        raise ValueError(f"the amount of {scenario} is {allowed}, not {amount!r}")
    if imbalance is not None and scenario not in WITH_IMBALANCE:
        raise ValueError(
            f"imbalance works with the scenarios {', '.join(WITH_IMBALANCE)}, not with {scenario}; "
            "remove one of the two"
        )


def arrange(source: TaskSplit, scenario: str, amount: float | None) -> Arrangement:
    """Arrange the samples by the scenario, with its default amount if none is given."""
    function, _, allowed = SCENARIOS[scenario]
    if amount is None:
        amount = allowed.default if allowed else 0.0
    return function(source, amount)


def rearranged(stream: Stream, scenario: str) -> Stream:
    """The same samples in the order of another scenario; a ValueError if the stream is not over a dataset."""
    if getattr(stream, "scenario", None) == scenario:
        return stream
    if not isinstance(stream, DatasetStream):
        raise ValueError(
            f"the stream {stream.name!r} has a fixed order and can't be rearranged as {scenario}; "
            "pass a stream that comes in this order"
        )
    return dataclasses.replace(stream, scenario=scenario, arrangement=arrange(stream.source, scenario, None))
