"""Runs by name: one job is one learner on one stream with one seed; many run in parallel processes."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from everlearn import learners
from everlearn.engine.clock import Clock
from everlearn.engine.cohort import Cohort, can_run_together
from everlearn.engine.loop import Result, Run
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.settings import learner
from everlearn.streams import stream
from everlearn.streams.arrangement import DatasetStream
from everlearn.streams.horizon import Horizon

__all__ = ["Job", "execute", "execute_all"]

# Below so many samples in all, starting processes costs more than it saves.
WORTH_PROCESSES = 30_000

Progress = Callable[[int], None]


@dataclasses.dataclass(frozen=True)
class Job:
    """What to run, in plain values, so that it travels to another process."""

    learner: str
    stream: str
    seed: int
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
        return self.open_stream().samples * horizon.epochs


def execute(job: Job, progress: Progress | None = None) -> Result:
    """Run one job here."""
    return _open(job, progress).finish()


def _open(job: Job, progress: Progress | None) -> Run:
    source = job.open_stream()
    return Run(
        learner(job.learner, source, seed=job.seed, device=job.device, **job.settings),
        source,
        job.evaluator,
        horizon=job.horizon,
        told=job.paradigm,
        infer=job.infer,
        clock=None if job.cost is None else Clock(cost=job.cost),
        progress=progress,
        checkpoint=job.kept_in(),
    )


def execute_all(jobs: Sequence[Job], progress: Progress | None = None) -> list[Result]:
    """Run all jobs: on a GPU as one cohort where they are of equal shape, on the CPU in parallel processes."""
    if torch.cuda.is_available() and all(job.device != "cpu" for job in jobs):
        runs = [_open(job, progress) for job in jobs]
        return Cohort(runs).finish() if can_run_together(runs) else [run.finish() for run in runs]
    workers = min(len(jobs), len(os.sched_getaffinity(0)))
    if workers == 1 or sum(job.passes() for job in jobs) < WORTH_PROCESSES:
        return [execute(job, progress) for job in jobs]
    return _in_processes(jobs, workers, progress or (lambda samples: None))


def _in_processes(jobs: Sequence[Job], workers: int, progress: Progress) -> list[Result]:
    from joblib import Parallel, delayed

    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "samples"
        shared = np.memmap(counts, np.int64, "w+", shape=len(jobs))
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(shared, done, progress))
        watcher.start()
        try:
            run_them = Parallel(n_jobs=workers, backend="loky")
            return list(run_them(delayed(_counted)(job, counts, i, len(jobs)) for i, job in enumerate(jobs)))
        finally:
            done.set()
            watcher.join()


def _counted(job: Job, counts: Path, place: int, places: int) -> Result:
    """Run a job in a process of its own; its progress is a number in a file that the parent watches."""
    shared = np.memmap(counts, np.int64, "r+", shape=places)

    def progress(samples: int) -> None:
        shared[place] += samples

    return execute(job, progress)


def _watch(shared: np.memmap[Any, np.dtype[np.int64]], done: threading.Event, progress: Progress) -> None:
    told = 0
    finished = False
    while not finished:
        finished = done.wait(0.1)
        now = int(shared.sum())
        progress(now - told)
        told = now
