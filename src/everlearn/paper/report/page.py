"""The page: one HTML file that needs nothing beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from everlearn.experiments.store import Record
from everlearn.paper.claims import NOT_MEASURED, Judgement
from everlearn.paper.experiment import experiments
from everlearn.paper.report import tables
from everlearn.paper.report.claim_checks import claims_section
from everlearn.paper.report.formatting import in_html
from everlearn.paper.report.provenance import behind_checks, behind_table
from everlearn.paper.report.resources import resources_table
from everlearn.paper.report.runs import runs_of
from everlearn.paper.report.theme import variables
from everlearn.paper.tables import QUICK, Table

__all__ = ["Picture", "page"]


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure as it stands on the page. name: of its files. kind: `wide`, `plain` (in its own colours), or none."""

    name: str
    caption: str
    svg: str
    kind: str


def page(
    tables: Sequence[Table],
    pictures: dict[str, list[Picture]],
    judgements: Sequence[Judgement],
    records: Sequence[Record],
    exports: dict[str, str],
    known: Sequence[Table],
) -> str:
    """The whole page. tables: those to show. pictures: for each table's name.

    exports: the texts of tables.csv and tables.json. known: all tables, of which the judgements speak.
    """
    # One learner over an axis reads better from top to bottom.
    shown = [table.turned() if _over_axis(table) else table for table in tables]
    names = list(dict.fromkeys(table.experiment.name for table in shown))
    links = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)
    body = "".join(_section([t for t in shown if t.experiment.name == name], pictures) for name in names)
    told = [judgement for judgement in judgements if judgement.verdict != NOT_MEASURED]
    links += '<a href="#claims">claims</a>' if told else ""
    runs = "".join(runs_of(table) + behind_table(table) for table in shown)
    runs += behind_checks(told, known, shown) if told else ""
    data = "".join(
        f'<div hidden id="data-{name}" data-type="{kind}">{_exact(exports[name])}</div>'
        for name, kind in (("csv", "text/csv"), ("json", "application/json"))
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>everlearn: the paper beside our runs</title>
<style>
:root {{ {variables(dark=False)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(dark=True)} }} }}
{_file("page.css")}</style>
</head>
<body>
{_top(shown, records)}
<nav aria-label="experiments"><div>{links}<a href="#runs">runs</a></div></nav>
<main>
{body}
{claims_section(told) if told else ""}
<section id="runs"><h2>Runs</h2>
<p>Behind every number: its seeds, the settings in force, where it ran, and the command that repeats it.</p>
{runs}</section>
</main>
{_foot(records)}
{data}
<script>
{_file("page.js")}</script>
</body>
</html>
"""


def _over_axis(table: Table) -> bool:
    return table.figure == "table" and table.axis is not None and len(table.learners) == 1


def _file(name: str) -> str:
    return files("everlearn.paper.report").joinpath(name).read_text("utf-8")


def _exact(text: str) -> str:
    """A text whose element has it to the letter; in a script, some texts would end it or the page's own."""
    return escape(text).replace("\r", "&#13;")


def _top(shown: Sequence[Table], records: Sequence[Record]) -> str:
    cells = {id(cell): cell for table in shown for cell in table.cells}.values()
    # A figure repeats numbers of the tables.
    in_tables = (cell for table in shown if table.figure == "table" for cell in table.cells)
    compared = [cell for cell in in_tables if cell.difference is not None]
    inside = sum(not cell.outside for cell in compared)
    marks = (
        "▲ and ▼ mark where our mean lies outside the paper's mean ± its standard deviation. "
        if any(cell.difference is not None for cell in cells)
        else ""
    )
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
    items = "".join(f"<li><b>{value}</b>{told}</li>" for value, told in facts)
    return (
        '<header class="top"><h1>The paper beside our runs</h1>'
        "<p>Continual Prototype Evolution (De Lange and Tuytelaars, ICCV 2021), repeated with everlearn. "
        "Accuracy at the end of the stream in percent, the unweighted mean over tasks on the full test set; "
        f"± is the standard deviation over seeds. {marks}"
        "Every number of ours leads to its runs; a click on a head sorts.</p>"
        f'<ul class="facts">{items}</ul></header>'
    )


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _section(tables: Sequence[Table], pictures: dict[str, list[Picture]]) -> str:
    experiment = tables[0].experiment
    source = f"{escape(experiment.source)}. " if experiment.source else ""
    notes = " ".join(escape(note) for note in experiment.notes)
    name = experiment.name.removesuffix(QUICK)
    small = " --quick" if name != experiment.name else ""
    again = f"<code>everlearn reproduce {name}{small}</code>" if name in experiments() else ""
    parts_of = "".join(_panel(table, pictures.get(table.name, [])) for table in tables)
    return (
        f'<section id="{escape(experiment.name)}"><h2>{in_html(experiment.title)}</h2>'
        f"<p>{source}{notes} {again}</p>{parts_of}</section>"
    )


def _panel(table: Table, pictures: Sequence[Picture]) -> str:
    title = f"<h3>{in_html(table.title)}</h3>"
    main = resources_table(table) if table.resources else tables.main_table(table)
    figures = "".join(
        f'<figure class="{picture.kind}">{picture.svg}<figcaption>{in_html(picture.caption)} '
        f"<code>figures/{escape(picture.name)}.svg</code>, <code>.png</code></figcaption></figure>"
        for picture in pictures
    )
    found = table.comparisons()
    compared = ""
    if found:
        what = (
            "CoPE less each other method"
            if len(table.learners) > 1
            else "The benchmark's setting less each other"
        )
        compared = (
            f"<h3>{what}</h3>{tables.comparison_table(table, found)}"
            '<p class="caption">Points, paired over the n seeds that both have, with the 95 % interval; two-sided '
            "paired t-test, p adjusted for the comparisons beside it (Holm). Bold: p &lt; 0.05.</p>"
        )
    return f'{title}{main}<div class="figures">{figures}</div>{compared}'


def _foot(records: Sequence[Record]) -> str:
    versions = ", ".join(sorted({record.version for record in records}))
    machines = "; ".join(sorted({record.hardware for record in records}))
    buttons = " ".join(
        f'<button type="button" class="action download" data-source="data-{kind}" data-name="tables.{kind}">'
        f"tables.{kind}</button>"
        for kind in ("csv", "json")
    )
    return (
        f"<footer><p>everlearn {escape(versions)}. Ran on: {escape(machines)}.</p><p>{buttons}</p></footer>"
    )
