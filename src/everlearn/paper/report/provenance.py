"""What a number of several cells is made of: each cell seed by seed, the way to its runs, and its command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import NamedTuple

from everlearn.experiments import significance
from everlearn.paper.claims import METRICS, UNTESTED, Check, Judgement, Side, cells_of
from everlearn.paper.report.formatting import in_html, number, signed
from everlearn.paper.report.runs import command_of
from everlearn.paper.report.tables import anchor, difference_anchor, dot, head, mean_anchor, table_of
from everlearn.paper.tables import Comparison, MeasuredCell, Table

__all__ = ["behind_checks", "behind_table", "check_anchor"]


class Part(NamedTuple):
    """A cell as a part of a number. link: the fold of its runs. values: what it gives to the number, by seed."""

    cell: MeasuredCell
    link: str
    values: Mapping[int, float]


def behind_table(table: Table) -> str:
    """The parts of a table's means over columns and of its paired differences, a fold for each."""
    if table.resources:
        return ""
    means = [_mean(table, row) for row in table.rows if table.averaged and table.across(row) is not None]
    differences = [_difference(table, found) for found in table.comparisons()]
    return _folds("Means over the columns", means) + _folds("Paired differences", differences)


def check_anchor(claim: int, check: int) -> str:
    """Where the parts of a check stand on the page."""
    return f"check-{claim + 1}-{check + 1}"


def behind_checks(judgements: Sequence[Judgement], known: Sequence[Table], shown: Sequence[Table]) -> str:
    """The parts of every check, by claim. known: where the cells are looked up; shown: where their runs stand."""
    # The first table that shows a run is the one it is linked to.
    links = {
        run.key: anchor(table, cell) for table in reversed(shown) for cell in table.cells for run in cell.runs
    }
    folds = ""
    for place, judgement in enumerate(judgements):
        measured = [
            _check(check_anchor(place, row), finding.check, finding.difference.mean, known, links)
            for row, finding in enumerate(judgement.findings)
            if finding.difference is not None
        ]
        folds += _folds(in_html(judgement.claim.text), measured)
    return f"<h3>What the paper says, checked</h3>{folds}"


def _folds(title: str, folds: Sequence[str]) -> str:
    if not folds:
        return ""
    count = f'<span class="quiet">{len(folds)}</span>'
    return f"<details><summary>{title} {count}</summary>{''.join(folds)}</details>"


def _mean(table: Table, row: str) -> str:
    whole = table.seeds_across(row)
    cells = [cell for cell in table.cells if cell.cell.row == row]
    parts = [Part(cell, anchor(table, cell), _only(cell.accuracies, whole)) for cell in cells]
    mean = fmean(whole.values())
    title = f'{dot(row)}{in_html(row)} <span class="quiet">{number(mean)}, {_seeds(len(whole))}</span>'
    return _fold(mean_anchor(table, row), title, parts, _foot("mean", parts, whole, number(mean)))


def _difference(table: Table, found: Comparison) -> str:
    one, other = found.against, found.cell
    seeds = one.accuracies.keys() & other.accuracies.keys()
    parts = [Part(cell, anchor(table, cell), _only(cell.accuracies, seeds)) for cell in (one, other)]
    whole = {seed: one.accuracies[seed] - other.accuracies[seed] for seed in seeds}
    mean = signed(found.difference.mean)
    title = (
        f"{dot(one.cell.row)}{_name(one)} less {dot(other.cell.row)}{_name(other)} "
        f'<span class="quiet">{mean}, {_seeds(len(seeds))}</span>'
    )
    foot = _foot("difference", parts, whole, mean)
    return _fold(difference_anchor(table, other), title, parts, foot)


def _check(place: str, check: Check, mean: float, known: Sequence[Table], links: Mapping[str, str]) -> str:
    a, b = (
        [
            Part(cell, links[cell.runs[0].key], _values(side, cell))
            for cell in cells_of(side, known, check.text)
        ]
        for side in (check.a, check.b)
    )
    whole: dict[int, float] = {}
    spread = check.a.metric == "std"
    if not spread:  # a spread is of all seeds that a cell has
        a, b = _shared(a), _shared(b)
    if check.a.metric not in UNTESTED:
        both = _shared([*a, *b])
        a, b = both[: len(a)], both[len(a) :]
        whole = {
            seed: fmean(part.values[seed] for part in a) - fmean(part.values[seed] for part in b)
            for seed in both[0].values
        }
    title = f'<code>{escape(check.text)}</code> <span class="quiet">{signed(mean)}</span>'
    return _fold(place, title, [*a, *b], _foot("difference", [*a, *b], whole, signed(mean)), spread)


def _values(side: Side, cell: MeasuredCell) -> dict[int, float]:
    if side.metric == "std":
        return cell.accuracies
    return {run.job["seed"]: METRICS[side.metric](run.result) for run in cell.runs if run.result}


def _shared(parts: Sequence[Part]) -> list[Part]:
    """With the seeds alone that all of them have."""
    seeds = set.intersection(*(set(part.values) for part in parts))
    return [part._replace(values=_only(part.values, seeds)) for part in parts]


def _only(values: Mapping[int, float], seeds: Iterable[int]) -> dict[int, float]:
    return {seed: values[seed] for seed in sorted(seeds)}


def _fold(place: str, title: str, parts: Sequence[Part], foot: str, spread: bool = False) -> str:
    """spread: whether the last column is the deviation over seeds, not the mean."""
    seeds = _seeds_of(parts)
    heads = [
        head("cell"),
        *(head(f"seed {seed}") for seed in seeds),
        head("std" if spread else "mean", "first"),
    ]
    rows = []
    for part in parts:
        summary = significance.summary(list(part.values.values()))
        last = None if summary is None else summary.std if spread else summary.mean
        cells = "".join(_number(part.values.get(seed)) for seed in seeds) + _number(last, "first")
        name = f'{dot(part.cell.cell.row)}<a href="#{part.link}">{_name(part.cell)}</a>'
        rows.append(f'<tr><th scope="row" data-value="{escape(part.cell.cell.row)}">{name}</th>{cells}</tr>')
    commands = "".join(command_of(part.cell.runs) for part in parts)
    return (
        f'<details id="{place}"><summary>{title}</summary>'
        f"{table_of(['<tr>', *heads, '</tr>'], rows, foot)}{commands}</details>"
    )


def _foot(name: str, parts: Sequence[Part], whole: Mapping[int, float], value: str) -> str:
    """The number itself, and where it is one by one, for each seed."""
    show = signed if name == "difference" else number
    cells = "".join(f"<td>{show(whole[seed]) if seed in whole else ''}</td>" for seed in _seeds_of(parts))
    return f'<tr><th scope="row">{name}</th>{cells}<td class="first">{value}</td></tr>'


def _seeds_of(parts: Sequence[Part]) -> list[int]:
    return sorted({seed for part in parts for seed in part.values})


def _name(measured: MeasuredCell) -> str:
    """Row and column, and the stream where neither tells it."""
    name = f"{measured.cell.row}, {measured.cell.column}"
    return in_html(name if measured.stream in name else f"{name}, {measured.stream}")


def _seeds(count: int) -> str:
    return f"over {count} seed{'s' * (count > 1)}"


def _number(value: float | None, kind: str = "") -> str:
    return f'<td class="{kind}" data-value="{"" if value is None else value}">{number(value)}</td>'
