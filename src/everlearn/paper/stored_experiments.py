"""The experiments that were run into a store: written there as JSON values, and read back for the report.

Of an experiment of the package, the store keeps its name; of the user's own, every cell with the keys of its runs. To
read it back, no code of the user's is imported.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from everlearn.experiments.job import Job, key
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.own import Own
from everlearn.experiments.record import Record
from everlearn.experiments.store import Store
from everlearn.paper.definition import FIGURES, MEASURES
from everlearn.paper.experiment import (
    Cell,
    Experiment,
    Panel,
    Published,
    comparisons,
    experiment,
    experiments,
)
from everlearn.paper.tables import QUICK, MeasuredCell, Table, fill

__all__ = [
    "StoredExperiment", "built_in", "definitions_of", "fill_any", "keep_own", "keep_reproduced", "run_by_name",
    "stored_experiments",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StoredExperiment(Experiment):
    """An experiment of the user's own, as a store has it. wanted: of each panel and cell, its job and its runs."""

    wanted: tuple[tuple[Mapping[str, Any], ...], ...] = ()


def keep_reproduced(
    store: Store, name: str | os.PathLike[str], ran: Sequence[Experiment], options: SweepOptions
) -> None:
    """Store which experiments are run; of a file of one's own, also the parts that are not."""
    if name not in built_in() and Path(name).suffix == ".toml":
        whole = experiment(name, dataclasses.replace(options, learners=(), streams=(), rows=(), columns=()))
        named = f"{whole.name}{QUICK}" if options.quick else whole.name
        _add(store, _definition(dataclasses.replace(whole, name=named)) | {"file": True})
        return
    for each in ran:
        _add(store, {"name": each.name, "quick": options.quick})


def keep_own(store: Store, own: Experiment) -> None:
    """Store an experiment that was written in Python."""
    _add(store, _definition(own))


def _add(store: Store, definition: dict[str, Any]) -> None:
    # A store that can only be read still shows its runs.
    with suppress(ValueError):
        store.add_experiment(definition, lambda other: _replaces(definition, other))


