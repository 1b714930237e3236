"""Choose settings on the validation part of a stream, with Optuna; a study in a file can be stopped and go on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

from everlearn.engine.tracking import Tracker
from everlearn.experiments.codec import METRICS
from everlearn.experiments.environment import on_gpu
from everlearn.experiments.job import Job, key
from everlearn.experiments.names import file_name
from everlearn.experiments.runner import COHORT, execute, outcomes
from everlearn.experiments.search_space import Choice, default_space
from everlearn.messages import is_whole, nearest

__all__ = ["Tuned", "tune"]

FOLDER = Path("runs") / "tune"


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of a study.

    settings: the best ones found. value: the metric that they reach on the validation part, the mean over seeds.
    trials, pruned, failed: how many there were in all, and how many of them were stopped early or failed.
    test: the metric of each seed on the test samples, if that was asked for.
    """

    learner: str
    stream: str
    metric: str
    settings: dict[str, Any]
    value: float
    trials: int
    pruned: int
    failed: int
    file: Path
    test: tuple[float, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {**dataclasses.asdict(self), "file": str(self.file), "test": list(self.test)}


def tune(
    job: Job,
    space: Mapping[str, Choice] | None = None,
    *,
    trials: int = 40,
    seeds: int = 1,
    metric: str = "accuracy",
    study: str | Path | None = None,
    test: bool = False,
    told: Callable[[str], None] | None = None,
) -> Tuned:
    """Search settings for the job of a learner on a stream, so that a metric is best on the validation part.

    space: what to search; by default a few settings that matter for every method. The job's own settings stay.
    trials: how many in all, those of an earlier call with the same file included.
    seeds: runs of each trial. study: the file of the study; a call with the same file goes on.
    test: also run the best settings on the test samples, which nothing is chosen by.
    told: called with a line of text after every trial.

    On the CPU, a trial is stopped early if its anytime accuracy is below the median of earlier ones. On a GPU, ten
    trials run as a cohort if their shapes are equal.
    """
    for name, value in (("trials", trials), ("seeds", seeds)):
        if not is_whole(value, least=1):
            raise ValueError(f"{name} must be a whole number, at least 1, not {value!r}")
    if metric not in METRICS:
        raise ValueError(f"metric is one of the library's{nearest(metric, METRICS)}")
    space = dict(default_space(job.learner) if space is None else space)
    file = (
        Path(study) if study is not None else FOLDER / f"{file_name(f'{job.learner}-{job.stream}')}.journal"
    )
    job = dataclasses.replace(job, validation=True)
    job.open_stream()  # a mistake shows before anything runs
    job.all_settings()
    search = _Search(job, space, seeds, metric, file)
    while search.finished < trials:
        search.more(trials - search.finished, told or (lambda line: None))
    return search.result(test)


class _Search:
    """A study in a file, and how its trials are run."""

    def __init__(self, job: Job, space: dict[str, Choice], seeds: int, metric: str, file: Path) -> None:
        self.optuna = _optuna()
        self.job, self.space, self.seeds, self.metric, self.file = job, space, seeds, metric, file
        file.parent.mkdir(parents=True, exist_ok=True)
        storage = self.optuna.storages
        direction = "minimize" if metric == "forgetting" else "maximize"
        self.study = self.optuna.create_study(
            study_name=f"{job.learner} on {job.stream}, {metric}, {_digest(job, space, seeds)}",
            storage=storage.JournalStorage(storage.journal.JournalFileBackend(str(file))),
            sampler=self.optuna.samplers.TPESampler(seed=job.seed),
            pruner=self.optuna.pruners.MedianPruner(n_startup_trials=5),
            direction=direction,
            load_if_exists=True,
        )

    @property
    def finished(self) -> int:
        """How many trials have ended; one that was interrupted counts as none."""
        return sum(trial.state.is_finished() for trial in self.study.trials)

    def more(self, left: int, told: Callable[[str], None]) -> None:
        """Run one trial, or on a GPU as many as a cohort has."""
        together = min(left, COHORT) if on_gpu(self.job.device) else 1
        asked = [self.study.ask() for _ in range(together)]
        chosen = [self._settings(trial) for trial in asked]
        if together == 1:
            self._run_alone(asked[0], chosen[0])
        else:
            self._run_together(asked, chosen)
        for trial, settings in zip(asked, chosen, strict=True):
            told(f"trial {trial.number + 1}: {self._ended(trial)} with {_words(settings)}")

    def _settings(self, trial: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, choice in self.space.items():
            if choice.options:
                found[name] = trial.suggest_categorical(name, choice.options)
            elif choice.whole:
                found[name] = trial.suggest_int(name, int(choice.low), int(choice.high), log=choice.log)
            else:
                found[name] = trial.suggest_float(name, choice.low, choice.high, log=choice.log)
        return found

    def _jobs(self, settings: dict[str, Any]) -> list[Job]:
        given = self.job.settings | settings
        return [dataclasses.replace(self.job, seed=seed, settings=given) for seed in range(self.seeds)]

    def _run_alone(self, trial: Any, settings: dict[str, Any]) -> None:
        states = self.optuna.trial.TrialState
        values = []
        try:
            for seed, job in enumerate(self._jobs(settings)):
                pruning = _Pruning(self.optuna, trial, seed)
                watched = dataclasses.replace(job, track=(*job.track, lambda pruning=pruning: pruning))
                values.append(getattr(execute(watched), self.metric))
        except self.optuna.TrialPruned:
            self.study.tell(trial, state=states.PRUNED)
        except ValueError as error:  # a step that diverged, a value that the learner does not take
            trial.set_user_attr("error", str(error))
            self.study.tell(trial, state=states.FAIL)
        else:
            self._tell(trial, values)

    def _run_together(self, trials: Sequence[Any], settings: Sequence[dict[str, Any]]) -> None:
        jobs = [job for each in settings for job in self._jobs(each)]
        values: dict[int, list[float]] = {}
        with closing(outcomes(jobs)) as ended:
            for place, outcome in ended:
                if outcome.result is None:
                    trials[place // self.seeds].set_user_attr("error", str(outcome.error))
                else:
                    values.setdefault(place // self.seeds, []).append(getattr(outcome.result, self.metric))
        for place, trial in enumerate(trials):
            self._tell(trial, values.get(place, []))

    def _tell(self, trial: Any, values: Sequence[float]) -> None:
        if len(values) == self.seeds and all(map(math.isfinite, values)):
            self.study.tell(trial, fmean(values))
        else:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)

    def _ended(self, trial: Any) -> str:
        frozen = self.study.trials[trial.number]
        if frozen.state.name == "PRUNED":  # its value is the anytime accuracy that it was stopped at
            return "stopped early"
        if frozen.value is None:
            return f"failed ({frozen.user_attrs.get('error', '')})"
        return f"{self.metric} {100 * frozen.value:.2f} %"

    def result(self, test: bool) -> Tuned:
        """The best trial; with `test`, also what it reaches on the test samples."""
        states = [trial.state.name for trial in self.study.trials if trial.state.is_finished()]
        if "COMPLETE" not in states:
            errors = [trial.user_attrs.get("error") for trial in self.study.trials]
            reason = next((error for error in errors if error), "all were stopped early")
            raise ValueError(f"none of the {len(states)} trials was completed: {reason}")
        best = self.study.best_trial
        settings = {**self.job.settings, **best.params}
        reached: list[float] = []
        if test:
            jobs = self._jobs(dict(best.params))
            reached = [
                getattr(execute(dataclasses.replace(job, validation=False)), self.metric) for job in jobs
            ]
        found = Tuned(
            self.job.learner, self.job.stream, self.metric, settings, float(best.value), len(states),
            states.count("PRUNED"), states.count("FAIL"), self.file.with_suffix(".json"), tuple(reached),
        )  # fmt: skip
        found.file.write_text(json.dumps(found.plain(), indent=1) + "\n", "utf-8")
        return found


class _Pruning(Tracker):
    """Reports the anytime accuracy of a run to its trial, and stops a run that is below the median."""

    def __init__(self, optuna: Any, trial: Any, seed: int) -> None:
        self._optuna, self._trial, self._step = optuna, trial, 10_000 * seed
        # The pruner compares in the direction of the study, and a high accuracy is good in every study.
        self._sign = -1 if trial.study.direction == optuna.study.StudyDirection.MINIMIZE else 1

    def evaluation(self, evaluation: Any, metrics: Mapping[str, float]) -> None:
        """Report the anytime accuracy so far."""
        if "anytime_accuracy" in metrics:
            self._step += 1
            self._trial.report(self._sign * metrics["anytime_accuracy"], self._step)
            if self._trial.should_prune():
                raise self._optuna.TrialPruned


def _digest(job: Job, space: Mapping[str, Choice], seeds: int) -> str:
    """Tells studies apart that differ in anything but the number of trials."""
    text = json.dumps([key(job), sorted((name, list(choice)) for name, choice in space.items()), seeds])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError("tuning needs Optuna: pip install 'everlearn[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
