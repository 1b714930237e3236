"""REPRODUCIBILITY.md from the runs in `results/`: every number of the paper, ours, and a verdict on every claim.

    python -m everlearn.paper.reproducibility            writes REPRODUCIBILITY.md
    python -m everlearn.paper.reproducibility --add runs/store.sqlite     takes over new runs first

Both are run where the folder `results/` lies.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from everlearn.experiments import results
from everlearn.experiments.collect import collect_runs
from everlearn.experiments.significance import Summary, welch
from everlearn.experiments.store import Record
from everlearn.paper.claims import Finding, Judgement, claims, judge
from everlearn.paper.experiment import Experiment
from everlearn.paper.report.figures import short
from everlearn.paper.report.formatting import number, proper, signed
from everlearn.paper.tables import MeasuredCell, Table, tables

__all__ = ["known_differences", "main", "render", "verdict"]

Known = dict[tuple[str, str, str], list[str]]

RESULTS, PAGE = Path("results"), Path("REPRODUCIBILITY.md")
PAPER_SEEDS = 5
NEGLIGIBLE = 0.5
"""Points that make no difference, however sure they are."""
MANY = 6
WITHIN_NOISE = "agrees within noise"

INTRODUCTION = """\
# Reproducibility

Every number of *Continual Prototype Evolution* (De Lange and Tuytelaars, ICCV 2021) beside ours, and a verdict on
every claim of its text. This page is made from the runs in `results/` by
`python -m everlearn.paper.reproducibility`; a test checks that it is up to date.

Accuracy is the unweighted mean over tasks at the end of the stream, on the full test set, in percent; ± is the
standard deviation over seeds. A number of ours **agrees** with the paper's if it lies inside the paper's mean ±
standard deviation, or less than half a point away; it agrees **within noise** if it lies outside, but Welch's t-test
over the seeds of both does not tell them apart (p ≥ 0.05); else it is **higher** or **lower**.

A claim **holds** where the 95 % interval of the difference, paired over seeds, lies above zero; by more or by less,
where the paper's number lies outside that interval; it is **unclear** where the interval has zero in it.
"""


def render(records: Sequence[Record]) -> str:
    """The page, from these runs."""
    filled = tables(records)
    known = known_differences()
    parts = [INTRODUCTION, _state(filled, records)]
    parts += ["## Claims\n", _claims([judge(claim, filled) for claim in claims()])]
    papers = {table.experiment.name: table.experiment for table in filled}
    for name, paper in papers.items():
        parts.append(_experiment(paper, [table for table in filled if table.experiment.name == name], known))
    return "\n".join(parts)


def _state(filled: Sequence[Table], records: Sequence[Record]) -> str:
    """How much there is, and where it ran."""
    # A figure repeats numbers of the tables.
    printed = [
        cell for table in filled if table.figure == "table" for cell in table.cells if cell.cell.published
    ]
    measured = [cell for cell in printed if cell.ours is not None]
    agreeing = sum(verdict(cell).startswith("agrees") for cell in measured)
    machines = sorted({f"everlearn {record.version} on {record.hardware}" for record in records})
    told = (
        f"{len(records):,} runs. Of {len(printed)} numbers that the paper prints, {len(measured)} are measured here, "
        f"and {agreeing} of these agree.\n"
    )
    return "\n".join([told, *(f"- {machine}" for machine in machines)]) + "\n"


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
    if p is None or p >= 0.05:
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
        elif table.resources:
            lines.append(_resources(table))
        elif any(cell.cell.published for cell in table.cells) and table.figure == "table":
            lines.append(_beside(table, known))
        else:
            lines.append(_ours(table))
    return "\n".join(lines)


def _beside(table: Table, known: Known) -> str:
    """Each number of the paper on a line of its own, with ours and the verdict."""
    lines = []
    for column, name in zip(table.columns, short(table.columns), strict=True):
        for row in table.rows:
            cell = table.at(row, column)
            if cell is None or cell.cell.published is None:
                continue
            paper = cell.cell.published
            lines.append(
                [
                    *(proper(word) for word in (name, row)),
                    _spread(paper.mean, paper.std),
                    _mean(cell.ours),
                    signed(cell.difference),
                    verdict(cell),
                    _told(cell, known.get((table.experiment.name, row, column), [])),
                ]
            )
    return _table([table.axis or "", "", "paper", "ours", "difference", "verdict", "what is known"], lines)


def _told(cell: MeasuredCell, known: Sequence[str]) -> str:
    """What is known of a difference; that nothing is, where one is sure."""
    found = verdict(cell)
    if found in ("higher", "lower"):
        return " ".join(known) or "Not explained so far."
    return " ".join(known) if found == WITHIN_NOISE else ""


def _ours(table: Table) -> str:
    """Our means; the paper's, where it prints one, behind a stroke."""
    lines = []
    for row in table.rows:
        cells = []
        for column in table.columns:
            cell = table.at(row, column)
            paper = cell.cell.published if cell is not None else None
            printed = f" / {number(paper.mean, 1)}" if paper is not None else ""
            cells.append("" if cell is None else _mean(cell.ours, 1) + printed)
        if table.averaged:
            across = table.across(row)
            cells.append(number(across.mean, 1) if across else "")
        lines.append([proper(row), *cells])
    mean = ["mean"] if table.averaged else []
    text = _table(["", *map(proper, short(table.columns)), *mean], lines)
    stroke = any(cell.cell.published for cell in table.cells)
    return text + ("\nAfter a stroke: the paper's, where it prints one.\n" if stroke else "")


def _resources(table: Table) -> str:
    lines = []
    for row in table.rows:
        cells = []
        for column in table.columns:
            cell = table.at(row, column)
            result = cell.runs[0].result if cell is not None and cell.runs else None
            cells.append(
                f"{result['samples_per_second']:,.0f} samples/s, {result['memory_bytes'] / 1e6:.2f} MB"
                if result
                else ""
            )
        lines.append([proper(row), *cells])
    return _table(["", *map(proper, table.columns)], lines)


def _claims(judgements: Sequence[Judgement]) -> str:
    lines = []
    for judgement in judgements:
        claim = judgement.claim
        told = f"{claim.text} ({claim.source}.)" + (f" *{claim.note}*" if claim.note else "")
        lines.append([told, f"**{judgement.verdict}**", _evidence(judgement.findings)])
    return _table(["claim", "verdict", "ours, with the 95 % interval"], lines)


def _evidence(findings: Sequence[Finding]) -> str:
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
    return "<br>".join(lines)


def _mean(ours: Summary | None, digits: int = 2) -> str:
    if ours is None:
        return "–"
    few = "" if ours.n == PAPER_SEEDS else f" (n = {ours.n})"
    return _spread(ours.mean, ours.std, digits) + few


def _spread(mean: float, std: float | None, digits: int = 2) -> str:
    return number(mean, digits) + (f" ± {number(std, digits)}" if std is not None else "")


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *([word.replace("|", "\\|") for word in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def known_differences() -> Known:
    """What is known where a number of ours differs: for experiment, row and column, sentences."""
    content = tomllib.loads(files("everlearn.paper").joinpath("differences.toml").read_text("utf-8"))
    known: Known = {}
    for entry in content["difference"]:
        for row in entry["rows"]:
            for column in entry["columns"]:
                known.setdefault((entry["experiment"], row, column), []).append(entry["known"])
    return known


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m everlearn.paper.reproducibility", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--add", type=Path, nargs="+", default=[], metavar="STORE", help="runs to take over first"
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
