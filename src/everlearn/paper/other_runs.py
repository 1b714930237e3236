"""Tables of the runs that belong to no experiment, so that the report shows every run of a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everlearn.experiments.codec import PREQUENTIAL
from everlearn.experiments.store import Record
from everlearn.paper.experiment import Cell, Experiment, Panel
from everlearn.paper.tables import MeasuredCell, Table, percent

__all__ = ["NAME", "full_column", "full_row", "other_runs"]

NAME = "other-runs"
TITLES = {
    "accuracy": "accuracy at the end of the stream, %",
    PREQUENTIAL: "prequential accuracy, %",
}
# What is not an option of a column, and usual values, which the names of columns leave out.
NOT_IN_COLUMNS = ("learner", "stream", "seed", "settings", "versions")
USUAL = {"imbalance": None, "batch_size": 10, "scenario": "split", "amount": None}
FEW = 2
"""Up to this many settings are always named; of more, those that differ."""
MOST = 3
"""Of those that differ, at most so many are named."""
LONGEST = 28
"""Characters of a value; longer ones are cut."""


def other_runs(records: Sequence[Record], tables: Sequence[Table]) -> list[Table]:
    """Tables of the runs that are in none of these tables, one for each stream, with a row for each learner and its
    settings.

    Names are short: of many settings, those that differ within the table. `full_row` and `full_column` have all.
    """
    shown = {run.key for table in tables for cell in table.cells for run in (*cell.runs, *cell.failed)}
    streams: dict[str, list[Record]] = {}
    for record in _newest(records):
        if record.key not in shown:
            streams.setdefault(record.job["stream"], []).append(record)
    shows = {stream: _metric(runs) for stream, runs in streams.items()}
    filled = [_cells(runs, shows[stream]) for stream, runs in streams.items()]
    titles = [f"{stream}: {TITLES[metric]}" for stream, metric in shows.items()]
    if len(titles) == 1:  # the panel of a single stream needs no name
        titles = [TITLES[metric].capitalize() for metric in shows.values()]
    panels = tuple(
        Panel(title, "table", None, tuple(measured.cell for measured in cells))
        for title, cells in zip(titles, filled, strict=False)
    )
    paper = Experiment(NAME, "Other runs", "", panels)
    return [Table(paper, position, cells) for position, cells in enumerate(filled)]


def _metric(records: Sequence[Record]) -> str:
    """What is shown of the runs on one stream, which may have no samples to evaluate on."""
    done = [record for record in records if record.error is None]
    lacks_tests = not percent(done, "accuracy") and percent(done, PREQUENTIAL)
    return PREQUENTIAL if lacks_tests else "accuracy"


def _cells(records: Sequence[Record], metric: str) -> tuple[MeasuredCell, ...]:
    """The cells of the runs on one stream."""
    rows = _labels(
        {full_row(record.job): (record.job["learner"], _settings(record.job)) for record in records}
    )
    columns = _labels(
        {full_column(record.job): (record.job["stream"], _options(record.job)) for record in records}
    )
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        place = rows[full_row(record.job)], columns[full_column(record.job)]
        groups.setdefault(place, []).append(record)
    cells = []
    for (row, column), runs in groups.items():
        runs.sort(key=lambda run: run.job["seed"])
        done = tuple(run for run in runs if run.error is None)
        failed = tuple(run for run in runs if run.error is not None)
        cells.append(MeasuredCell(Cell(row, column, (), None), done, failed, metric))
    return tuple(cells)


def _newest(records: Iterable[Record]) -> list[Record]:
    """Of runs that differ in the version of the user's own code alone, the newest."""
    found: dict[tuple[str, str, int], Record] = {}
    for record in records:
        place = full_row(record.job), full_column(record.job), record.job["seed"]
        if place not in found or record.started >= found[place].started:
            found[place] = record
    return list(found.values())


def full_row(job: Mapping[str, Any]) -> str:
    """The learner of a job with all settings that differ from the benchmark's."""
    return ", ".join([job["learner"], *(f"{k} = {_plain(v)}" for k, v in job.get("settings", {}).items())])


def full_column(job: Mapping[str, Any]) -> str:
    """The stream of a job with all options that are not usual."""
    return ", ".join([job["stream"], *(f"{k} = {_plain(v)}" for k, v in _unusual(job).items())])


def _unusual(job: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: value for name, value in job.items() if name not in NOT_IN_COLUMNS}
    return {name: value for name, value in named.items() if name not in USUAL or USUAL[name] != value}


def _settings(job: Mapping[str, Any]) -> list[str]:
    return [_words(name, value) for name, value in job.get("settings", {}).items()]


def _options(job: Mapping[str, Any]) -> list[str]:
    """The options of a column, each in a few words."""
    words = []
    for name, value in _unusual(job).items():
        if name in ("evaluator", "horizon") and isinstance(value, dict):
            parts = {part: each for part, each in value.items() if each is not None}
            words += [
                _words(part if name == "evaluator" else f"{name} {part}", parts[part]) for part in parts
            ]
        else:
            words.append(_words(name, value))
    return words


def _words(name: str, value: Any) -> str:
    """A setting in a few words.

    >>> _words("validation", True), _words("metrics", {"lowest": "file.lowest 3f"}), _words("every", 5)
    ('validation', 'metrics lowest', 'every = 5')
    """
    if value is True:
        return name
    if name == "metrics" and isinstance(value, dict):
        return _cut(f"metrics {' '.join(map(str, value))}")
    return f"{name} = {_cut(_plain(value))}"


def _labels(full: Mapping[str, tuple[str, list[str]]]) -> dict[str, str]:
    """A short name for each full one, of its first word and its settings; no two are the same.

    >>> rate, size, more = "rate = 1", "size = 2", "more = 3"
    >>> list(_labels({"a": ("cope", [rate, size, more]), "b": ("cope", [rate, size, "more = 4"])}).values())
    ['cope, more = 3, …', 'cope, more = 4, …']
    """
    found: dict[str, str] = {}
    for name, (first, settings) in full.items():
        others = [set(theirs) for start, theirs in full.values() if start == first]
        differing = [each for each in settings if not all(each in theirs for theirs in others)]
        named = settings if len(settings) <= FEW else differing[:MOST]
        label = ", ".join([first, *named, *(["…"] if len(named) < len(settings) else [])])
        number, free = 2, label
        while free in found.values():
            free, number = f"{label} ({number})", number + 1
        found[name] = free
    return found


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
