"""The report: one self-contained HTML page, figures as PNG and SVG, tables as CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from everlearn.experiments.collect import collect_runs
from everlearn.experiments.store import Record
from everlearn.paper.claims import claims, judge
from everlearn.paper.experiment import Experiment, experiments
from everlearn.paper.report.exports import as_csv, as_json
from everlearn.paper.report.page import page
from everlearn.paper.report.pictures import pictures
from everlearn.paper.report.selection import known_and_shown, shown_of
from everlearn.paper.stored_experiments import definitions_of, fill_any
from everlearn.paper.tables import Table

__all__ = ["export_csv", "export_json", "shown_of", "tables_of", "write"]


def write(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write `report.html`, `figures/`, `tables.csv` and `tables.json` into the folder `out`; returns the page.

    stores: files of runs, or folders of results. papers: the experiments to show; by default those that were run into
    these stores, those of the package that have runs, and a table of all other runs.
    """
    records, filled, shown = _filled(stores, papers)
    if not shown:
        raise ValueError(
            f"there are no runs of {_names(filled)} in {' and '.join(map(str, stores))}; "
            "`everlearn reproduce` makes them"
        )
    out.mkdir(parents=True, exist_ok=True)
    drawn = {table.name: pictures(table, out / "figures") for table in shown}
    known = {table.experiment.name for table in filled}
    judged = [judge(claim, filled) for claim in claims()] if set(experiments()) <= known else []
    exports = {"csv": as_csv(shown), "json": as_json(shown)}
    for name, text in exports.items():
        (out / f"tables.{name}").write_text(text, "utf-8")
    target = out / "report.html"
    target.write_text(page(shown, drawn, judged, records, exports, filled), "utf-8")
    return target


def tables_of(stores: list[Path], papers: Sequence[Experiment] | None = None) -> list[Table]:
    """The tables that the report shows: those with runs."""
    return _filled(stores, papers)[2]


def export_csv(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write the tables as CSV, a line for each cell with runs."""
    return _written(out, as_csv(tables_of(stores, papers)))


def export_json(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write the tables as JSON, with the accuracy of every seed and the paired comparisons."""
    return _written(out, as_json(tables_of(stores, papers)))


def _filled(
    stores: list[Path], papers: Sequence[Experiment] | None
) -> tuple[list[Record], list[Table], list[Table]]:
    """The runs, all tables that they may belong to, and those to show."""
    records = collect_runs(stores)
    if papers is None:
        return records, *known_and_shown(records, definitions_of(stores))
    filled = [table for paper in papers for table in fill_any(paper, records)]
    return records, filled, shown_of(filled)


def _names(filled: Sequence[Table]) -> str:
    return ", ".join(dict.fromkeys(table.experiment.name for table in filled))


def _written(out: Path, text: str) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    return out
