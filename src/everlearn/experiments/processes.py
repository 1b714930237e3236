"""Run jobs in parallel processes on this machine, one thread each."""

from __future__ import annotations

import pickle
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.experiments.job import Job
from everlearn.experiments.runner import Outcome, Progress, attempt, failure
from everlearn.parent_watch import end_with_parent, remove_with_parent

__all__ = ["in_processes"]

Counts = np.memmap[Any, np.dtype[np.int64]]


def in_processes(jobs: Sequence[Job], workers: int, progress: Progress) -> Iterator[tuple[int, Outcome]]:
    """Run all jobs; yields the index and the outcome of each as soon as it ends.

    If a process dies (mostly out of memory), the jobs that were running are run again one by one, and only the job
    that kills its process fails. The processes end with this one, however it ends.
    """
    with tempfile.TemporaryDirectory() as folder, _Watched(Path(folder), len(jobs), progress) as counts:
        waiting = list(range(len(jobs)))
        suspects: list[int] = []
        while waiting or suspects:
            try:
                for place, outcome in _round(jobs, suspects[:1] or waiting, workers, counts.path):
                    (suspects if suspects else waiting).remove(place)
                    yield place, outcome
            except _broken() as error:
                if suspects:
                    yield suspects[0], failure(jobs[suspects.pop(0)], _killed(error))
                else:
                    suspects = [place for place in waiting if counts.begun(place)]
                    waiting = [place for place in waiting if place not in suspects]
                    if not suspects:
                        raise
                counts.forget(suspects)


def _round(
    jobs: Sequence[Job], places: Sequence[int], workers: int, counts: Path
) -> Iterator[tuple[int, Outcome]]:
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1, initializer=end_with_parent):
        run_them = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch=workers)
        ended = run_them(delayed(_counted)(jobs[place], counts, place, len(jobs)) for place in list(places))
        try:
            for one in ended:  # noqa: UP028 - `yield from` would close it before `finally`
                yield one
        finally:
            with warnings.catch_warnings():
                # Joblib warns of results that were not collected.
                warnings.filterwarnings("ignore", category=UserWarning, module="joblib")
                ended.close()


def _broken() -> type[Exception]:
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    kind: type[Exception] = TerminatedWorkerError
    return kind


def _killed(error: Exception) -> RuntimeError:
    return RuntimeError(
        f"its process was killed, perhaps because it was out of memory ({type(error).__name__})"
    )


def _counted(job: Job, counts: Path, place: int, places: int) -> tuple[int, Outcome]:
    """Run a job in a worker process; it counts its progress in a file that the parent reads."""
    # Ctrl-C reaches every process of a terminal; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    remove_with_parent(counts.parent)
    shared = _open(counts, "r+", places)
    shared[1, place] = 1

    def progress(samples: int) -> None:
        shared[0, place] += samples

    outcome = attempt(job, progress)
    try:
        pickle.dumps(outcome)
    except Exception:
        outcome = failure(job, RuntimeError(str(outcome.error)), outcome.started)
    return place, outcome


def _open(path: Path, mode: Any, places: int) -> Counts:
    """For each job: how many samples it has learnt, and whether it has started."""
    return np.memmap(path, np.int64, mode, shape=(2, places))


class _Watched:
    """A file in which jobs count their samples, and a thread that reports the counts."""

    def __init__(self, folder: Path, places: int, progress: Callable[[int], None]) -> None:
        self.path = folder / "samples"
        self._shared = _open(self.path, "w+", places)
        self._progress = progress
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def begun(self, place: int) -> bool:
        """Whether a process has started this job."""
        return bool(self._shared[1, place])

    def forget(self, places: Sequence[int]) -> None:
        """Reset the counts of jobs that will run again."""
        self._shared[:, list(places)] = 0

    def __enter__(self) -> _Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        reported = 0
        finished = False
        while not finished:
            finished = self._done.wait(0.1)
            now = int(self._shared[0].sum())
            self._progress(now - reported)
            reported = now
