"""REPRODUCIBILITY.md from the runs in `results/`: every number of the paper, ours, and a verdict on every claim.

    python -m everlearn.paper.reproducibility            writes REPRODUCIBILITY.md
    python -m everlearn.paper.reproducibility --add runs/store.sqlite     adds new runs first

Run both in the folder that contains `results/`.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from everlearn.experiments import results
from everlearn.experiments.codec import decode
from everlearn.experiments.collect import collect_runs
from everlearn.experiments.significance import Summary, welch
from everlearn.experiments.store import Record
from everlearn.paper.claims import Finding, Judgement, claims, judge
from everlearn.paper.differences import Difference, Known, known_differences, tally
from everlearn.paper.experiment import Experiment
from everlearn.paper.formatting import number, proper, short, signed
from everlearn.paper.table_view import Column, Entry, Row, TableView, name, number_entry
from everlearn.paper.tables import MeasuredCell, Table, tables
from everlearn.paper.writers import to_markdown

__all__ = ["main", "render", "verdict"]

RESULTS, PAGE = Path("results"), Path("REPRODUCIBILITY.md")
PAPER_SEEDS = 5
NEGLIGIBLE = 0.5
"""A difference of fewer points counts as agreement, even if it is significant."""
MANY = 6
WITHIN_NOISE = "agrees within noise"
NOT_TESTED = "one seed, not tested"

INTRODUCTION = """\
# Reproducibility

Every number of *Continual Prototype Evolution* (De Lange and Tuytelaars, ICCV 2021) beside ours, and a verdict on
every claim of its text. This page is made from the runs in `results/` by
`python -m everlearn.paper.reproducibility`; a test checks that it is up to date.

Accuracy is the unweighted mean over tasks at the end of the stream, on the full test set, in percent; ± is the
standard deviation over seeds. A number of ours **agrees** with the paper's if it lies inside the paper's mean ±
standard deviation, or less than half a point away; it agrees **within noise** if it lies outside, but Welch's t-test
over the seeds of both finds no significant difference (p ≥ 0.05); otherwise it is **higher** or **lower**. A number
with one seed that lies outside is not tested.

A claim **holds** where the 95 % interval of the difference, paired over seeds, lies above zero; by more or by less,
where the paper's number lies outside that interval; it is **unclear** where the interval contains zero.
"""


def render(records: Sequence[Record]) -> str:
    """The page, from these runs."""
    filled = tables(records)
    known = known_differences()
    parts = [INTRODUCTION, _state(filled, records, known)]
    parts += ["## Claims\n", to_markdown(_claims([judge(claim, filled) for claim in claims()]))]
    papers = {table.experiment.name: table.experiment for table in filled}
    for title, paper in papers.items():
        parts.append(_experiment(paper, [table for table in filled if table.experiment.name == title], known))
    return "\n".join(parts)


def _state(filled: Sequence[Table], records: Sequence[Record], known: Known) -> str:
    """The number of runs and of numbers that agree, for how many others a cause was tested, and the machines."""
    # A figure repeats numbers of the tables.
    printed = [
        (table.experiment.name, cell)
        for table in filled
        if table.figure == "table"
        for cell in table.cells
        if cell.cell.published
    ]
    measured = [(title, cell) for title, cell in printed if cell.ours is not None]
    verdicts = [verdict(cell) for _, cell in measured]
    agree = sum(each.startswith("agrees") for each in verdicts)
    untested = verdicts.count(NOT_TESTED)
    differing = [
        (title, cell.cell.row, cell.cell.column)
        for (title, cell), found in zip(measured, verdicts, strict=True)
        if found in ("higher", "lower")
    ]
    machines = sorted({f"everlearn {record.version} on {record.hardware}" for record in records})
    summary = (
        f"{len(records):,} runs. Of {len(printed)} numbers that the paper prints, {len(measured)} are measured here, "
        f"and {agree} of these agree.\n"
    )
    if untested:
        summary += f"Numbers of a single seed, outside of the paper's spread, were not tested: {untested}.\n"
    if differing:
        summary += f"{tally(differing, known)}\n"
    return "\n".join([summary, *(f"- {machine}" for machine in machines)]) + "\n"


def verdict(cell: MeasuredCell) -> str:
    """Whether a number of ours agrees with the paper's."""
    paper, ours = cell.cell.published, cell.ours
    if paper is None:
        return ""
    if ours is None or cell.difference is None:
        return "not measured yet"
    if not cell.outside or abs(cell.difference) < NEGLIGIBLE:
        return "agrees"
    p = welch(ours, Summary(paper.mean, paper.std, PAPER_SEEDS))
    if p is None:
        return NOT_TESTED
    if p >= 0.05:
        return WITHIN_NOISE
    return "higher" if cell.difference > 0 else "lower"


def _experiment(paper: Experiment, filled: Sequence[Table], known: Known) -> str:
    source = f" ({paper.source})" if paper.source else ""
    lines = [f"## {paper.title}{source}\n", *(f"{proper(note)}" for note in paper.notes)]
    lines += ["", f"`everlearn reproduce {paper.name}`\n"]
    for table in filled:
        if len(filled) > 1:
            lines.append(f"### {proper(table.title)}\n")
        if not table.measured and not any(cell.cell.published for cell in table.cells):
            lines.append("Not measured yet.\n")
            continue
        published = any(cell.cell.published for cell in table.cells)
        if table.resources:
            lines.append(to_markdown(_resources(table)))
        elif published and table.figure == "table":
            lines.append(to_markdown(_beside(table, known)))
        else:
            slash = "\nAfter a slash: the paper's, where it prints one.\n" if published else ""
            lines.append(to_markdown(_ours(table)) + slash)
    return "\n".join(lines)