def _replaces(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Whether a definition is a new version of an old one: the same file, or a title with the same cells or runs."""
    if "panels" not in new or "panels" not in old or not _is_definition(old) or new["name"] != old["name"]:
        return False
    if new.get("file") or old.get("file"):
        return bool(new.get("file")) == bool(old.get("file"))
    same = _places(new) == _places(old)
    return same or not _keys(new).isdisjoint(_keys(old))


def _places(definition: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(cell["row"], cell["column"]) for panel in definition["panels"] for cell in panel["cells"]}


def _keys(definition: Mapping[str, Any]) -> set[str]:
    return {name for panel in definition["panels"] for cell in panel["cells"] for name in cell["runs"]}


def _definition(own: Experiment) -> dict[str, Any]:
    """An experiment as JSON values."""
    panels = [
        {field.name: getattr(panel, field.name) for field in dataclasses.fields(panel)}
        | {"cells": [_cell(cell) for cell in panel.cells if cell.jobs]}
        for panel in own.panels
    ]
    return {
        "name": own.name, "title": own.title, "source": own.source, "notes": list(own.notes), "panels": panels,
    }  # fmt: skip


def _cell(cell: Cell) -> dict[str, Any]:
    first = cell.jobs[0]
    # A table of one learner is compared with the cell that has the benchmark's settings.
    plain = dataclasses.replace(first, settings={}, batch_size=10)
    return {
        "row": cell.row,
        "column": cell.column,
        "job": _without_seed(first.plain()),
        "benchmark": key(first) == key(plain),
        "runs": [key(job) for job in cell.jobs],
        "published": None if cell.published is None else dataclasses.astuple(cell.published),
    }


def definitions_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The definitions in several stores, each once, whatever its seeds; a folder of results has none."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for definition in [] if path.is_dir() else Store(path).experiments():
            if not _is_definition(definition):
                raise ValueError(
                    f"an experiment in {path} is not one that everlearn wrote; name another file"
                )
            found.setdefault(json.dumps(_without_runs(definition), sort_keys=True), definition)
    return list(found.values())


def _without_runs(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without the runs of its seeds: a table shows those of all seeds."""
    panels = [
        {**panel, "cells": [{**cell, "runs": []} for cell in panel["cells"]]}
        for panel in definition.get("panels", ())
    ]
    return {**definition, "panels": panels}


def run_by_name(definitions: Iterable[Mapping[str, Any]]) -> set[str]:
    """The experiments of the package that were run as such; small versions end with `-quick`."""
    return {
        f"{each['name']}{QUICK}" if each["quick"] else each["name"]
        for each in definitions
        if "panels" not in each
    }


def stored_experiments(definitions: Sequence[Mapping[str, Any]]) -> list[StoredExperiment]:
    """The user's own experiments, the newest first, each with a name that no other has."""
    taken = {*built_in(), *(f"{name}{QUICK}" for name in built_in())}
    found = []
    for definition in reversed([each for each in definitions if "panels" in each]):
        name, number = definition["name"], 2
        while name in taken:
            name, number = f"{definition['name']}-{number}", number + 1
        taken.add(name)
        found.append(_read(definition, name))
    return found


def built_in() -> list[str]:
    """The experiments of the package."""
    return [*experiments(), *comparisons()]


def _read(definition: Mapping[str, Any], name: str) -> StoredExperiment:
    panels = []
    for panel in definition["panels"]:
        cells = tuple(_as_cell(cell) for cell in panel["cells"])
        fields = {field.name: panel[field.name] for field in dataclasses.fields(Panel)}
        panels.append(Panel(**fields | {"cells": cells}))
    return StoredExperiment(
        name,
        definition["title"],
        definition["source"],
        tuple(panels),
        tuple(definition["notes"]),
        wanted=tuple(tuple(panel["cells"]) for panel in definition["panels"]),
    )


def _as_cell(cell: Mapping[str, Any]) -> Cell:
    """The cell with a job that tells what it is, but that can't be run: the user's code is not imported."""
    values = cell["job"]
    job = Job(
        values["learner"],
        values["stream"],
        0,
        batch_size=values.get("batch_size", 10),
        settings={} if cell["benchmark"] else values["settings"],
        own=Own(_not_here, _not_here, _not_here),
    )
    return Cell(
        cell["row"],
        cell["column"],
        (job,),
        None if cell["published"] is None else Published(*cell["published"]),
    )


def _not_here() -> None:
    """Stands for the code of a stored job."""


def fill_any(paper: Experiment, records: Sequence[Record]) -> list[Table]:
    """The panels of an experiment with the runs of their cells; those of a stored one are found by their keys."""
    if not isinstance(paper, StoredExperiment):
        return fill(paper, records)
    by_key = {record.key: record for record in records}
    by_job: dict[str, list[Record]] = {}
    for record in records:
        by_job.setdefault(_text(record.job), []).append(record)
    tables = []
    for position, (panel, wanted) in enumerate(zip(paper.panels, paper.wanted, strict=True)):
        cells = []
        for cell, want in zip(panel.cells, wanted, strict=True):
            # The same job with other seeds belongs to it too.
            runs = {run.job["seed"]: run for run in by_job.get(_text(want["job"]), ())}
            runs |= {by_key[name].job["seed"]: by_key[name] for name in want["runs"] if name in by_key}
            found = [runs[seed] for seed in sorted(runs)]
            done = tuple(run for run in found if run.error is None)
            cells.append(MeasuredCell(cell, done, tuple(run for run in found if run.error is not None)))
        tables.append(Table(paper, position, tuple(cells)))
    return tables


def _without_seed(job: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in job.items() if name != "seed"}


def _text(job: Mapping[str, Any]) -> str:
    return json.dumps(_without_seed(job), sort_keys=True)


def _is_definition(value: Mapping[str, Any]) -> bool:
    """Whether a definition has all that a report needs."""
    if "panels" not in value:
        return isinstance(value.get("name"), str) and isinstance(value.get("quick"), bool)
    return (
        _has_texts(value, "name", "title", "source")
        and _is_list(value.get("notes"), lambda note: isinstance(note, str))
        and _is_list(value["panels"], _is_panel)
    )


def _is_panel(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _has_texts(value, "title", "reference")
        and all(name in value and isinstance(value[name], str | None) for name in ("axis", "protocol"))
        and value.get("figure") in FIGURES
        and value.get("measure") in MEASURES
        and _is_list(value.get("cells"), _is_cell)
    )


def _is_cell(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("job"), dict):
        return False
    job = value["job"]
    return (
        _has_texts(value, "row", "column")
        and _has_texts(job, "learner", "stream")
        and isinstance(job.get("settings"), dict)
        and isinstance(value.get("benchmark"), bool)
        and _is_list(value.get("runs"), lambda name: isinstance(name, str))
        and "published" in value
        and (value["published"] is None or _is_published(value["published"]))
    )


def _is_published(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 3:
        return False
    mean, std, source = value
    return isinstance(mean, int | float) and isinstance(std, int | float | None) and isinstance(source, str)


def _has_texts(values: Mapping[str, Any], *names: str) -> bool:
    return all(isinstance(values.get(name), str) for name in names)


def _is_list(value: Any, check: Any) -> bool:
    return isinstance(value, list) and all(map(check, value))
