"""`everlearn report`: the runs so far as a page, as CSV or JSON, or merged into one store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.experiments.store import STORE

__all__ = ["ReportFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ReportFlags:
    """Write a page with the tables and figures of all runs of one or several stores, beside the paper's numbers.

    With --csv, --json or --merge, only these are written.
    """

    stores: tyro.conf.Positional[tuple[Path, ...]] = (STORE,)
    """stores of runs, or folders such as results/"""
    out: Path = Path("runs") / "report"
    """the folder of the page and its figures"""
    experiments: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…")] = ()
    """only these, by name or as files *.toml of your own; by default the paper's, and all other runs"""
    csv: Path | None = None
    """write a line for each run to this file"""
    json: Path | None = None
    """write everything about each run to this file"""
    merge: Path | None = None
    """add the runs to this store, which is created if it does not exist"""


def command(words: list[str]) -> int:
    """Write the report; returns the exit code."""
    from everlearn.experiments.collect import collect_runs
    from everlearn.experiments.export import write_csv, write_json
    from everlearn.experiments.store import Store

    flags = in_one_sentence(lambda: tyro.cli(ReportFlags, args=words, prog="everlearn report"))
    _check_experiments(flags.experiments)
    records = collect_runs(flags.stores)
    if flags.csv is not None:
        write_csv(records, flags.csv)
        print(f"{len(records)} runs: {flags.csv}")
    if flags.json is not None:
        write_json(records, flags.json)
        print(f"{len(records)} runs: {flags.json}")
    if flags.merge is not None:
        into = Store(flags.merge)
        print(f"{into.merge(records)} runs were added to {flags.merge}, which now has {len(into.records())}")
    if flags.csv is None and flags.json is None and flags.merge is None:
        from everlearn.paper.experiment import experiment
        from everlearn.paper.report import write

        write(list(flags.stores), flags.out, [experiment(name) for name in flags.experiments] or None)
        print(f"report: {flags.out}")
    return 0


def _check_experiments(names: tuple[str, ...]) -> None:
    """Raise a ValueError for a store among the experiments, where it ends up if it is named after them."""
    from everlearn.paper.experiment import experiments

    for name in names:
        store = Path(name).exists() or name.endswith(".sqlite")
        if store and name not in experiments() and not name.endswith(".toml"):
            rest = " ".join(each for each in names if each != name)
            raise ValueError(
                f"{name} is taken for an experiment, since it comes after --experiments; name stores first: "
                f"`everlearn report {name} --experiments {rest or 'NAME'}`"
            )
