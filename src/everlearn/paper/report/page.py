"""The page: one self-contained HTML file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from markupsafe import Markup

from everlearn.experiments.store import Record
from everlearn.paper.claims import NOT_MEASURED, Judgement
from everlearn.paper.formatting import proper
from everlearn.paper.other_runs import NAME
from everlearn.paper.report.claim_checks import judged_claim
from everlearn.paper.report.html import render
from everlearn.paper.report.provenance import FoldGroup, parts_of_checks, parts_of_table
from everlearn.paper.report.resources import resources_view
from everlearn.paper.report.runs import CellRuns, runs_of, title_of
from everlearn.paper.report.tables import accuracy_view, comparison_view
from everlearn.paper.stored_experiments import built_in
from everlearn.paper.table_view import TableView
from everlearn.paper.tables import QUICK, Table

__all__ = ["Picture", "page"]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of the page. name: of its files. kind: `wide`, `plain` (in its own colours), or none."""

    name: str
    caption: str
    svg: Markup
    kind: str


@dataclasses.dataclass(frozen=True)
class Panel:
    """A table of a section with its figures, and the comparisons between its rows if there are any."""

    title: str
    table: TableView
    pictures: tuple[Picture, ...]
    comparison_title: str
    comparison: TableView | None


@dataclasses.dataclass(frozen=True)
class Section:
    """An experiment on the page. command: what runs it, for an experiment of the paper."""

    name: str
    title: str
    source: str
    notes: tuple[str, ...]
    command: str
    panels: tuple[Panel, ...]


@dataclasses.dataclass(frozen=True)
class Runs:
    """The runs behind a table or the claims."""

    title: str
    cells: tuple[CellRuns, ...]
    groups: tuple[FoldGroup, ...]


def page(
    tables: Sequence[Table],
    pictures: dict[str, list[Picture]],
    judgements: Sequence[Judgement],
    records: Sequence[Record],
    exports: dict[str, str],
    known: Sequence[Table],
) -> str:
    """The whole page. tables: those to show. pictures: for each table's name.

    exports: the texts of tables.csv and tables.json. known: all tables that the judgements are about.
    """
    # One learner over an axis reads better from top to bottom.
    shown = [table.turned() if _over_axis(table) else table for table in tables]
    names = dict.fromkeys(table.experiment.name for table in shown)
    measured = [judgement for judgement in judgements if judgement.verdict != NOT_MEASURED]
    runs = [Runs(title_of(table), tuple(runs_of(table)), tuple(parts_of_table(table))) for table in shown]
    if measured:
        checks = parts_of_checks(measured, known, shown)
        runs.append(Runs("What the paper says, checked", (), tuple(checks)))
    cells = [cell for table in shown for cell in table.cells]
    of_paper = any(table.experiment.source for table in shown)
    return render(
        heading=_heading(shown, of_paper),
        of_paper=of_paper,
        marked=any(cell.difference is not None for cell in cells),
        facts=_facts(shown, records),
        sections=[_section([t for t in shown if t.experiment.name == each], pictures) for each in names],
        claims=[judged_claim(place, judgement) for place, judgement in enumerate(measured)],
        runs=runs,
        versions=", ".join(sorted({record.version for record in records})),
        machines="; ".join(sorted({record.hardware for record in records})),
        exports=exports,
    )


def _heading(shown: Sequence[Table], of_paper: bool) -> str:
    """The title of the page: that of its only experiment of the user's own, if there is one."""
    if of_paper:
        return "The paper beside our runs"
    titles = list(dict.fromkeys(table.experiment.title for table in shown if table.experiment.name != NAME))
    return titles[0] if len(titles) == 1 else "The runs so far"


def _over_axis(table: Table) -> bool:
    return table.figure == "table" and table.axis is not None and len(table.learners) == 1


def _facts(shown: Sequence[Table], records: Sequence[Record]) -> list[tuple[str, str]]:
    """The numbers at the top of the page."""
    cells = {id(cell): cell for table in shown for cell in table.cells}.values()
    # A figure repeats numbers of the tables.
    in_tables = (cell for table in shown if table.figure == "table" for cell in table.cells)
    compared = [cell for cell in in_tables if cell.difference is not None]
    inside = sum(not cell.outside for cell in compared)
    done = [record for record in records if record.error is None]
    seconds = sum(record.seconds for record in done)
    facts = [
        (f"{len(done):,}", f"runs, {_duration(seconds)} of training"),
        (f"{sum(cell.ours is not None for cell in cells)} of {len(cells)}", "cells of these tables measured"),
    ]
    if compared:
        facts.append((f"{inside} of {len(compared)}", "of our means inside the paper's spread"))
    if len(done) < len(records):
        facts.append((f"{len(records) - len(done)}", "runs failed"))
    return facts


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _section(tables: Sequence[Table], pictures: dict[str, list[Picture]]) -> Section:
    paper = tables[0].experiment
    name = paper.name.removesuffix(QUICK)
    small = " --quick" if name != paper.name else ""
    command = f"everlearn reproduce {name}{small}" if name in built_in() else ""
    panels = tuple(_panel(table, pictures.get(table.name, [])) for table in tables)
    return Section(paper.name, paper.title, paper.source, paper.notes, command, panels)


def _panel(table: Table, pictures: Sequence[Picture]) -> Panel:
    found = table.comparisons()
    several = len(table.learners) > 1
    reference = proper(table.experiment.panels[table.position].reference)
    return Panel(
        table.title,
        resources_view(table) if table.resources else accuracy_view(table),
        tuple(pictures),
        f"{reference} less each other method" if several else "The benchmark's setting less each other",
        comparison_view(table, found) if found else None,
    )
