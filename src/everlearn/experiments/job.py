"""A job: one learner on one stream with one seed, in plain values that travel to another process."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from everlearn import learners
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.settings import merged_settings
from everlearn.streams import stream
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.horizon import Horizon

__all__ = ["Job", "key", "key_of"]

# Where a job runs and finds its data makes no other job of it.
ELSEWHERE = ("device", "data_dir", "checkpoint")
# What every job is told by, set or not; of the rest only what is set.
ALWAYS = ("learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount", "settings")


@dataclasses.dataclass(frozen=True)
class Job:
    """What to run.

    alone: whether it must run beside no other, so that the time it takes is its own.
    settings: what is set otherwise than the benchmark has it.
    validation: whether a part of the training samples stands in for the test set.
    checkpoint: the folder that keeps the run, so that it can be resumed.
    """

    learner: str
    stream: str
    seed: int
    _: dataclasses.KW_ONLY
    imbalance: int | None = None
    batch_size: int = 10
    scenario: str = "split"
    amount: float | None = None
    evaluator: Evaluator = dataclasses.field(default_factory=Evaluator)
    horizon: Horizon | None = None
    paradigm: str | None = None
    infer: Literal["novelty"] | None = None
    cost: float | None = None
    device: str = "auto"
    data_dir: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    alone: bool = False
    validation: bool = False
    checkpoint: str | None = None

    def open_stream(self) -> DatasetStream:
        """The stream of this job."""
        return stream(
            self.stream,
            seed=self.seed,
            imbalance=self.imbalance,
            batch_size=self.batch_size,
            scenario=self.scenario,
            amount=self.amount,
            validation=self.validation,
            data_dir=self.data_dir,
        )

    def kept_in(self) -> Path | None:
        """The file that holds this run, in the folder for checkpoints."""
        if self.checkpoint is None:
            return None
        return Path(self.checkpoint) / f"{self.learner}-{self.stream}-{self.seed}.safetensors"

    def passes(self) -> int:
        """How many samples will be passed over, epochs counted."""
        horizon = self.horizon or learners.find(self.learner).horizon
        return horizon.epochs * _samples(
            self.stream, self.imbalance, self.scenario, self.amount, self.data_dir
        )

    def plain(self) -> dict[str, Any]:
        """The job as JSON knows it.

        >>> Job("cope", "split-digits", 0, settings={"momentum": 0.5}).plain()["settings"]
        {'momentum': 0.5}
        """
        told: dict[str, Any] = {name: getattr(self, name) for name in ALWAYS}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in (*ALWAYS, *ELSEWHERE, "evaluator") and value != field.default:
                told[field.name] = dataclasses.asdict(value) if isinstance(value, Horizon) else value
        looks = {
            field.name: getattr(self.evaluator, field.name)
            for field in dataclasses.fields(self.evaluator)
            if getattr(self.evaluator, field.name) != field.default
        }
        return told | ({"evaluator": looks} if looks else {})


def key(job: Job) -> str:
    """The name of a run: the same for jobs that give the same numbers, another for any other.

    The settings count as they are in force, so that one which says what the benchmark says, or the default,
    changes nothing.

    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.99}))
    True
    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.9}))
    False
    """
    imbalanced = job.imbalance is not None
    return key_of(job.plain(), merged_settings(job.learner, job.stream, imbalanced, job.settings))


def key_of(plain: dict[str, Any], in_force: dict[str, Any]) -> str:
    """The name of a run from its job as JSON knows it, and the settings that were in force."""
    kind = learners.find(plain["learner"])
    defaults = {field.name: field.default for field in dataclasses.fields(kind.Settings)}
    # A default is left out, so that a setting that is added later, off, leaves all names as they are.
    counted = {name: value for name, value in in_force.items() if value != defaults.get(name, ())}
    told = json.dumps(plain | {"settings": counted}, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@functools.cache
def _samples(
    name: str, imbalance: int | None, scenario: str, amount: float | None, data_dir: str | None
) -> int:
    """What a stream sends: as much with every seed."""
    return stream(name, imbalance=imbalance, scenario=scenario, amount=amount, data_dir=data_dir).samples
