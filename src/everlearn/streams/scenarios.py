"""The scenarios by name: how a dataset becomes a stream, and how much of what makes it special."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

from everlearn.messages import nearest
from everlearn.streams import domains, drift, split
from everlearn.streams.base import Batch, Stream
from everlearn.streams.dataset_stream import Arrangement, DatasetStream
from everlearn.streams.task_split import Source

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
    """What `amount` means in a scenario: its default, what it counts, and its range."""

    default: float
    meaning: str
    least: float = 0
    most: float = 1
    whole: bool = False

    def allows(self, amount: float) -> bool:
        """Whether it can be so much."""
        return self.least <= amount <= self.most and not (self.whole and amount % 1)

    def __str__(self) -> str:
        """What it is, and what is allowed."""
        number = "a whole number" if self.whole else "a number"
        limits = f"of at least {self.least}" if self.most == math.inf else f"from {self.least} to {self.most}"
        return f"{self.meaning}, {number} {limits}"


class Scenario(NamedTuple):
    """What arrives when: how the samples of a dataset are arranged, in a function and in words."""

    arrange: Callable[[Source, float], Arrangement]
    meaning: str
    amount: Amount | None = None


SCENARIOS = {
    "split": Scenario(split.split, "tasks of a few classes, one after another"),
    "iid": Scenario(split.iid, "the same samples, all shuffled together"),
    "blurry": Scenario(
        split.blurry,
        "tasks that mix around each transition",
        Amount(0.5, "the share of a task's length that is mixed"),
    ),
    "long-tailed": Scenario(
        split.long_tailed,
        "tasks whose classes are ever rarer, in their natural order",
        Amount(0.01, "the share of its samples that the last class keeps"),
    ),
    "recurring": Scenario(
        split.recurring,
        "tasks that come back, with other samples",
        Amount(2, "how often each task comes", 1, math.inf, whole=True),
    ),
    "permuted": Scenario(
        domains.permuted,
        "all classes in each domain, whose inputs are rearranged",
        Amount(5, "how many domains there are", 1, math.inf, whole=True),
    ),
    "rotated": Scenario(
        domains.rotated,
        "all classes in each of five domains, whose pictures are turned",
        Amount(20, "degrees from one domain to the next", -360, 360),
    ),
    "abrupt-drift": Scenario(drift.abrupt, "all classes; in the middle, black turns white at once"),
    "gradual-drift": Scenario(
        drift.gradual,
        "all classes; around the middle, black turns white for ever more samples",
        Amount(0.5, "the share of the stream that this takes"),
    ),
}

WITH_IMBALANCE = ("split", "iid")


def check(scenario: str, amount: float | None, imbalance: int | None) -> None:
    """Raise a ValueError, in one sentence, unless there is such a scenario and it takes these.

    >>> check("blury", None, None)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: there is no scenario 'blury'; did you mean 'blurry'? (known: split, iid, ...)
    """
    if scenario not in SCENARIOS:
        raise ValueError(f"there is no scenario {scenario!r}{nearest(scenario, SCENARIOS)}")
    takes = SCENARIOS[scenario].amount
    if amount is not None and takes is None:
        raise ValueError(f"the scenario {scenario} takes no amount, but {amount!r} was given; leave it out")
    if amount is not None and takes is not None and not takes.allows(amount):
        raise ValueError(f"the amount of {scenario} is {takes}, not {amount!r}")
    if imbalance is not None and scenario not in WITH_IMBALANCE:
        raise ValueError(
            f"imbalance goes with the scenarios {' and '.join(WITH_IMBALANCE)}, not with {scenario}; "
            "leave one of the two out"
        )


def arrange(source: Source, scenario: str, amount: float | None) -> Arrangement:
    """The source arranged as the scenario says, with the scenario's own amount by default."""
    function, _, takes = SCENARIOS[scenario]
    if amount is None:
        amount = takes.default if takes else 0.0
    return function(source, amount)


def rearranged(stream: Stream, scenario: str) -> Stream:
    """The same samples in the order of another scenario; a stream that is not of a dataset has only its own."""
    if getattr(stream, "scenario", None) == scenario:
        return stream
    if not isinstance(stream, DatasetStream):
        raise ValueError(
            f"the stream {stream.name!r} comes in its own order, and can't be had as {scenario}; "
            "give the learner a stream that comes in this order"
        )
    return dataclasses.replace(stream, scenario=scenario, arrangement=arrange(stream.source, scenario, None))
