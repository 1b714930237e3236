"""Results as tables, pictures and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everlearn.engine.result import Result
    from everlearn.experiments.job import Job


# Fields of a job that have their own field in the summary.
ELSEWHERE = ("learner", "stream", "seed", "settings")


def summary(results: Sequence[Result], job: Job | None = None) -> dict[str, Any]:
    """What `--json` prints for the runs of one learner on one stream; the settings include the options of the job."""
    from everlearn import learners

    conditions = {} if job is None else job.plain()
    scenario = None if job is None else learners.find(job.learner).scenario
    conditions |= {} if scenario is None else {"scenario": scenario}
    metrics = ("accuracy", "anytime_accuracy", "worst_case_accuracy", "forgetting")
    held_out = bool(results[0].history)  # a stream of records has no test set
    summarised = {
        "learner": results[0].learner,
        "stream": results[0].stream,
        "seeds": [result.seed for result in results],
        **{
            metric: _spread([getattr(result, metric) for result in results]) if held_out else None
            for metric in metrics
        },
        "memory_bytes": results[0].memory_bytes,
        "samples_per_second": sum(result.samples_per_second for result in results) / len(results),
        "settings": results[0].settings
        | {name: value for name, value in conditions.items() if value is not None and name not in ELSEWHERE},
    }
    if results[0].metrics:
        own = results[0].metrics
        summarised["metrics"] = {name: _spread([run.metrics[name] for run in results]) for name in own}
    if results[0].sizes:
        summarised["prequential_accuracy"] = _spread([result.prequential_accuracy for result in results])
        summarised["missed_samples"] = [result.missed for result in results]
    return summarised


def as_json(value: Any) -> str:
    """A value as JSON, which has no nan: null stands for a number that is not defined.

    >>> as_json({"mean": float("nan"), "per_seed": [0.5, float("nan")]})
    '{"mean": null, "per_seed": [0.5, null]}'
    """
    return json.dumps(_without_nan(value))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _spread(values: list[float]) -> dict[str, Any]:
    from statistics import mean, stdev

    return {"mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0, "per_seed": values}


def print_table(results: dict[str, list[Result]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("learner")
    columns = {
        "accuracy": "accuracy %",
        "anytime_accuracy": "anytime %",
        "worst_case_accuracy": "worst case %",
        "forgetting": "forgetting %",
        "prequential_accuracy": "prequential %",
    }
    summaries = {name: summary(runs) for name, runs in results.items()}
    measured = [metric for metric in columns if all(numbers.get(metric) for numbers in summaries.values())]
    own = list(next(iter(results.values()))[0].metrics)
    for column in (*(columns[metric] for metric in measured), *own, "memory", "samples/s"):
        table.add_column(column, justify="right")
    for name, numbers in summaries.items():
        cells = [numbers[metric] for metric in measured]
        shown = [_shown(cell, lambda value: f"{100 * value:.2f}") for cell in cells]
        of_own = [numbers["metrics"][metric] for metric in own]
        shown += [_shown(cell, lambda value: f"{value:.4g}") for cell in of_own]
        table.add_row(
            name, *shown, f"{numbers['memory_bytes'] / 1e6:.2f} MB", f"{numbers['samples_per_second']:,.0f}"
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def seeds_line(seeds: int) -> str:
    """What the numbers of a table are, by the number of seeds."""
    return f"{seeds} seeds, mean ± std" if seeds > 1 else "1 seed"


def _shown(cell: dict[str, Any], printed: Callable[[float], str]) -> str:
    """Mean ± standard deviation; of one seed, its value alone."""
    mean = printed(cell["mean"])
    return f"{mean} ± {printed(cell['std'])}" if len(cell["per_seed"]) > 1 else mean


def settings_line(settings: dict[str, Any], learner: str) -> str:
    """The settings of a run that are not the learner's own defaults, as text.

    >>> settings_line({"network": "mlp", "momentum": 0.9, "temperature": 0.1, "renormalise": True}, "cope")
    'settings: network mlp, momentum 0.9, renormalise True; all others are the defaults of cope'
    """
    from everlearn import learners

    defaults = {field.name: field.default for field in fields(learners.find(learner).Settings)}
    own = [f"{name} {value}" for name, value in settings.items() if value != defaults.get(name, ())]
    return f"settings: {', '.join(own)}; all others are the defaults of {learner}"


def draw_pictures(
    results: dict[str, list[Result]], folder: Path, few: bool = False, variant: str = ""
) -> list[Path]:
    """Draw all pictures that the results allow.

    few: draw the two most important ones only. variant: of the stream, for the file names.
    """
    from everlearn import plots
    from everlearn.experiments.names import file_name

    histories = {name: [run.history for run in runs] for name, runs in results.items()}
    evaluations = [each for runs in histories.values() for history in runs for each in history]
    if not evaluations:
        return []
    stem = "-".join([*results, next(iter(results.values()))[0].stream, *([variant] if variant else [])])

    def path(what: str) -> Path:
        return folder / f"{file_name(f'{stem}-{what}')}.png"

    pictures = [
        plots.accuracy_over_stream(histories, path("accuracy")),
        plots.confusion_matrices(histories, path("confusion")),
    ]
    if few:
        return pictures
    pictures.append(plots.accuracy_per_task(histories, path("per-task")))
    pictures.append(plots.anytime_accuracy_over_stream(histories, path("anytime")))
    if any(evaluation.exemplars for evaluation in evaluations):
        pictures.append(plots.memory_over_stream(histories, path("memory")))
    if any(evaluation.prototype_shift for evaluation in evaluations):
        pictures.append(plots.drift_over_stream(histories, path("drift")))
    for name, runs in results.items():
        if runs[0].embedding is not None:
            pictures.append(plots.embedding_plane(*runs[0].embedding, path(f"embedding-of-{name}")))
    return pictures
