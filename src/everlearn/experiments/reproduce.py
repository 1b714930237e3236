"""Every table and figure of the paper by one call, which goes on where it stopped."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from everlearn.experiments.comparison import print_comparison
from everlearn.experiments.environment import on_gpu
from everlearn.experiments.experiment import (
    Experiment,
    NothingLeft,
    check_wanted,
    experiment,
    experiments,
    key,
)
from everlearn.experiments.job import Job
from everlearn.experiments.progress import progress_bar
from everlearn.experiments.runner import Backend, outcomes
from everlearn.experiments.store import Store, record

__all__ = ["STORE", "Plan", "plan", "reproduce"]

STORE = Path("runs") / "store.sqlite"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an experiment wants: its runs that are stored, and the jobs that are to do, failed ones among them.

    failed: how many of those to do were tried before.
    """

    experiments: tuple[Experiment, ...]
    done: int
    todo: tuple[Job, ...]
    failed: int


def plan(
    name: str | os.PathLike[str],
    learners: Collection[str] | None = None,
    streams: Collection[str] | None = None,
    seeds: int | None = None,
    *,
    store: str | os.PathLike[str] = STORE,
    quick: bool = False,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
) -> Plan:
    """What `reproduce` would run, with the same arguments; nothing is run or written.

    >>> len(plan("balanced", ["cope-ce"], ["split-mnist"], store="not/there.sqlite").todo)
    5
    """
    names = experiments() if name == "all" else [name]
    check_wanted(names, learners, streams, quick)
    chosen = []
    for each in names:
        try:
            chosen.append(experiment(each, learners, streams, seeds, quick, device, data_dir))
        except NothingLeft:
            if name != "all":
                raise
    there = Store(store).records() if Path(store).exists() else []
    failed = {stored.key: stored.error is not None for stored in there}
    jobs = {key(job): job for each in chosen for job in each.jobs()}
    todo = {name: job for name, job in jobs.items() if failed.get(name, True)}
    again = sum(failed.get(name, False) for name in todo)
    return Plan(tuple(chosen), len(jobs) - len(todo), tuple(todo.values()), again)


def reproduce(
    name: str | os.PathLike[str],
    learners: Collection[str] | None = None,
    streams: Collection[str] | None = None,
    seeds: int | None = None,
    *,
    store: str | os.PathLike[str] = STORE,
    quick: bool = False,
    backend: Backend = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
    data_dir: str | os.PathLike[str] | None = None,
) -> Plan:
    """Run what the store lacks of an experiment, keep each run as it ends, and print the paper's numbers beside ours.

    name: of an experiment of the paper, `all`, or a file of one's own. learners, streams, seeds: only these.
    backend: `local`, processes here and cohorts on a GPU, or `ray`, the cluster at `address`.
    workers: processes here; by default one for each core. Returns what there was to do when it began.
    """
    _check_where(device, workers, backend)
    begun = plan(name, learners, streams, seeds, store=store, quick=quick, device=device, data_dir=data_dir)
    kept = Store(store)
    for line in _before(begun):
        print(line, file=sys.stderr)
    if begun.todo:
        kept.check_writable()  # a run that can't be kept is said before anything runs
        _run(begun, kept, backend, address, workers)
    for each in begun.experiments:
        print_comparison(each, kept)
    return begun


def _check_where(device: str, workers: int | None, backend: Backend) -> None:
    """Refuse what every run would fail of."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is auto, cpu or cuda, not {device!r}")
    # On a cluster, what this machine has says nothing.
    if device == "cuda" and backend == "local" and not on_gpu(device):
        raise ValueError("device is cuda, but torch finds no GPU here: leave it out, or say cpu")


def _before(begun: Plan) -> list[str]:
    """What a person should know before it begins."""
    missing = list(dict.fromkeys(learner for each in begun.experiments for learner in each.missing))
    lines = [f"{learner} is not here yet, and is left out" for learner in missing]
    if begun.done:
        again = f", {begun.failed} of them failed before" if begun.failed else ""
        lines.append(f"{begun.done} runs are stored already; {len(begun.todo)} to go{again}")
    return lines


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Remembers Ctrl-C: raised in a callback of a library's, it may be taken for an error there, or be lost."""
    came = threading.Event()

    def remember(number: int, frame: object) -> None:
        came.set()
        raise KeyboardInterrupt

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT)
        is not signal.default_int_handler  # it is ignored, or somebody else's
    ):
        yield came
        return
    before = signal.signal(signal.SIGINT, remember)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)


def _run(begun: Plan, store: Store, backend: Backend, address: str | None, workers: int | None) -> None:
    """Run what is to do; each run is stored as it ends, also one that failed."""
    for job in {job.stream: job for job in begun.todo}.values():
        job.open_stream()  # a dataset that is not there is said before anything runs
    stored = failed = 0
    title = ", ".join(each.name for each in begun.experiments)
    try:
        with (
            _interrupts() as interrupted,
            progress_bar(title, begun.todo) as progress,
            closing(outcomes(begun.todo, progress, backend, address, workers)) as ended,
        ):
            for place, outcome in ended:
                store.add(record(begun.todo[place], outcome))
                stored += 1
                failed += outcome.result is None
                if interrupted.is_set():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        # Asked of the store, since it may have come between keeping a run and counting it.
        kept = [store.get(key(job)) for job in begun.todo]
        stored = sum(run is not None and run.error is None for run in kept)
        print(
            f"stopped: {stored} of {len(begun.todo)} runs are in {store.path}; the same command goes on",
            file=sys.stderr,
        )
        raise
    if failed:
        print(
            f"{failed} of {stored} runs failed, and are in {store.path} with their errors; the same command "
            "tries them again",
            file=sys.stderr,
        )
