"""The file that defines an experiment: reading it, checking it, and making it small.

Every cell of a panel is a row and a column. Its job is what the panel says for `all`, then the row, then the column.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterator
from typing import Any

from everlearn import learners
from everlearn.experiments.settings import settings_in_force
from everlearn.streams import names
from everlearn.streams.scenarios import check as check_scenario
from everlearn.words import nearest

__all__ = ["cells", "check", "in_small", "parse"]

# What a key holds, in the file, in a panel, and in what makes a job.
FILE = {"title": str, "source": str, "place": int, "seeds": int, "notes": list, "panels": list}
PANEL = {
    "title": str,
    "figure": str,
    "axis": str,
    "measure": str,
    "source": str,
    "all": dict,
    "rows": dict,
    "columns": dict,
    "published": dict,
}
JOB: dict[str, Any] = {
    "learner": str,
    "stream": str,
    "imbalance": int,
    "batch_size": int,
    "scenario": str,
    "amount": (int, float),
    "epochs": int,
    "alone": bool,
    "settings": dict,
}
FIGURES = ("table", "lines", "bars")
MEASURES = ("accuracy", "resources")
SMALL_STREAM = "split-digits"
SMALL_SEEDS = 2
# Split-Digits has a tenth of Split-MNIST's memory, as in its settings.
SMALL_MEMORY = 10
SMALL_EPOCHS = 10


def parse(text: str, name: str) -> dict[str, Any]:
    """The text of such a file, with five seeds where it says nothing else."""
    try:
        return {"place": 0, "seeds": 5, "source": ""} | tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} can't be read: {error}") from None


def check(definition: dict[str, Any], name: str) -> None:
    """Refuse a definition that can't be run, with a sentence that says where and why."""
    _check_keys(definition, FILE, ("title", "panels"), name)
    if definition["seeds"] < 1:
        raise ValueError(f"{name}: seeds must be at least 1, not {definition['seeds']}")
    for panel in definition["panels"]:
        where = f"{name}, panel {panel.get('title', '')!r}"
        _check_keys(panel, PANEL, ("title", "figure", "rows", "columns"), where)
        for name, known in (("figure", FIGURES), ("measure", MEASURES)):
            if panel.get(name, known[0]) not in known:
                raise ValueError(f"{where}: {name} is one of {', '.join(known)}, not {panel[name]!r}")
        _check_keys(panel.get("all", {}), JOB, (), f"{where}, all")
        for column, told in panel["columns"].items():
            _check_keys(told, JOB, (), f"{where}, column {column!r}")
        for row, told in panel["rows"].items():
            _check_keys(told, JOB | {"columns": list}, (), f"{where}, row {row!r}")
            for column in told.get("columns", ()):
                _check_known(column, "column", panel["columns"], f"{where}, row {row!r}")
        for row, column, told in cells(panel):
            _check_job(told, f"{where}, row {row!r}, column {column!r}")
        _check_published(panel, where)


