"""An experiment of the paper, or your own: tables of cells, with their jobs and the paper's numbers."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from everlearn import learners as all_learners
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.job import Job, key
from everlearn.experiments.options import SweepOptions
from everlearn.import_names import import_named
from everlearn.messages import nearest
from everlearn.paper.definition import PAPER, cells, check, parse
from everlearn.paper.small_version import small_version

__all__ = [
    "Cell", "Experiment", "NothingLeft", "Panel", "Published", "check_wanted", "comparisons", "experiment",
    "experiments", "key",
]  # fmt: skip

Figure = Literal["table", "lines", "bars"]
Measure = Literal["accuracy", "resources"]


@dataclasses.dataclass(frozen=True)
class Published:
    """A number of the paper in percent, and where it is printed."""

    mean: float
    std: float | None
    source: str


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of the paper. jobs: one for each seed; empty if the learner is not implemented."""

    row: str
    column: str
    jobs: tuple[Job, ...]
    published: Published | None


@dataclasses.dataclass(frozen=True)
class Panel:
    """A table, or a figure of lines or bars whose axis is the columns.

    measure: what a cell shows: the accuracy at the end, or the time and memory that the runs took.
    reference: the row that the others are compared with, where there are several learners.
    protocol: the protocol of the field that its settings are from, if any.
    """

    title: str
    figure: Figure
    axis: str | None
    cells: tuple[Cell, ...]
    measure: Measure = "accuracy"
    reference: str = "cope"
    protocol: str | None = None

    @property
    def rows(self) -> list[str]:
        """The names of the rows, in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell of a row and a column, if there is one."""
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper. source: where it is in the paper. notes: what a reader should know.

    missing: learners of the paper that are not implemented.
    """

    name: str
    title: str
    source: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def jobs(self) -> list[Job]:
        """All jobs; those that give the same numbers appear once."""
        return list(
            {key(job): job for panel in self.panels for cell in panel.cells for job in cell.jobs}.values()
        )


class NothingLeft(ValueError):
    """An experiment has no cell with the selected learners, streams, rows and columns."""


def experiments() -> list[str]:
    """The experiments of the paper, in its order.

    >>> experiments()[0]
    'balanced'
    """
    return list(_paper())


def experiment(name_or_path: str | os.PathLike[str], options: SweepOptions | None = None) -> Experiment:
    """The experiment of this name, or in a file of your own, whose name ends with .toml.

    options: which of its learners and streams, how many seeds, and whether the small version.

    >>> balanced = experiment("balanced", SweepOptions(learners=("cope",), streams=("split-mnist",)))
    >>> [(cell.row, len(cell.jobs), cell.published.mean) for cell in balanced.panels[0].cells][0]
    ('cope', 5, 93.94)
    """
    options = options or SweepOptions()
    learners, streams = options.learners, options.streams
    name, definition = _find(name_or_path)
    if options.quick:
        definition = small_version(definition)
    if options.seeds is not None and options.seeds < 1:
        raise ValueError(f"seeds must be at least 1, not {options.seeds}")
    check_wanted([name_or_path, *experiments(), *comparisons()], options)
    data_dir = None if options.data_dir is None else str(options.data_dir)
    where: dict[str, Any] = {"device": options.device, "data_dir": data_dir, **_watched(definition)}
    seeds = options.seeds or definition["seeds"]
    missing: dict[str, None] = {}
    panels = []
    for panel in definition["panels"]:
        chosen = []
        for row, column, values in cells(panel):
            learner = values["learner"]
            if (learners and learner not in learners) or (streams and values["stream"] not in streams):
                continue
            if options.rows and row not in options.rows:
                continue
            if options.columns and column not in options.columns:
                continue
            exists = learner in all_learners.registry() or learner not in PAPER
            if not exists:
                missing[learner] = None
            jobs = tuple(_job(values | where, seed) for seed in range(seeds)) if exists else ()
            chosen.append(Cell(row, column, jobs, _published(panel, row, column)))
        if chosen:
            measure = panel.get("measure", "accuracy")
            reference = panel.get("reference", "cope")
            panels.append(
                Panel(
                    panel["title"],
                    panel["figure"],
                    panel.get("axis"),
                    tuple(chosen),
                    measure,
                    reference,
                    panel.get("protocol"),
                )
            )
    if not panels:
        raise NothingLeft(_nothing_left(name, options))
    notes = tuple(definition.get("notes", ()))
    return Experiment(name, definition["title"], definition["source"], tuple(panels), notes, tuple(missing))


def _nothing_left(name: str, options: SweepOptions) -> str:
    parts = [", ".join(options.learners or ["any"]), "on " + ", ".join(options.streams or ["any stream"])]
    parts += [f"in row {row!r}" for row in options.rows]
    parts += [f"in column {column!r}" for column in options.columns]
    return f"{name} has nothing of {' '.join(parts)}"


def _watched(definition: dict[str, Any]) -> dict[str, Any]:
    """How the runs of a file are evaluated and tracked, if it says so."""
    every, metrics = definition.get("every"), definition.get("metrics", {})
    found: dict[str, Any] = {"track": tuple(definition.get("track", ()))}
    if every is not None or metrics:
        own = {name: import_named(where, "metric") for name, where in metrics.items()}
        found["evaluator"] = Evaluator(every, metrics=own)
    return found


def _job(values: dict[str, Any], seed: int) -> Job:
    values = dict(values)
    epochs = values.pop("epochs", None)
    if isinstance(values.get("class_order"), list):
        values["class_order"] = tuple(values["class_order"])
    own = all_learners.find(values["learner"]).horizon
    horizon = None if epochs in (None, own.epochs) else dataclasses.replace(own, epochs=epochs)
    return Job(seed=seed, horizon=horizon, **values)


def _published(panel: dict[str, Any], row: str, column: str) -> Published | None:
    printed = panel.get("published", {}).get(row, {}).get(column)
    if printed is None:
        return None
    if isinstance(printed, list):
        return Published(printed[0], printed[1], panel["source"])
    return Published(printed["mean"], printed.get("std"), printed.get("source") or panel["source"])


def check_wanted(names: Collection[str | os.PathLike[str]], options: SweepOptions) -> None:
    """Raise a ValueError for a learner, a stream, a row or a column that none of these experiments has."""
    definitions = [small_version(_find(name)[1]) if options.quick else _find(name)[1] for name in names]
    found = [cell for each in definitions for panel in each["panels"] for cell in cells(panel)]
    who = os.path.basename(next(iter(names))) if len(names) == 1 else "no experiment"
    for what, wanted, known in (
        ("learner", options.learners, [values["learner"] for _, _, values in found]),
        ("stream", options.streams, [values["stream"] for _, _, values in found]),
        ("row", options.rows, [row for row, _, _ in found]),
        ("column", options.columns, [column for _, column, _ in found]),
    ):
        for given in wanted:
            if given not in known:
                has = "has no" if len(names) == 1 else "has the"
                raise ValueError(f"{who} {has} {what} {given!r}{nearest(given, list(dict.fromkeys(known)))}")


def _find(name_or_path: str | os.PathLike[str]) -> tuple[str, dict[str, Any]]:
    given = os.fspath(name_or_path)
    known = _paper() | comparisons()
    if given in known:
        return given, known[given]
    path = Path(given)
    if path.suffix != ".toml":
        names = [*known, "all", "rivals", "real-streams"]
        raise ValueError(
            f"there is no experiment {given!r}{nearest(given, names)}; one of your own is a file *.toml"
        )
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist; docs/reproduce.md explains how to write an experiment of your own"
        )
    return path.stem, _checked(_text(path), path.name)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} can't be read: it is not UTF-8 text ({error})") from None


@functools.cache
def comparisons() -> dict[str, dict[str, Any]]:
    """Definitions by name that are not of the paper: comparisons with other methods. `all` does not run them."""
    return _definitions("comparisons")


@functools.cache
def _paper() -> dict[str, dict[str, Any]]:
    return _definitions("experiments")


def _definitions(of: str) -> dict[str, dict[str, Any]]:
    folder = files("everlearn.paper").joinpath(of)
    read = {
        file.name.removesuffix(".toml"): _checked(file.read_text("utf-8"), file.name)
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    return dict(sorted(read.items(), key=lambda item: item[1]["place"]))


def _checked(text: str, name: str) -> dict[str, Any]:
    definition = parse(text, name)
    check(definition, name)
    return definition
