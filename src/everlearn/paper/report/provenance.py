"""The parts of a number that comes from several cells: each cell by seed, a link to its runs, and its command."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from everlearn.experiments import significance
from everlearn.experiments.codec import decode
from everlearn.paper.claims import METRICS, UNTESTED, Check, Judgement, Side, cells_of
from everlearn.paper.formatting import number, signed
from everlearn.paper.report.runs import command_of
from everlearn.paper.report.tables import anchor, difference_anchor, mean_anchor
from everlearn.paper.table_view import Column, Entry, Row, TableView, name, number_entry
from everlearn.paper.tables import Comparison, MeasuredCell, Table

__all__ = ["Fold", "FoldGroup", "check_anchor", "parts_of_checks", "parts_of_table"]


class Part(NamedTuple):
    """A cell as a part of a number. link: the fold of its runs. values: what it adds to the number, by seed."""

    cell: MeasuredCell
    link: str
    values: Mapping[int, float]


@dataclasses.dataclass(frozen=True)
class Fold:
    """The parts of one number. title: what it is of; two are a difference. value: the number, as printed."""

    anchor: str
    title: tuple[Entry, ...]
    value: str
    table: TableView
    commands: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FoldGroup:
    """Folds with a title."""

    title: str
    folds: tuple[Fold, ...]


def parts_of_table(table: Table) -> list[FoldGroup]:
    """The parts of a table's means over columns, and of its paired differences."""
    if table.resources:
        return []
    means = [_mean(table, row) for row in table.rows if table.averaged and table.across(row) is not None]
    differences = [_difference(table, found) for found in table.comparisons()]
    groups = [FoldGroup("Means over the columns", tuple(means))]
    groups.append(FoldGroup("Paired differences", tuple(differences)))
    return [group for group in groups if group.folds]


def check_anchor(claim: int, check: int) -> str:
    """The id of the parts of a check on the page."""
    return f"check-{claim + 1}-{check + 1}"


def parts_of_checks(
    judgements: Sequence[Judgement], known: Sequence[Table], shown: Sequence[Table]
) -> list[FoldGroup]:
    """The parts of every check, by claim. known: where the cells are looked up; shown: where their runs are."""
    # A run is linked to the first table that shows it.
    links = {
        run.key: anchor(table, cell) for table in reversed(shown) for cell in table.cells for run in cell.runs
    }
    groups = []
    for place, judgement in enumerate(judgements):
        measured = [
            _check(check_anchor(place, row), finding.check, finding.difference.mean, known, links)
            for row, finding in enumerate(judgement.findings)
            if finding.difference is not None
        ]
        groups.append(FoldGroup(judgement.claim.text, tuple(measured)))
    return [group for group in groups if group.folds]


def _mean(table: Table, row: str) -> Fold:
    whole = table.seeds_across(row)
    cells = [cell for cell in table.cells if cell.cell.row == row]
    parts = [Part(cell, anchor(table, cell), _only(cell.accuracies, whole)) for cell in cells]
    mean = number(fmean(whole.values()))
    value = f"{mean}, {_seeds(len(whole))}"
    view = _view(parts, _foot("mean", parts, whole, mean))
    return _fold(mean_anchor(table, row), (name(row, method=row),), value, view, parts)


def _difference(table: Table, found: Comparison) -> Fold:
    one, other = found.against, found.cell
    seeds = one.accuracies.keys() & other.accuracies.keys()
    parts = [Part(cell, anchor(table, cell), _only(cell.accuracies, seeds)) for cell in (one, other)]
    whole = {seed: one.accuracies[seed] - other.accuracies[seed] for seed in seeds}
    mean = signed(found.difference.mean)
    title = tuple(name(_name(cell), method=cell.cell.row) for cell in (one, other))
    view = _view(parts, _foot("difference", parts, whole, mean))
    return _fold(difference_anchor(table, other), title, f"{mean}, {_seeds(len(seeds))}", view, parts)


def _check(place: str, check: Check, mean: float, known: Sequence[Table], links: Mapping[str, str]) -> Fold:
    a, b = (
        [
            Part(cell, links.get(cell.runs[0].key, ""), _values(side, cell))
            for cell in cells_of(side, known, check.text)
        ]
        for side in (check.a, check.b)
    )
    whole: dict[int, float] = {}
    spread = check.a.metric == "std"
    if not spread:  # a standard deviation is over all seeds of a cell
        a, b = _shared(a), _shared(b)
    if check.a.metric not in UNTESTED:
        both = _shared([*a, *b])
        a, b = both[: len(a)], both[len(a) :]
        whole = {
            seed: fmean(part.values[seed] for part in a) - fmean(part.values[seed] for part in b)
            for seed in both[0].values
        }
    parts = [*a, *b]
    view = _view(parts, _foot("difference", parts, whole, signed(mean)), spread)
    return _fold(place, (Entry(check.text, style=("code",)),), signed(mean), view, parts)


def _values(side: Side, cell: MeasuredCell) -> dict[int, float]:
    if side.metric == "std":
        return cell.accuracies
    return {run.job["seed"]: METRICS[side.metric](decode(run.result)) for run in cell.runs}


def _shared(parts: Sequence[Part]) -> list[Part]:
    """The parts with only the seeds that all of them have."""
    seeds = set.intersection(*(set(part.values) for part in parts))
    return [part._replace(values=_only(part.values, seeds)) for part in parts]


def _only(values: Mapping[int, float], seeds: Iterable[int]) -> dict[int, float]:
    return {seed: values[seed] for seed in sorted(seeds)}


def _fold(place: str, title: tuple[Entry, ...], value: str, view: TableView, parts: Sequence[Part]) -> Fold:
    return Fold(place, title, value, view, tuple(command_of(part.cell.runs) for part in parts))


def _view(parts: Sequence[Part], foot: Row, spread: bool = False) -> TableView:
    """A row for each part. spread: whether the last column is the standard deviation over seeds, not the mean."""
    seeds = _seeds_of(parts)
    columns = [*(Column(f"seed {seed}") for seed in seeds), Column("std" if spread else "mean", starts=True)]
    rows = []
    for part in parts:
        summary = significance.summary(list(part.values.values()))
        last = None if summary is None else summary.std if spread else summary.mean
        row = part.cell.cell.row
        entries = [*(number_entry(part.values.get(seed)) for seed in seeds), number_entry(last)]
        rows.append(Row(name(_name(part.cell), part.link, method=row, sort=row), tuple(entries)))
    return TableView("cell", tuple(columns), tuple(rows), foot)


def _foot(title: str, parts: Sequence[Part], whole: Mapping[int, float], value: str) -> Row:
    """The number itself, and its value for each seed where it has one."""
    show = signed if title == "difference" else number
    cells = [Entry(show(whole[seed]) if seed in whole else "") for seed in _seeds_of(parts)]
    return Row(Entry(title), (*cells, Entry(value)))


def _seeds_of(parts: Sequence[Part]) -> list[int]:
    return sorted({seed for part in parts for seed in part.values})


def _name(measured: MeasuredCell) -> str:
    """Row and column, and the stream where neither names it."""
    title = f"{measured.cell.row}, {measured.cell.column}"
    return title if measured.stream in title else f"{title}, {measured.stream}"


def _seeds(count: int) -> str:
    return f"over {count} seed{'s' * (count > 1)}"
