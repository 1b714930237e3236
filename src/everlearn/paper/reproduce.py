"""Reproduce a table or figure of the paper; a call that was interrupted resumes where it stopped."""

from __future__ import annotations

import dataclasses
import os
import sys

from everlearn.experiments.options import SweepOptions
from everlearn.experiments.store import Store
from everlearn.experiments.sweep import Sweep, run_sweep, sweep
from everlearn.paper.comparison import print_comparison
from everlearn.paper.experiment import (
    Experiment,
    NothingLeft,
    check_wanted,
    comparisons,
    experiment,
    experiments,
)
from everlearn.paper.stored_experiments import keep_reproduced

__all__ = ["Plan", "SweepOptions", "plan", "reproduce"]


@dataclasses.dataclass(frozen=True)
class Plan(Sweep):
    """The sweep of one or several experiments."""

    experiments: tuple[Experiment, ...]

    @property
    def missing(self) -> list[str]:
        """Learners of these experiments that are not implemented here."""
        return list(dict.fromkeys(learner for each in self.experiments for learner in each.missing))


def parts(name: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    """The experiments that a name stands for: `all` of the paper's, or those of a comparison in several parts.

    >>> parts("rivals")
    ['rivals-P0', 'rivals-P1', 'rivals-P2', 'rivals-P3']
    """
    if name == "all":
        return list(experiments())
    return [each for each in comparisons() if each.startswith(f"{name}-")] or [name]


def plan(name: str | os.PathLike[str], options: SweepOptions | None = None) -> Plan:
    """What `reproduce` would run, with the same arguments; nothing is run or written.

    >>> options = SweepOptions(learners=("cope-ce",), streams=("split-mnist",), store="not/there.sqlite")
    >>> len(plan("balanced", options).todo)
    5
    """
    options = options or SweepOptions()
    names = parts(name)
    check_wanted(names, options)
    chosen = []
    for each in names:
        try:
            chosen.append(experiment(each, options))
        except NothingLeft:
            if len(names) == 1:
                raise
    wanted = sweep([job for each in chosen for job in each.jobs()], options.store)
    return Plan(wanted.done, wanted.todo, wanted.failed, tuple(chosen))


def reproduce(name: str | os.PathLike[str], options: SweepOptions | None = None) -> Plan:
    """Run what the store lacks of an experiment, then print the paper's numbers beside ours.

    name: an experiment of the paper, `all`, `rivals`, or a file of your own. Returns the plan from before it ran.
    """
    options = options or SweepOptions()
    options.check()
    begun = plan(name, options)
    store = Store(options.store)
    keep_reproduced(store, name, begun.experiments, options)
    for line in _before(begun):
        print(line, file=sys.stderr)
    if begun.todo:
        title = ", ".join(each.name for each in begun.experiments)
        run_sweep(title, begun.todo, options)
    for each in begun.experiments:
        print_comparison(each, store)
    return begun


def _before(begun: Plan) -> list[str]:
    """Messages to print before the runs start."""
    lines = [f"{learner} is not implemented yet, and is left out" for learner in begun.missing]
    if begun.done:
        again = f", {begun.failed} of them failed before" if begun.failed else ""
        lines.append(f"{begun.done} runs are stored already; {len(begun.todo)} to go{again}")
    return lines
