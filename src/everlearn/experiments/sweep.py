"""Run the jobs that a store does not have yet, and store each run as it ends."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from everlearn.experiments.job import Job, key
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.progress import progress_bar
from everlearn.experiments.runner import outcomes
from everlearn.experiments.store import STORE, Store, record

__all__ = ["Sweep", "run_sweep", "sweep"]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The jobs of a sweep that are still to run, and how many are stored already.

    done: number of jobs that the store has. todo: the jobs it lacks, and those that failed before.
    failed: number of jobs in todo that failed before.
    """

    done: int
    todo: tuple[Job, ...]
    failed: int


def sweep(jobs: Iterable[Job], store: str | os.PathLike[str] = STORE) -> Sweep:
    """Compare jobs with a store; nothing is run or written. Jobs that give the same numbers count once."""
    stored = Store(store).records() if Path(store).exists() else []
    failed = {run.key: run.error is not None for run in stored}
    wanted = {key(job): job for job in jobs}
    todo = {name: job for name, job in wanted.items() if failed.get(name, True)}
    again = sum(failed.get(name, False) for name in todo)
    return Sweep(len(wanted) - len(todo), tuple(todo.values()), again)


def run_sweep(title: str, todo: Sequence[Job], options: SweepOptions) -> None:
    """Run jobs; each run is stored as it ends, also one that failed. Ctrl-C loses only the runs in flight."""
    store = Store(options.store)
    store.check_writable()  # fail before anything runs
    for job in {job.stream: job for job in todo}.values():
        job.open_stream()  # a missing dataset also fails before anything runs
    stored = failed = 0
    try:
        with (
            _interrupts() as interrupted,
            progress_bar(title, todo) as progress,
            closing(outcomes(todo, progress, options.backend, options.address, options.workers)) as ended,
        ):
            for place, outcome in ended:
                store.add(record(todo[place], outcome))
                stored += 1
                failed += outcome.result is None
                if interrupted.is_set():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        # Count in the store: the interrupt may have come between storing a run and counting it.
        kept = [store.get(key(job)) for job in todo]
        stored = sum(run is not None and run.error is None for run in kept)
        print(
            f"stopped: {stored} of {len(todo)} runs are in {store.path}; the same command goes on",
            file=sys.stderr,
        )
        raise
    if failed:
        print(
            f"{failed} of {stored} runs failed, and are in {store.path} with their errors; the same command "
            "tries them again",
            file=sys.stderr,
        )


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that remembers Ctrl-C: a library's callback may swallow the KeyboardInterrupt."""
    came = threading.Event()

    def remember(number: int, frame: object) -> None:
        came.set()
        raise KeyboardInterrupt

    main_thread = threading.current_thread() is threading.main_thread()
    if not main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield came  # another handler is installed, or SIGINT is ignored: leave it
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
