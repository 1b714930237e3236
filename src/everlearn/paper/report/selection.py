"""Which tables a report shows: the user's own, those of the package that were run, and all other runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from everlearn.experiments.options import SweepOptions
from everlearn.experiments.record import Record
from everlearn.experiments.results import MINIATURE
from everlearn.paper.experiment import Experiment, experiment
from everlearn.paper.other_runs import other_runs
from everlearn.paper.stored_experiments import built_in, fill_any, run_by_name, stored_experiments
from everlearn.paper.tables import QUICK, Table

__all__ = ["known_and_shown", "shown_of"]


def known_and_shown(
    records: Sequence[Record], definitions: Sequence[Mapping[str, Any]]
) -> tuple[list[Table], list[Table]]:
    """All tables that these runs could belong to, and those of them to show, with a table of all other runs.

    The user's own come first. A table of the package is shown if it was run as such, or if it shows a run that the
    tables above it do not; a small one only if most of its cells have runs, since anybody's runs fill a corner of it.
    """
    own = [table for each in stored_experiments(definitions) for table in fill_any(each, records)]
    known = [table for each in _of_the_package(records) for table in fill_any(each, records)]
    ran = run_by_name(definitions)
    covered = set().union(*map(_keys, own), *(_keys(table) for table in known if _name(table) in ran))
    likely = [table for table in known if _keys(table) - covered and _is_likely(table)]
    chosen = {table.name for table in shown_of(likely)}
    shown = [table for table in own if table.measured]
    shown += [t for t in known if t.measured and (_name(t) in ran or t.name in chosen)]
    rest = other_runs(records, shown)
    return [*own, *known, *rest], [*shown, *rest]


def _of_the_package(records: Sequence[Record]) -> list[Experiment]:
    """The experiments of the package, and their small versions if there are runs on the small stream."""
    found = [experiment(name) for name in built_in()]
    if any(record.job["stream"] == MINIATURE for record in records):
        small = (experiment(name, SweepOptions(quick=True)) for name in built_in())
        found += [dataclasses.replace(each, name=f"{each.name}{QUICK}") for each in small]
    return found


def _is_likely(table: Table) -> bool:
    """Whether its runs are probably runs of it; those of a small version may be anything on the small stream."""
    measured = sum(bool(cell.runs or cell.failed) for cell in table.cells)
    return not _name(table).endswith(QUICK) or 2 * measured > len(table.cells)


def _name(table: Table) -> str:
    return table.experiment.name


def _keys(table: Table) -> set[str]:
    return {run.key for cell in table.cells for run in (*cell.runs, *cell.failed)}


def shown_of(filled: Sequence[Table]) -> list[Table]:
    """The tables with runs, without those whose runs are all in another table too.

    Experiments share cells: without this, the runs of Table 2 alone would also fill a corner of five other tables.
    A table of the paper is never left out for one that is not the paper's.
    """
    keys = [_keys(table) for table in filled]
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
