"""What an experiment measured, as tables, figures and a report."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from everlearn.experiments.job import key
from everlearn.experiments.store import Store
from everlearn.paper.experiment import Experiment
from everlearn.paper.paper_figures import write_figures
from everlearn.paper.paper_tables import (
    NOTE,
    check_metrics,
    metric_view,
    metrics_of,
    stored_values,
    tables_as_latex,
    tables_as_markdown,
)
from everlearn.paper.tables import Comparison, Table, fill
from everlearn.paper.writers import to_csv, to_terminal
from everlearn.plots.column_figure import COLUMN

__all__ = ["ExperimentResult"]

Target = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, repr=False)
class ExperimentResult:
    """What an experiment measured: tables, paired tests, figures and a report, all from the store."""

    experiment: Experiment
    store: Path

    @functools.cached_property
    def table(self) -> Table:
        """The table of all cells, filled from the store."""
        wanted = {key(job) for job in self.experiment.jobs()}
        records = [record for record in Store(self.store).records() if record.key in wanted]
        return fill(self.experiment, records)[0]

    @property
    def metrics(self) -> list[str]:
        """The metrics that were measured."""
        return metrics_of(self.table)

    def per_seed(self, learner: str, stream: str, metric: str = "accuracy") -> dict[int, float]:
        """A metric for each seed: fractions for the library's metrics."""
        cell = self.table.at(learner, stream)
        if cell is None:
            raise ValueError(f"there is no run of {learner!r} on {stream!r}")
        return stored_values(cell, *self._known(metric))

    def mean(self, learner: str, stream: str, metric: str = "accuracy") -> float:
        """The mean of a metric over seeds."""
        found = self.per_seed(learner, stream, metric)
        return sum(found.values()) / len(found) if found else float("nan")

    def comparisons(self) -> list[Comparison]:
        """The difference of `against` to each other learner, paired over seeds, with p-values adjusted by Holm."""
        return self.table.comparisons()

    @property
    def errors(self) -> dict[str, str]:
        """The error of each cell with failed runs."""
        return {
            f"{cell.cell.row} on {cell.cell.column}": cell.failed[0].error or ""
            for cell in self.table.cells
            if cell.failed
        }

    def to_latex(
        self,
        path: Target | None = None,
        metrics: Sequence[str] = ("accuracy",),
        names: Mapping[str, str] | None = None,
    ) -> str:
        """Tables for LaTeX with booktabs, written to a file if a path is given. names: of rows and columns."""
        return _written(path, tables_as_latex([self.table], self._known(metrics), names))

    def to_markdown(
        self,
        path: Target | None = None,
        metrics: Sequence[str] = ("accuracy",),
        names: Mapping[str, str] | None = None,
    ) -> str:
        """Tables in Markdown, written to a file if a path is given."""
        return _written(path, tables_as_markdown([self.table], self._known(metrics), names))

    def to_csv(self, path: Target | None = None, metric: str = "accuracy") -> str:
        """The table of one metric as CSV, written to a file if a path is given."""
        return _written(path, to_csv(metric_view(self.table, metric)))

    def figures(
        self,
        folder: Target,
        suffix: str = "pdf",
        width: float = COLUMN,
        names: Mapping[str, str] | None = None,
        colours: Mapping[str, str] | None = None,
    ) -> list[Path]:
        """Curves over the stream in a column's width, in inches; suffix: pdf, svg or png."""
        return write_figures([self.table], Path(folder), suffix, width, names, colours)

    def report(self, folder: Target) -> Path:
        """The page with tables, figures, paired tests and every run; returns its file."""
        from everlearn.paper.report import write

        return write([self.store], Path(folder), [self.experiment])

    def _known(self, metrics: str | Sequence[str]) -> list[str]:
        several = [metrics] if isinstance(metrics, str) else list(metrics)
        check_metrics([self.table], several)
        return several

    def __repr__(self) -> str:
        """The table of accuracies as text."""
        from rich.console import Console

        console = Console(width=110, record=True, file=open(os.devnull, "w"), color_system=None)  # noqa: SIM115
        with console.file:
            console.print(to_terminal(metric_view(self.table)))
            failed = "".join(f"\nfailed: {cell}: {error}" for cell, error in self.errors.items())
            return console.export_text() + NOTE + failed

    def _repr_html_(self) -> str:
        from everlearn.paper.report.html import table_html

        return table_html(metric_view(self.table))


def _written(path: Target | None, text: str) -> str:
    if path is not None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    return text
