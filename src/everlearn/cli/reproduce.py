"""`everlearn reproduce`: the paper's tables and figures beside ours."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.experiments.sweep import STORE
from everlearn.paper.reproduce import plan, reproduce

__all__ = ["ReproduceFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ReproduceFlags:
    """Run an experiment of the paper, or one of your own, and print the paper's numbers beside ours.

    Every run is stored as it ends: stop with Ctrl-C, and the same command goes on.
    """

    experiment: tyro.conf.Positional[str]
    """balanced, buffer, imbalanced, pseudo-prototypes, batch-size, resources, momentum, low-capacity,
    beyond, all, or a file *.toml of your own"""
    learners: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…")] = ()
    """only these"""
    streams: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…")] = ()
    """only these"""
    seeds: int | None = None
    """runs of each cell, with seeds 0, 1, …; by default as many as the paper's"""
    quick: bool = False
    """the same in small, on split-digits with two seeds, in a minute"""
    dry_run: bool = False
    """say what would run and how long it would take, and run nothing"""
    store: Path = STORE
    """the file that keeps the runs"""
    backend: Literal["local", "ray"] = "local"
    """local: processes here, cohorts on a GPU; ray: many machines"""
    address: str | None = None
    """of the Ray cluster; by default $RAY_ADDRESS, or the one on this machine, or a new one"""
    workers: int | None = None
    """processes here; by default one for each core"""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, or cuda"""
    data_dir: Path | None = None
    """where datasets lie"""


def command(words: list[str]) -> int:
    """Run it; returns the exit code, which is 1 where runs failed."""
    flags = in_one_sentence(lambda: tyro.cli(ReproduceFlags, args=words, prog="everlearn reproduce"))
    if flags.address is not None and flags.backend != "ray":
        raise ValueError(f"--address {flags.address} is of a Ray cluster: add --backend ray")
    only = (flags.experiment, flags.learners or None, flags.streams or None, flags.seeds)
    where: dict[str, Any] = {
        "store": flags.store,
        "quick": flags.quick,
        "device": flags.device,
        "data_dir": flags.data_dir,
    }
    if flags.dry_run:
        from everlearn.experiments.estimate import describe

        planned = plan(*only, **where)
        print(describe(planned, flags.store, flags.workers, planned.missing))
        return 0
    reproduce(*only, **where, backend=flags.backend, address=flags.address, workers=flags.workers)
    return 1 if plan(*only, **where).failed else 0
