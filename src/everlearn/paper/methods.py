"""Methods side by side: how well they learn, what they cost and what they need, one row for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

from everlearn import learners
from everlearn.experiments.codec import StoredResult, decode
from everlearn.experiments.cost import images_per_new_image
from everlearn.experiments.significance import Summary, paired, summary
from everlearn.paper.formatting import p_value
from everlearn.paper.table_view import Column, Entry, Row, TableView, number_entry
from everlearn.paper.tables import MeasuredCell, Table

__all__ = ["Method", "frontier", "methods", "methods_view"]


@dataclasses.dataclass(frozen=True)
class Method:
    """One method in one column of a panel, with runs."""

    cell: MeasuredCell

    @property
    def name(self) -> str:
        """The name of its row."""
        return self.cell.cell.row

    @property
    def accuracy(self) -> float:
        """The mean accuracy at the end of the stream, in percent."""
        assert self.cell.ours is not None
        return self.cell.ours.mean

    @cached_property
    def cost(self) -> float:
        """Images that pass a network for each new image."""
        job = self.cell.cell.jobs[0]
        return images_per_new_image(job.learner, job.settings, job.batch_size or 10)

    @cached_property
    def results(self) -> list[StoredResult]:
        """The results of its runs."""
        return [decode(run.result) for run in self.cell.runs]

    def over_seeds(self, value: Callable[[StoredResult], float | None], scale: float = 1.0) -> Summary | None:
        """Mean and deviation of a value over its runs; None if a run does not have it."""
        found = [value(result) for result in self.results]
        return summary([scale * each for each in found if each is not None]) if None not in found else None


def methods(table: Table, column: str) -> list[Method]:
    """The methods that have runs in a column, the most accurate first."""
    cells = (table.at(row, column) for row in table.rows)
    found = [Method(cell) for cell in cells if cell is not None and cell.runs]
    return sorted(found, key=lambda method: -method.accuracy)


def frontier(found: list[Method]) -> list[Method]:
    """The methods that no other one beats at the same or a lower cost, from the cheapest on."""
    kept: list[Method] = []
    for method in sorted(found, key=lambda each: (each.cost, -each.accuracy)):
        if method.cost and (not kept or method.accuracy > kept[-1].accuracy):
            kept.append(method)
    return kept


def methods_view(table: Table, column: str) -> TableView:
    """Each method of a column: accuracies, a paired test against the best one, cost, memory and what it needs."""
    found = methods(table, column)
    rows = [Row(Entry(method.name), tuple(_entries(method, found[0]))) for method in found]
    return TableView("", COLUMNS, tuple(rows))


COLUMNS = tuple(
    Column(name)
    for name in (
        "accuracy",
        "p",
        "average anytime accuracy",
        "worst case",
        "forgetting",
        "images per new image",
        "samples/s",
        "MB",
        "task-free",
        "networks",
    )
)


def _entries(method: Method, best: Method) -> list[Entry]:
    against = paired(best.cell.accuracies, method.cell.accuracies) if method is not best else None
    kind: Any = learners.find(method.cell.learner)
    return [
        _percent(method.cell.ours),
        Entry("" if against is None else p_value(against.p)),
        _percent(method.over_seeds(lambda result: result.metrics["anytime_accuracy"], 100)),
        _percent(method.over_seeds(lambda result: result.metrics["worst_case_accuracy"], 100)),
        _percent(method.over_seeds(lambda result: result.metrics["forgetting"], 100)),
        number_entry(method.cost, 1),
        _number(method.over_seeds(lambda result: result.samples_per_second), 0),
        _number(method.over_seeds(lambda result: result.memory_bytes, 1e-6), 1),
        Entry("no" if "t" in kind.needs else "yes"),
        Entry(kind.networks),
    ]


def _percent(found: Summary | None) -> Entry:
    return Entry("–") if found is None else Entry(mean=found.mean, std=found.std, digits=1)


def _number(found: Summary | None, digits: int) -> Entry:
    return number_entry(None if found is None else found.mean, digits)
