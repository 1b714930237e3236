"""Run jobs: in cohorts on a GPU, in parallel processes on the CPU, or on many machines with Ray."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Literal

from everlearn.core.learner import Learner
from everlearn.engine.clock import Clock
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Result, Run, RunOptions
from everlearn.experiments.environment import cores, hardware, on_gpu, version
from everlearn.experiments.job import Job
from everlearn.experiments.own import Own, make_network, make_own_learner
from everlearn.experiments.settings import learner
from everlearn.streams.base import Stream
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.lazy_samples import LazySamples

__all__ = ["Backend", "Job", "Outcome", "attempt", "execute", "execute_all", "open_run", "outcomes"]

# With fewer samples in total, starting processes costs more than it saves.
WORTH_PROCESSES = 30_000
# The most runs in one cohort: if it is stopped, all of them are lost.
COHORT = 10
# The number of processes that share a GPU for runs that can't be captured, which leave it mostly idle.
ON_ONE_GPU = 8

Progress = Callable[[int], None]
Backend = Literal["local", "ray"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a job ended: with a result, or with an error. `together`: how many runs shared the time it took."""

    result: Result | None
    error: Exception | None
    started: str
    hardware: str
    version: str
    together: int = 1


def execute(job: Job, progress: Progress | None = None) -> Result:
    """Run one job here."""
    return open_run(job, progress).finish()


def attempt(job: Job, progress: Progress | None = None) -> Outcome:
    """Run one job here; an error becomes part of the outcome."""
    started = _now()
    try:
        return Outcome(execute(job, progress), None, started, hardware(job.device), version())
    except Exception as error:
        return failure(job, error, started)


def failure(job: Job, error: Exception, started: str | None = None) -> Outcome:
    """The outcome of a job that failed."""
    return Outcome(None, error, started or _now(), hardware(job.device), version())


def execute_all(
    jobs: Sequence[Job],
    progress: Progress | None = None,
    on_end: Callable[[Job, Outcome], None] | None = None,
) -> list[Result]:
    """Run all jobs; the first error is raised. on_end: called with each run that succeeded, as soon as it ends."""
    results: dict[int, Result] = {}
    with closing(outcomes(jobs, progress)) as ended:
        for place, outcome in ended:
            if outcome.result is None:
                assert outcome.error is not None
                raise outcome.error
            results[place] = outcome.result
            if on_end is not None:
                on_end(jobs[place], outcome)
    return [results[place] for place in range(len(jobs))]


def outcomes(
    jobs: Sequence[Job],
    progress: Progress | None = None,
    backend: Backend = "local",
    address: str | None = None,
    workers: int | None = None,
) -> Generator[tuple[int, Outcome], None, None]:
    """Run all jobs; yields the index and the outcome of each as soon as it ends.

    On a GPU, runs of equal shape form a cohort, and the others run in processes that share the GPU.
    workers: number of processes; by default one for each core.
    """
    progress = progress or (lambda samples: None)
    if backend == "ray":
        from everlearn.experiments.on_ray import on_ray

        yield from on_ray(jobs, address, progress)
        return
    alone = [place for place, job in enumerate(jobs) if job.alone]
    rest = [place for place, job in enumerate(jobs) if not job.alone]
    gpu = all(on_gpu(job.device) for job in jobs)
    if gpu:
        for group in _alike([(place, jobs[place]) for place in rest]):
            for place, outcome in _cohorts({place: jobs[place] for place in group}, progress):
                rest.remove(place)
                yield place, outcome
    workers = workers or min(cores(), ON_ONE_GPU if gpu else len(jobs))
    if min(workers, len(rest)) > 1 and sum(jobs[place].passes() for place in rest) >= WORTH_PROCESSES:
        from everlearn.experiments.processes import in_processes

        for i, outcome in in_processes([jobs[place] for place in rest], workers, progress):
            yield rest[i], outcome
    else:
        alone = sorted(rest + alone)
    for place in alone:
        yield place, attempt(jobs[place], progress)


def _alike(jobs: Sequence[tuple[int, Job]]) -> list[list[int]]:
    """Indices of jobs that differ in seed and settings alone, in groups of at most the size of a cohort."""
    groups: dict[str, list[int]] = {}
    for place, job in jobs:
        common = json.dumps({**job.plain(), "seed": None, "settings": None}, sort_keys=True)
        shape = {name: value for name, value in job.settings.items() if name in ("network", "iterations")}
        groups.setdefault(common + json.dumps(shape, sort_keys=True), []).append(place)
    return [
        group[start : start + COHORT] for group in groups.values() for start in range(0, len(group), COHORT)
    ]


def _cohorts(jobs: dict[int, Job], progress: Progress) -> Iterator[tuple[int, Outcome]]:
    """Run together those of these jobs that can; yields nothing for the others."""
    passed = 0

    def count(samples: int) -> None:
        nonlocal passed
        passed += samples
        progress(samples)

    try:
        runs = {place: open_run(job, count) for place, job in jobs.items()}
    except Exception as error:
        _say_why_alone(jobs, error)
        return
    # A cohort has all samples on the GPU.
    shapes = {place: None if _is_lazy(run) else shape_of(run) for place, run in runs.items()}
    for shape in dict.fromkeys(shapes.values()):
        places = [place for place in runs if shapes[place] == shape]
        if shape is None or len(places) == 1:
            continue
        started, passed = _now(), 0
        try:
            results = Cohort([runs[place] for place in places]).finish()
        except Exception as error:
            progress(-passed)
            _say_why_alone(places, error)
            continue
        for place, result in zip(places, results, strict=True):
            yield place, Outcome(result, None, started, hardware("cuda"), version(), together=len(places))


def _is_lazy(run: Run) -> bool:
    return isinstance(getattr(run.stream, "x", None), LazySamples)


def _say_why_alone(jobs: Collection[int], error: Exception) -> None:
    """Print why these runs can't share a cohort; each then runs on its own."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    print(f"{len(jobs)} runs can't run together ({said}); each runs on its own", file=sys.stderr)


def open_run(job: Job, progress: Progress | None = None) -> Run:
    """The run of a job, ready to start."""
    source = job.open_stream()
    options = RunOptions(
        evaluator=job.evaluator,
        horizon=job.horizon,
        paradigm=job.paradigm,
        infer=job.infer,
        clock=None if job.cost is None else Clock(cost=job.cost),
        progress=progress,
        checkpoint=job.kept_in(),
        track=job.track,
    )
    return Run(_learner(job, source), source, options)


def _learner(job: Job, source: Stream) -> Learner:
    """The learner of a job."""
    own = job.own or Own()
    settings = dict(job.settings)
    if own.network is not None:
        settings["network"] = make_network(own.network, _sample_shape(source), job.seed)
    if own.learner is None:
        return learner(job.learner, source, seed=job.seed, device=job.device, **settings)
    return make_own_learner(own.learner, source, job.seed, job.device, settings)


def _sample_shape(source: Stream) -> tuple[int, ...]:
    """The shape of a sample; of a user's stream, its first batch is requested for that and sent later."""
    if isinstance(source, DatasetStream):
        return tuple(source.x.shape[1:])
    raise ValueError(
        f"the network for the stream {source.name!r} can't be made, since only a stream of split or stream tells the "
        "shape of its samples: make the network in the function of the learner"
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
