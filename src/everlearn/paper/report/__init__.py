"""The report: one self-contained HTML page, figures as PNG and SVG, tables as CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from everlearn.experiments.collect import collect_runs
from everlearn.experiments.store import Record
from everlearn.paper.claims import claims, judge
from everlearn.paper.experiment import Experiment, experiments
from everlearn.paper.other_runs import other_runs
from everlearn.paper.report.exports import as_csv, as_json
from everlearn.paper.report.page import page
from everlearn.paper.report.pictures import pictures
from everlearn.paper.tables import Table, tables

__all__ = ["export_csv", "export_json", "tables_of", "write"]


def write(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write `report.html`, `figures/`, `tables.csv` and `tables.json` into the folder `out`; returns the page.

    stores: files of runs, or folders of results. papers: the experiments to show; by default the paper's, and
    a table of all other runs.
    """
    records, filled = _filled(stores, papers)
    shown = shown_of(filled)
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
    return shown_of(_filled(stores, papers)[1])


def export_csv(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write the tables as CSV, a line for each cell with runs."""
    return _written(out, as_csv(shown_of(_filled(stores, papers)[1])))


def export_json(stores: list[Path], out: Path, papers: Sequence[Experiment] | None = None) -> Path:
    """Write the tables as JSON, with the accuracy of every seed and the paired comparisons."""
    return _written(out, as_json(shown_of(_filled(stores, papers)[1])))


def _filled(stores: list[Path], papers: Sequence[Experiment] | None) -> tuple[list[Record], list[Table]]:
    records = collect_runs(stores)
    filled = tables(records, papers)
    return records, filled if papers is not None else [*filled, *other_runs(records, filled)]


def shown_of(filled: Sequence[Table]) -> list[Table]:
    """The tables with runs, without those whose runs are all in another table too.

    Experiments share cells: without this, the runs of Table 2 alone would also fill a corner of five other tables.
    A table of the paper is never left out for one that is not the paper's.
    """
    keys = [{run.key for cell in table.cells for run in (*cell.runs, *cell.failed)} for table in filled]
    return [
        table
        for place, table in enumerate(filled)
        if keys[place]
        and not any(
            keys[place] < other or (keys[place] == other and before < place)
            for before, other in enumerate(keys)
            if filled[before].experiment.source or not table.experiment.source
        )
    ]


def _names(filled: Sequence[Table]) -> str:
    return ", ".join(dict.fromkeys(table.experiment.name for table in filled))


def _written(out: Path, text: str) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, "utf-8")
    return out
