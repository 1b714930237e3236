"""The paper's tables filled with our runs: every cell has our number and the paper's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from everlearn.experiments import significance
from everlearn.experiments.codec import decode
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.record import Record
from everlearn.experiments.results import MINIATURE
from everlearn.experiments.significance import Difference, Summary
from everlearn.paper.experiment import Cell, Experiment, experiment, experiments, key

__all__ = ["QUICK", "Comparison", "MeasuredCell", "Table", "fill", "percent", "tables"]

QUICK = "-quick"
"""The suffix of the name of a small experiment."""


@dataclasses.dataclass(frozen=True)
class MeasuredCell:
    """A cell of the paper with our runs of it. Accuracies are in percent.

    runs: those that succeeded, by seed. failed: the others. metric: what it shows.
    """

    cell: Cell
    runs: tuple[Record, ...]
    failed: tuple[Record, ...]
    metric: str = "accuracy"

    @cached_property
    def accuracies(self) -> dict[int, float]:
        """The accuracy at the end, or another metric, for each seed."""
        return percent(self.runs, self.metric)

    @cached_property
    def ours(self) -> Summary | None:
        """Mean and deviation over our seeds."""
        return significance.summary(list(self.accuracies.values()))

    @property
    def difference(self) -> float | None:
        """Our mean less the paper's, in points."""
        if self.ours is None or self.cell.published is None:
            return None
        return self.ours.mean - self.cell.published.mean

    @property
    def outside(self) -> bool:
        """Whether our mean, as printed, lies outside the paper's mean ± its standard deviation."""
        if self.difference is None or self.cell.published is None or self.cell.published.std is None:
            return False
        # Both are compared as printed, with two decimals: float noise does not count.
        return round(abs(self.difference), 2) > round(self.cell.published.std, 2)

    @property
    def learner(self) -> str:
        """The learner of this cell; the name of the row if the learner is not implemented."""
        jobs = [job.learner for job in self.cell.jobs] or [
            run.job["learner"] for run in (*self.runs, *self.failed)
        ]
        return str(jobs[0]) if jobs else self.cell.row

    @property
    def stream(self) -> str:
        """The stream of this cell."""
        jobs = [job.stream for job in self.cell.jobs] or [
            run.job["stream"] for run in (*self.runs, *self.failed)
        ]
        return str(jobs[0]) if jobs else self.cell.column


@dataclasses.dataclass(frozen=True)
class Comparison:
    """One of our cells compared with another, paired over seeds. p is adjusted for the number of comparisons."""

    cell: MeasuredCell
    against: MeasuredCell
    difference: Difference


