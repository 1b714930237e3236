"""A job: one learner on one stream with one seed, as plain values that can be sent to another process."""

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
from everlearn.streams.record_stream import RecordStream

__all__ = ["Job", "key", "key_of"]

# Fields that do not change the result of a job.
ELSEWHERE = ("device", "data_dir", "checkpoint")
# Fields that are always written; the others only if they are not the default.
ALWAYS = ("learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount", "settings")


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: a learner, a stream and a seed, with all options.

    alone: run it while nothing else runs, so that its time is measured correctly.
    settings: settings of the learner that differ from the benchmark's.
    validation: evaluate on a part of the training samples instead of the test set.
    checkpoint: a folder that holds the state of the run, so that it can be resumed.
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

    def open_stream(self) -> DatasetStream | RecordStream:
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
        """The file of this run in the folder of checkpoints."""
        if self.checkpoint is None:
            return None
        return Path(self.checkpoint) / f"{self.learner}-{self.stream}-{self.seed}.safetensors"

    def passes(self) -> int:
        """The number of samples that are learnt, counting every epoch."""
        horizon = self.horizon or learners.find(self.learner).horizon
        return horizon.epochs * _samples(
            self.stream, self.imbalance, self.scenario, self.amount, self.data_dir
        )

    def plain(self) -> dict[str, Any]:
        """The job as JSON values.

        >>> Job("cope", "split-digits", 0, settings={"momentum": 0.5}).plain()["settings"]
        {'momentum': 0.5}
        """
        values: dict[str, Any] = {name: getattr(self, name) for name in ALWAYS}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in (*ALWAYS, *ELSEWHERE, "evaluator") and value != field.default:
                values[field.name] = dataclasses.asdict(value) if isinstance(value, Horizon) else value
        evaluator = {
            field.name: getattr(self.evaluator, field.name)
            for field in dataclasses.fields(self.evaluator)
            if getattr(self.evaluator, field.name) != field.default
        }
        return values | ({"evaluator": evaluator} if evaluator else {})


def key(job: Job) -> str:
    """The key of a run: a hash that is equal for jobs that give the same numbers.

    All settings count, also the benchmark's: to set one to the value that it has anyway changes nothing.

    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.99}))
    True
    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.9}))
    False
    """
    imbalanced = job.imbalance is not None
    return key_of(job.plain(), merged_settings(job.learner, job.stream, imbalanced, job.settings))


def key_of(plain: dict[str, Any], in_force: dict[str, Any]) -> str:
    """The key of a run from its job as JSON values, and all its settings."""
    kind = learners.find(plain["learner"])
    defaults = {field.name: field.default for field in dataclasses.fields(kind.Settings)}
    # Defaults are left out, so that a setting added in a later version does not change the keys.
    counted = {name: value for name, value in in_force.items() if value != defaults.get(name, ())}
    values = json.dumps(plain | {"settings": counted}, sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:16]


@functools.cache
def _samples(
    name: str, imbalance: int | None, scenario: str, amount: float | None, data_dir: str | None
) -> int:
    """The number of samples of a stream, which is the same for every seed."""
    return stream(name, imbalance=imbalance, scenario=scenario, amount=amount, data_dir=data_dir).samples