def _beside(table: Table, known: Known) -> TableView:
    """Each number of the paper on a line of its own, with ours and the verdict; and ours of rows that it lacks."""
    rows = []
    for column, title in zip(table.columns, short(table.columns), strict=True):
        for row in table.rows:
            cell = table.at(row, column)
            if cell is None or (cell.cell.published is None and cell.ours is None):
                continue
            paper = cell.cell.published
            entries = (
                name(row),
                Entry("") if paper is None else Entry(mean=paper.mean, std=paper.std),
                _mean(cell.ours),
                number_entry(cell.difference, signed=True),
                Entry(verdict(cell)),
                Entry(_explanation(cell, known.get((table.experiment.name, row, column), []))),
            )
            rows.append(Row(name(title), entries))
    columns = ("", "paper", "ours", "difference", "verdict", "what is known")
    return TableView(table.axis or "", tuple(map(Column, columns)), tuple(rows))


def _explanation(cell: MeasuredCell, known: Sequence[Difference]) -> str:
    """What is known of a difference; that nothing is, where it is significant."""
    found, said = verdict(cell), " ".join(difference.text for difference in known)
    if found in ("higher", "lower"):
        return said or "Not explained so far."
    return said if found in (WITHIN_NOISE, NOT_TESTED) else ""


def _ours(table: Table) -> TableView:
    """Our means; the paper's, where it prints one, after a slash."""
    rows = []
    for row in table.rows:
        entries = []
        for column in table.columns:
            cell = table.at(row, column)
            paper = cell.cell.published if cell is not None else None
            ours = Entry() if cell is None else _mean(cell.ours, 1)
            slash = "" if paper is None else f"/ {number(paper.mean, 1)}"
            entries.append(dataclasses.replace(ours, note=" ".join(filter(None, (ours.note, slash)))))
        if table.averaged:
            across = table.across(row)
            entries.append(Entry(mean=across.mean, digits=1) if across else Entry())
        rows.append(Row(name(row), tuple(entries)))
    columns = [*short(table.columns), *(["mean"] if table.averaged else [])]
    return TableView("", tuple(map(Column, columns)), tuple(rows))


def _resources(table: Table) -> TableView:
    rows = []
    for row in table.rows:
        cells = (table.at(row, column) for column in table.columns)
        rows.append(Row(name(row), tuple(_taken(cell) for cell in cells)))
    return TableView("", tuple(map(Column, table.columns)), tuple(rows))


def _taken(cell: MeasuredCell | None) -> Entry:
    if cell is None or not cell.runs:
        return Entry()
    result = decode(cell.runs[0].result)
    speed, held = result.samples_per_second or 0.0, (result.memory_bytes or 0) / 1e6
    return Entry(f"{speed:,.0f} samples/s, {held:.2f} MB")


def _claims(judgements: Sequence[Judgement]) -> TableView:
    rows = []
    for judgement in judgements:
        claim = judgement.claim
        text = f"{claim.text} ({claim.source}.)" + (f" *{claim.note}*" if claim.note else "")
        found = Entry(judgement.verdict, style=("best",))
        first, *more = _evidence(judgement.findings) or [""]
        rows.append(Row(Entry(text), (found, Entry(first, below=tuple(more)))))
    columns = (Column("verdict"), Column("ours, with the 95 % interval"))
    return TableView("claim", columns, tuple(rows))


def _evidence(findings: Sequence[Finding]) -> list[str]:
    """The measured differences: all while they are few, else only those that do not hold."""
    measured = [finding for finding in findings if finding.difference is not None]
    shown = measured
    if len(measured) > MANY:
        shown = [finding for finding in measured if not finding.verdict.startswith("holds")]
    lines = []
    for finding in shown:
        d = finding.difference
        assert d is not None
        interval = f" [{signed(d.low, 1)}, {signed(d.high, 1)}]" if d.low != d.high else ""
        paper = f", paper {signed(finding.paper, 1)}" if finding.paper is not None else ""
        lines.append(f"`{finding.check.text}`: {signed(d.mean, 1)}{interval}{paper}: {finding.verdict}")
    rest = len(measured) - len(shown)
    lines += [f"{rest} more hold"] if rest else []
    return lines


def _mean(ours: Summary | None, digits: int = 2) -> Entry:
    if ours is None:
        return Entry("–")
    few = "" if ours.n == PAPER_SEEDS else f"(n = {ours.n})"
    return Entry(mean=ours.mean, std=ours.std, digits=digits, note=few)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m everlearn.paper.reproducibility", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--add",
        type=Path,
        nargs="+",
        default=[],
        metavar="STORE",
        help="stores to add to results/ first",
    )
    given = parser.parse_args(arguments)
    try:
        if given.add:
            for path in results.export(collect_runs(given.add), RESULTS):
                print(path)
        elif not RESULTS.is_dir():
            raise ValueError(f"there is no folder {RESULTS}/ here: run this at the root of the repository")
        PAGE.write_text(render(results.read(RESULTS)), "utf-8")
    except ValueError as error:
        print(f"everlearn: {error}", file=sys.stderr)
        return 2
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