@dataclasses.dataclass(frozen=True)
class Table:
    """One panel of an experiment, filled. position: its place in the experiment."""

    experiment: Experiment
    position: int
    cells: tuple[MeasuredCell, ...]

    @property
    def title(self) -> str:
        """What the panel shows."""
        return self.experiment.panels[self.position].title

    @property
    def figure(self) -> str:
        """How it is drawn: table, lines or bars."""
        return self.experiment.panels[self.position].figure

    @property
    def axis(self) -> str | None:
        """What its columns are."""
        return self.experiment.panels[self.position].axis

    @property
    def resources(self) -> bool:
        """Whether it shows the time and memory of its runs instead of their accuracy."""
        return self.experiment.panels[self.position].measure == "resources"

    @property
    def name(self) -> str:
        """A name for files and links, such as `buffer-2`; an experiment of one panel needs no number."""
        single = len(self.experiment.panels) == 1
        return self.experiment.name if single else f"{self.experiment.name}-{self.position + 1}"

    @property
    def rows(self) -> list[str]:
        """Rows in order."""
        return list(dict.fromkeys(measured.cell.row for measured in self.cells))

    @property
    def columns(self) -> list[str]:
        """Columns in order."""
        return list(dict.fromkeys(measured.cell.column for measured in self.cells))

    @property
    def filled_columns(self) -> list[str]:
        """Columns with runs that succeeded, in order."""
        return [
            column for column in self.columns if any(c.runs for c in self.cells if c.cell.column == column)
        ]

    def at(self, row: str, column: str) -> MeasuredCell | None:
        """The cell at this place."""
        return self._places.get((row, column))

    @cached_property
    def _places(self) -> dict[tuple[str, str], MeasuredCell]:
        return {(measured.cell.row, measured.cell.column): measured for measured in self.cells}

    @property
    def measured(self) -> bool:
        """Whether there is a run of it."""
        return any(measured.runs or measured.failed for measured in self.cells)

    @property
    def learners(self) -> list[str]:
        """The learners of its cells, in order."""
        return list(dict.fromkeys(measured.learner for measured in self.cells))

    def turned(self) -> Table:
        """The same cells with rows and columns exchanged."""
        turned = [
            dataclasses.replace(
                measured,
                cell=dataclasses.replace(measured.cell, row=measured.cell.column, column=measured.cell.row),
            )
            for measured in self.cells
        ]
        order = {column: place for place, column in enumerate(self.columns)}
        turned.sort(key=lambda measured: order[measured.cell.row])
        return dataclasses.replace(self, cells=tuple(turned))

    @property
    def averaged(self) -> bool:
        """Whether the columns are of one kind, so that a row's mean over them is meaningful."""
        return len(self.columns) > 1 and self.figure != "table"

    def across(self, row: str) -> Summary | None:
        """A row's mean over all columns, and its deviation over seeds, where every column has the seed."""
        return significance.summary(list(self.seeds_across(row).values()))

    def seeds_across(self, row: str) -> dict[int, float]:
        """A row's mean over all columns, for each seed that every column has."""
        cells = [measured.accuracies for measured in self.cells if measured.cell.row == row]
        seeds = set.intersection(*(set(cell) for cell in cells)) if cells else set()
        return {seed: sum(cell[seed] for cell in cells) / len(cells) for seed in sorted(seeds)}

    def comparisons(self) -> list[Comparison]:
        """The reference (CoPE) against each other row where there are several learners, else the benchmark's cell.

        Within a column, or a stream, p is adjusted for the number of comparisons in it (Holm).
        """
        if self.resources:
            return []
        found: list[Comparison] = []
        for against, others in self._pairings():
            pairs = [(other, significance.paired(against.accuracies, other.accuracies)) for other in others]
            tested = [(other, difference) for other, difference in pairs if difference is not None]
            p_values = significance.holm([difference.p for _, difference in tested])
            found += [
                Comparison(other, against, difference._replace(p=p))
                for (other, difference), p in zip(tested, p_values, strict=True)
            ]
        return found

    def _pairings(self) -> Iterator[tuple[MeasuredCell, list[MeasuredCell]]]:
        """A reference cell, and the cells that are compared with it."""
        several = len(self.learners) > 1
        groups: dict[object, list[MeasuredCell]] = {}
        for cell in self.cells:
            groups.setdefault(cell.cell.column if several else cell.stream, []).append(cell)
        for cells in groups.values():
            reference_row = self.experiment.panels[self.position].reference
            is_reference = (lambda cell, row=reference_row: cell.cell.row == row) if several else _plain
            reference = next(filter(is_reference, cells), None)
            if reference is not None:
                yield reference, [cell for cell in cells if cell is not reference]


def _plain(measured: MeasuredCell) -> bool:
    """Whether a cell has the benchmark's own settings."""
    job = next(iter(measured.cell.jobs), None)
    return job is not None and key(job) == key(dataclasses.replace(job, settings={}, batch_size=10))


def percent(runs: Iterable[Record], metric: str) -> dict[int, float]:
    """A metric of each run in percent, by seed, where it is defined."""
    values = {run.job["seed"]: decode(run.result).metrics.get(metric) for run in runs}
    return {seed: 100 * value for seed, value in sorted(values.items()) if value is not None}


def fill(paper: Experiment, records: Sequence[Record]) -> list[Table]:
    """The panels of an experiment with the runs of their cells, for all seeds."""
    by_key = {record.key: record for record in records}
    seeds = sorted({int(record.job["seed"]) for record in records})

    def measured(cell: Cell) -> MeasuredCell:
        jobs = {key(dataclasses.replace(job, seed=seed)) for job in cell.jobs[:1] for seed in seeds}
        found = sorted((by_key[name] for name in jobs & by_key.keys()), key=lambda record: record.job["seed"])
        done = tuple(record for record in found if record.error is None)
        return MeasuredCell(cell, done, tuple(record for record in found if record.error is not None))

    return [
        Table(paper, position, tuple(measured(cell) for cell in panel.cells))
        for position, panel in enumerate(paper.panels)
    ]


def tables(records: Sequence[Record], papers: Sequence[Experiment] | None = None) -> list[Table]:
    """All panels of all experiments, filled with these runs.

    By default the experiments are the paper's, and their small versions if there are runs of them.
    """
    if papers is None:
        papers = [experiment(name) for name in experiments()]
        if any(record.job["stream"] == MINIATURE for record in records):
            papers = [*papers, *(_in_small(name) for name in experiments())]
    return [table for paper in papers for table in fill(paper, records)]


def _in_small(name: str) -> Experiment:
    return dataclasses.replace(experiment(name, SweepOptions(quick=True)), name=f"{name}{QUICK}")
