"""`everlearn report`: the runs so far as a page, as CSV or JSON, or merged into one store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from everlearn.cli.flags import in_one_sentence
from everlearn.experiments.store import STORE
from everlearn.messages import nearest

if TYPE_CHECKING:
    from everlearn.paper.experiment import Experiment

__all__ = ["ReportFlags", "command"]


@dataclasses.dataclass(frozen=True)
class ReportFlags:
    """Write a page with the tables and figures of all runs of one or several stores, beside the paper's numbers.

    With --csv, --json, --latex, --markdown, --figures or --merge, only these are written.
    """

    stores: tyro.conf.Positional[tuple[Path, ...]] = (STORE,)
    """stores of runs, or folders such as results/"""
    out: Path = Path("runs") / "report"
    """the folder of the page and its figures"""
    experiments: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…")] = ()
    """only these, by name or as files *.toml of your own; by default those that were run, and all other runs"""
    csv: Path | None = None
    """write a line for each run to this file"""
    json: Path | None = None
    """write everything about each run to this file"""
    latex: Path | None = None
    """write tables for LaTeX with booktabs to this file: mean ± std, the best in bold, paired significance"""
    markdown: Path | None = None
    """write the same tables in Markdown to this file"""
    metrics: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME…")] = ("accuracy",)
    """of these tables: accuracy, anytime_accuracy, worst_case_accuracy, forgetting, prequential_accuracy, your own"""
    figures: Path | None = None
    """write curves over the stream in the width of a paper's column to this folder"""
    format: Literal["pdf", "svg", "png"] = "pdf"
    """of these figures"""
    width: float = 3.3
    """of these figures, in inches"""
    names: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW=NAME…")] = ()
    """how rows and columns are called in these tables and figures, such as cope=Ours"""
    colours: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ROW=COLOUR…")] = ()
    """colours of learners in these figures, such as cope=#0b6fb8"""
    merge: Path | None = None
    """add the runs to this store, which is created if it does not exist"""


def command(words: list[str]) -> int:
    """Write the report; returns the exit code."""
    from everlearn.experiments.collect import collect_runs
    from everlearn.experiments.export import write_csv, write_json
    from everlearn.experiments.store import Store

    flags = in_one_sentence(lambda: tyro.cli(ReportFlags, args=words, prog="everlearn report"))
    _check_experiments(flags.experiments)
    _check_targets(flags)
    records = collect_runs(flags.stores)
    if flags.csv is not None:
        write_csv(records, flags.csv)
        print(f"{len(records)} runs: {flags.csv}")
    if flags.json is not None:
        write_json(records, flags.json)
        print(f"{len(records)} runs: {flags.json}")
    if flags.latex is not None or flags.markdown is not None or flags.figures is not None:
        _write_for_a_paper(flags)
    if flags.merge is not None:
        into = Store(flags.merge)
        print(f"{into.merge(records)} runs were added to {flags.merge}, which now has {len(into.records())}")
        for definition in _definitions(flags):
            into.add_experiment(definition)
    only = (flags.csv, flags.json, flags.merge, flags.latex, flags.markdown, flags.figures)
    if all(target is None for target in only):
        from everlearn.paper.report import write

        write(list(flags.stores), flags.out, _chosen(flags))
        print(f"report: {flags.out}")
    return 0


def _definitions(flags: ReportFlags) -> list[dict[str, Any]]:
    from everlearn.paper.stored_experiments import definitions_of

    return definitions_of(flags.stores)


def _chosen(flags: ReportFlags) -> list[Experiment] | None:
    """The experiments to show: those that are named, also the user's own of these stores; None for all."""
    from everlearn.paper.experiment import experiment
    from everlearn.paper.reproduce import parts
    from everlearn.paper.stored_experiments import built_in, stored_experiments

    own = {each.name: each for each in stored_experiments(_definitions(flags))} if flags.experiments else {}
    chosen: list[Experiment] = []
    for name in flags.experiments:
        several = [name] if name in own else parts(name)
        if several == [name] and name not in {*own, *built_in()} and not name.endswith(".toml"):
            known = nearest(name, [*own, *built_in()])
            raise ValueError(f"there is no experiment {name!r}{known}; one of your own is a file *.toml")
        chosen += [own[name]] if name in own else [experiment(part) for part in several]
    return chosen or None


def _write_for_a_paper(flags: ReportFlags) -> None:
    """Write tables and figures for a paper of one's own."""
    from everlearn.paper.paper_figures import write_figures
    from everlearn.paper.paper_tables import check_metrics, tables_as_latex, tables_as_markdown
    from everlearn.paper.report import tables_of

    shown = [table for table in tables_of(list(flags.stores), _chosen(flags)) if not table.resources]
    check_metrics(shown, flags.metrics)
    names, colours = _pairs(flags.names, "names"), _pairs(flags.colours, "colours")
    for path, write in ((flags.latex, tables_as_latex), (flags.markdown, tables_as_markdown)):
        if path is not None:
            text = write(shown, flags.metrics, names)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"{len(shown)} table{'s' * (len(shown) != 1)}: {path}")
    if flags.figures is not None:
        written = write_figures(shown, flags.figures, flags.format, flags.width, names, colours)
        print(f"{len(written)} figure{'s' * (len(written) != 1)}: {flags.figures}")


def _check_targets(flags: ReportFlags) -> None:
    """Raise a ValueError for metrics, names or colours that nothing is written with."""
    if flags.metrics != ReportFlags.metrics and flags.latex is None and flags.markdown is None:
        raise ValueError("--metrics is of tables for a paper: add --latex or --markdown")
    if flags.names and flags.latex is None and flags.markdown is None and flags.figures is None:
        raise ValueError("--names is of tables and figures for a paper: add --latex, --markdown or --figures")
    if flags.colours and flags.figures is None:
        raise ValueError("--colours is of figures for a paper: add --figures FOLDER")


def _pairs(given: tuple[str, ...], what: str) -> dict[str, str]:
    for each in given:
        if not all(each.partition("=")):
            raise ValueError(f"--{what} takes ROW=VALUE, such as cope=Ours, not {each!r}")
    return {row: value for row, _, value in (each.rpartition("=") for each in given)}


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