def cells(panel: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Row, column and job of every cell."""
    for row, of_row in panel["rows"].items():
        for column, of_column in panel["columns"].items():
            if column not in of_row.get("columns", panel["columns"]):
                continue
            parts = (panel.get("all", {}), of_row, of_column)
            told: dict[str, Any] = {}
            settings: dict[str, Any] = {}
            for part in parts:
                told |= part
                settings |= part.get("settings", {})
            told.pop("columns", None)
            yield row, column, told | {"settings": settings}


def _check_keys(given: Any, known: dict[str, Any], wanted: tuple[str, ...], where: str) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{where}: expected a table of values, not {given!r}")
    for name, value in given.items():
        _check_known(name, "value", known, where)
        kinds = known[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            expected = {
                str: "text",
                int: "a whole number",
                list: "a list",
                dict: "a table",
                bool: "true or false",
            }
            raise ValueError(f"{where}: {name} is {expected.get(kinds, 'a number')}, not {value!r}")
    for name in wanted:
        if name not in given:
            raise ValueError(f"{where}: {name} is missing")


def _check_known(name: str, what: str, known: Any, where: str) -> None:
    if name not in known:
        raise ValueError(f"{where}: there is no {what} {name!r}{nearest(name, known)}")


def _check_job(told: dict[str, Any], where: str) -> None:
    for name in ("learner", "stream"):
        if name not in told:
            raise ValueError(f"{where}: no {name} is named, neither for all nor by the row or the column")
    _check_known(told["stream"], "stream", names(), where)
    try:
        check_scenario(told.get("scenario", "split"), told.get("amount"), told.get("imbalance"))
        if told["learner"] in learners.registry():
            imbalanced = told.get("imbalance") is not None
            settings_in_force(told["learner"], told["stream"], imbalanced, told["settings"])
        elif told["learner"] not in PAPER:
            learners.find(told["learner"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


# The learners of the paper. One that does not exist here yet is known, and skipped in words.
PAPER = (
    "iid-offline", "iid-online", "finetune", "gem", "icarl", "curl", "cn-dpm",
    "reservoir", "mir", "gss", "cope-ce", "cope",
)  # fmt: skip


def _check_published(panel: dict[str, Any], where: str) -> None:
    there = {(row, column) for row, column, _ in cells(panel)}
    for row, of_row in panel.get("published", {}).items():
        for column, printed in of_row.items():
            if (row, column) not in there:
                raise ValueError(f"{where}: a value is published for {row!r}, {column!r}, which is no cell")
            values = list(printed.values()) if isinstance(printed, dict) else printed
            if isinstance(printed, dict):
                _check_keys(
                    printed, {"mean": (int, float), "std": (int, float), "source": str}, ("mean",), where
                )
            elif not (
                isinstance(values, list)
                and len(values) == 2
                and all(isinstance(v, int | float) for v in values)
            ):
                raise ValueError(
                    f"{where}: what is published for {row!r}, {column!r} is [mean, std] in percent, not {printed!r}"
                )
            if not (isinstance(printed, dict) and "source" in printed) and "source" not in panel:
                raise ValueError(f"{where}: what is published for {row!r}, {column!r} has no source")


def in_small(definition: dict[str, Any]) -> dict[str, Any]:
    """The same experiment on Split-Digits: its first stream there, with a tenth of the memory, at most ten
    epochs and two seeds.

    What is published is of other streams, and left out.
    """
    small = copy.deepcopy(definition)
    small["seeds"] = SMALL_SEEDS
    first = next(told["stream"] for panel in small["panels"] for _, _, told in cells(panel))
    panels = []
    for panel in small["panels"]:
        panel.pop("published", None)
        for group in ("rows", "columns"):
            panel[group] = dict(
                _smaller(name, told, first)
                for name, told in panel[group].items()
                if told.get("stream", first) == first
            )
        for told in panel["rows"].values():
            if "columns" in told:
                told["columns"] = [column.replace(first, SMALL_STREAM) for column in told["columns"]]
        of_first = panel.get("all", {}).get("stream", first) == first
        panel["title"], panel["all"] = _smaller(panel["title"], panel.get("all", {}), first)
        if of_first and panel["rows"] and panel["columns"]:
            panels.append(panel)
    return small | {"panels": panels, "title": f"{small['title']}, in small on {SMALL_STREAM}"}


def _smaller(name: str, told: dict[str, Any], first: str) -> tuple[str, dict[str, Any]]:
    """A row or a column in small, under a name that says so."""
    if told.get("stream") == first:
        told["stream"] = SMALL_STREAM
    kind = learners.registry().get(told.get("learner", ""))
    if kind is not None and kind.horizon.epochs > SMALL_EPOCHS:
        told["epochs"] = min(told.get("epochs", SMALL_EPOCHS), SMALL_EPOCHS)
    size = told.get("settings", {}).get("memory_size")
    if size is not None:
        told["settings"]["memory_size"] = size // SMALL_MEMORY
        name = name.replace(str(size), str(size // SMALL_MEMORY))
    return name.replace(first, SMALL_STREAM), told
