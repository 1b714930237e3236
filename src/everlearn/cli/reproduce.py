"""`everlearn reproduce`: the paper's tables and figures beside ours."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from everlearn.cli import real_streams
from everlearn.cli.flags import in_one_sentence
from everlearn.experiments.options import SweepOptions
from everlearn.paper.reproduce import plan, reproduce

__all__ = ["ReproduceFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ReproduceFlags:
    """Run an experiment of the paper, or one of your own, and print the paper's numbers beside ours.

    Every run is stored as it ends: stop with Ctrl-C, and the same command goes on.
    """

    experiment: tyro.conf.Positional[str]
    """balanced, buffer, imbalanced, pseudo-prototypes, batch-size, resources, momentum, low-capacity,
    beyond, all of these; rivals, rates-P0; or a file *.toml of your own; real-streams compares with other libraries
    on streams of records"""
    run: Annotated[SweepOptions, tyro.conf.OmitArgPrefixes] = dataclasses.field(default_factory=SweepOptions)
    dry_run: bool = False
    """print what would run and how long it would take, and run nothing"""


def command(words: list[str]) -> int:
    """Run it; returns the exit code, which is 1 where runs failed."""
    flags = in_one_sentence(lambda: tyro.cli(ReproduceFlags, args=words, prog="everlearn reproduce"))
    options = flags.run
    options.check()
    if flags.experiment == real_streams.NAME:
        return real_streams.show_scoreboard(options, flags.dry_run)
    if flags.dry_run:
        from everlearn.experiments.estimate import describe

        planned = plan(flags.experiment, options)
        print(describe(planned, options.store, options.workers, planned.missing))
        return 0
    reproduce(flags.experiment, options)
    return 1 if plan(flags.experiment, options).failed else 0
