"""Every table and figure of the paper by one call, which goes on where it stopped."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Collection

from everlearn.experiments.environment import on_gpu
from everlearn.experiments.runner import Backend
from everlearn.experiments.store import Store
from everlearn.experiments.sweep import STORE, Sweep, run_sweep, sweep
from everlearn.paper.comparison import print_comparison
from everlearn.paper.experiment import Experiment, NothingLeft, check_wanted, experiment, experiments

__all__ = ["STORE", "Plan", "plan", "reproduce"]


@dataclasses.dataclass(frozen=True)
class Plan(Sweep):
    """The sweep of one or several experiments."""

    experiments: tuple[Experiment, ...]

    @property
    def missing(self) -> list[str]:
        """Learners of these experiments that are not implemented here."""
        return list(dict.fromkeys(learner for each in self.experiments for learner in each.missing))


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
    wanted = sweep([job for each in chosen for job in each.jobs()], store)
    return Plan(wanted.done, wanted.todo, wanted.failed, tuple(chosen))


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
        title = ", ".join(each.name for each in begun.experiments)
        run_sweep(title, begun.todo, kept, backend, address, workers)
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
    lines = [f"{learner} is not implemented yet, and is left out" for learner in begun.missing]
    if begun.done:
        again = f", {begun.failed} of them failed before" if begun.failed else ""
        lines.append(f"{begun.done} runs are stored already; {len(begun.todo)} to go{again}")
    return lines
