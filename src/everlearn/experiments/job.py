"""A job: one learner on one stream with one seed, as plain values that can be sent to another process."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from everlearn import learners
from everlearn.core.input_kind import Options
from everlearn.core.learner import Learner
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.code_version import code_version
from everlearn.experiments.names import file_name
from everlearn.experiments.own import Own, kind_of, versions
from everlearn.experiments.settings import merged_settings, settings_in_force
from everlearn.streams import stream
from everlearn.streams.base import Stream
from everlearn.streams.horizon import Horizon
from everlearn.streams.own_streams import DEFAULTS, open_own

__all__ = ["Job", "Own", "key", "key_of"]

# Fields that do not change the result of a job.
ELSEWHERE = ("device", "data_dir", "checkpoint", "track", "own")
# Fields that are always written; the others only if they are not the default.
ALWAYS = ("learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount", "settings")


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: a learner, a stream and a seed, with all options.

    alone: run it while nothing else runs, so that its time is measured correctly.
    settings: settings of the learner that differ from the benchmark's.
    validation: evaluate on a part of the training samples instead of the test set.
    class_order: in which order the tasks get the classes: `sorted`, `seed`, or all labels in order.
    checkpoint: a folder that holds the state of the run, so that it can be resumed.
    track: trackers that watch the run, such as `tensorboard` or `mlflow:FOLDER`.
    own: objects that the names of learner, stream and network stand for.
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
    class_order: str | tuple[Any, ...] = "sorted"
    checkpoint: str | None = None
    track: tuple[Any, ...] = ()
    own: Own | None = None

    def open_stream(self) -> Stream:
        """The stream of this job."""
        return self._stream(self.seed)

    def _stream(self, seed: int) -> Stream:
        options = {name: getattr(self, name) for name in DEFAULTS}
        if self.own is not None and self.own.stream is not None:
            return open_own(self.own.stream, self.stream, seed, options)
        return stream(self.stream, seed=seed, **options)

    @property
    def kind(self) -> type[Learner] | None:
        """The class of the learner; None if a function of the user's makes it."""
        if self.own is None or self.own.learner is None:
            return learners.find(self.learner)
        return self.own.learner if isinstance(self.own.learner, type) else None

    @property
    def usual_horizon(self) -> Horizon:
        """The horizon that the learner asks for."""
        return Horizon() if self.kind is None else self.kind.horizon

    def all_settings(self) -> dict[str, Any]:
        """The settings of the learner that are known before it is made."""
        if self.own is not None and self.own.learner is not None:
            return dict(self.settings)
        return settings_in_force(self.learner, self.stream, self.imbalance is not None, self.settings)

    def kept_in(self) -> Path | None:
        """The file of this run in the folder of checkpoints."""
        if self.checkpoint is None:
            return None
        return Path(self.checkpoint) / f"{file_name(f'{self.learner}-{self.stream}-{self.seed}')}.safetensors"

    def passes(self) -> int:
        """The number of samples that are learnt, counting every epoch."""
        horizon = self.horizon or self.usual_horizon
        fields = (self.stream, self.imbalance, self.scenario, self.amount, self.validation, self.data_dir)
        made_by = None if self.own is None else self.own.stream
        if (*fields, made_by) not in _samples:
            _samples[(*fields, made_by)] = self._stream(seed=0).samples or 0
        return horizon.epochs * _samples[(*fields, made_by)]

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
            if getattr(self.evaluator, field.name) != field.default and field.name != "metrics"
        }
        if self.evaluator.metrics:
            evaluator["metrics"] = {name: code_version(made) for name, made in self.evaluator.metrics.items()}
        used = versions(self.learner, self.stream, self.settings.get("network"), self.own)
        return values | ({"evaluator": evaluator} if evaluator else {}) | ({"versions": used} if used else {})


def key(job: Job) -> str:
    """The key of a run: a hash that is equal for jobs that give the same numbers.

    All settings count, also the benchmark's: to set one to the value that it has anyway changes nothing.

    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.99}))
    True
    >>> key(Job("cope", "split-mnist", 0)) == key(Job("cope", "split-mnist", 0, settings={"momentum": 0.9}))
    False
    """
    if job.own is not None and job.own.learner is not None:
        return key_of(job.plain(), job.settings)
    imbalanced = job.imbalance is not None
    chosen = merged_settings(job.learner, job.stream, imbalanced, job.settings)
    return key_of(job.plain(), _defaults(learners.find(job.learner)) | chosen)


def key_of(plain: dict[str, Any], in_force: dict[str, Any]) -> str:
    """The key of a run from its job as JSON values, and all its settings.

    in_force: as the run had them; a setting that a later version added may be missing.
    """
    kind = kind_of(plain["learner"], own="learner" in plain.get("versions", {}))
    # What a run of the first version had is left out, so that neither a setting nor a default of a later version
    # changes the keys. None counts as what it stands for on a benchmark's images.
    first = {} if kind is None else _on_images(_defaults(kind) | kind.Settings.before)
    counted = {name: value for name, value in _on_images(in_force).items() if value != first.get(name, ())}
    values = json.dumps(plain | {"settings": counted}, sort_keys=True)
    return hashlib.sha256(values.encode()).hexdigest()[:16]


def _on_images(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with what None stands for where the samples are images."""
    options = vars(Options())
    return {name: options.get(name) if value is None else value for name, value in settings.items()}


def _defaults(kind: type[Learner]) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(kind.Settings)}


# The number of samples of a stream, which is the same for every seed.
_samples: dict[tuple[Any, ...], int] = {}
