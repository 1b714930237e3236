"""The TOML file that defines an experiment: read it and check it.

Every cell of a panel has a row and a column. Its job merges the values of the panel's `protocol`, if it names one,
then of `all`, then the row, then the column. `times` multiplies settings of the result.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from typing import Any

from everlearn import learners
from everlearn.engine.tracking import check_tracker_name
from everlearn.experiments.protocol import protocol
from everlearn.experiments.settings import settings_in_force
from everlearn.import_names import is_import_name
from everlearn.messages import nearest
from everlearn.streams import benchmarks
from everlearn.streams.own_streams import find as find_stream
from everlearn.streams.scenarios import check as check_scenario
from everlearn.streams.task_split import check_class_order

__all__ = ["cells", "check", "parse"]

# The type of every key: of the file, of a panel, and of a job.
FILE = {
    "title": str,
    "source": str,
    "place": int,
    "seeds": int,
    "notes": list,
    "panels": list,
    "every": int,
    "metrics": dict,
    "track": list,
}
PANEL = {
    "title": str,
    "figure": str,
    "axis": str,
    "measure": str,
    "reference": str,
    "source": str,
    "protocol": str,
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
    "validation": bool,
    "class_order": (str, list),
    "settings": dict,
    "times": dict,
}
FIGURES = ("table", "lines", "bars")
MEASURES = ("accuracy", "resources")


def parse(text: str, name: str) -> dict[str, Any]:
    """The content of such a file, with the defaults filled in."""
    try:
        return {"place": 0, "seeds": 5, "source": ""} | tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{name} can't be read: {error}") from None


def check(definition: dict[str, Any], name: str) -> None:
    """Raise a ValueError for a definition that can't be run; it says where the mistake is."""
    _check_keys(definition, FILE, ("title", "panels"), name)
    if definition["seeds"] < 1:
        raise ValueError(f"{name}: seeds must be at least 1, not {definition['seeds']}")
    _check_texts(definition.get("notes", []), "notes", name)
    _check_texts(definition.get("track", []), "track", name)
    for tracker in definition.get("track", []):
        try:
            check_tracker_name(tracker)
        except ValueError as error:
            raise ValueError(f"{name}, track: {error}") from None
    _check_texts(list(definition.get("metrics", {}).values()), "metrics", name)
    if definition.get("every", 1) < 1:
        raise ValueError(f"{name}: every must be at least 1, not {definition['every']}")
    if not definition["panels"]:
        raise ValueError(
            f"{name}: panels is empty, so there is nothing to run; write at least one [[panels]]"
        )
    for panel in definition["panels"]:
        _check_panel(panel, name)


def _check_panel(panel: Any, name: str) -> None:
    titled = isinstance(panel, dict) and "title" in panel
    where = f"{name}, panel {panel['title']!r}" if titled else f"{name}, panels"
    _check_keys(panel, PANEL, ("title", "figure", "rows", "columns"), where)
    for choice, known in (("figure", FIGURES), ("measure", MEASURES)):
        if panel.get(choice, known[0]) not in known:
            raise ValueError(f"{where}: {choice} is one of {', '.join(known)}, not {panel[choice]!r}")
    for group in ("rows", "columns"):
        if not panel[group]:
            raise ValueError(f"{where}: {group} is empty, so there is nothing to run")
    _check_keys(panel.get("all", {}), JOB, (), f"{where}, all")
    for column, values in panel["columns"].items():
        _check_keys(values, JOB, (), f"{where}, column {column!r}")
    for row, values in panel["rows"].items():
        _check_keys(values, JOB | {"columns": list}, (), f"{where}, row {row!r}")
        _check_texts(values.get("columns", []), "columns", f"{where}, row {row!r}")
        for column in values.get("columns", ()):
            _check_known(column, "column", panel["columns"], f"{where}, row {row!r}")
    if "reference" in panel:
        _check_known(panel["reference"], "row", panel["rows"], f"{where}, reference")
    try:
        found = list(cells(panel))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for row, column, values in found:
        _check_job(values, f"{where}, row {row!r}, column {column!r}")
    _check_published(panel, where)


def cells(panel: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Row, column and job of every cell."""
    for row, of_row in panel["rows"].items():
        for column, of_column in panel["columns"].items():
            if column not in of_row.get("columns", panel["columns"]):
                continue
            parts = (panel.get("all", {}), of_row, of_column)
            values: dict[str, Any] = {}
            settings: dict[str, Any] = {}
            times: dict[str, float] = {}
            for part in parts:
                values |= part
                settings |= part.get("settings", {})
                times |= part.get("times", {})
            for name in ("columns", "times"):
                values.pop(name, None)
            job = _in_protocol(panel.get("protocol"), values | {"settings": settings})
            try:
                job = _multiplied(job, times) if times else job
            except ValueError as error:
                raise ValueError(f"row {row!r}, column {column!r}: {error}") from None
            yield row, column, job


def _multiplied(values: dict[str, Any], times: dict[str, float]) -> dict[str, Any]:
    """The values of a job, with these settings of its learner times these factors."""
    if "learner" not in values or "stream" not in values:
        return values
    imbalanced = values.get("imbalance") is not None
    held = settings_in_force(values["learner"], values["stream"], imbalanced, values["settings"])
    products = {}
    for name, factor in times.items():
        if name not in held:
            raise ValueError(f"{values['learner']} has no setting {name!r}{nearest(name, list(held))}")
        before: Any = held[name]
        if type(factor) not in (int, float) or type(before) not in (int, float):
            raise ValueError(f"times multiplies numbers, not {name} = {before!r} by {factor!r}")
        if not 0 < factor < math.inf:
            raise ValueError(f"times multiplies by numbers above 0, not {name} by {factor!r}")
        product = float(f"{before * factor:.12g}")  # 0.3, not 0.30000000000000004
        products[name] = round(product) if isinstance(before, int) else product
        if products[name] == before and factor != 1:
            raise ValueError(f"{name} = {before!r} times {factor!r} is {before!r} again: set it in settings")
    return values | {"settings": values["settings"] | products}


def _in_protocol(name: str | None, values: dict[str, Any]) -> dict[str, Any]:
    """The values of a job, after those of the protocol that its panel names."""
    if name is None or "learner" not in values or "stream" not in values:
        return values
    used = protocol(name)
    settings = used.settings(values["learner"], values["stream"]) | values["settings"]
    return {"batch_size": used.batch_size, "class_order": used.class_order} | values | {"settings": settings}


def _check_keys(given: Any, known: dict[str, Any], wanted: tuple[str, ...], where: str) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{where}: expected a table of values, not {given!r}")
    for name, value in given.items():
        _check_known(name, "value", known, where)
        kinds = known[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            expected: dict[Any, str] = {
                (str, list): "text or a list",
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


def _check_texts(given: list[Any], name: str, where: str) -> None:
    for value in given:
        if not isinstance(value, str):
            raise ValueError(f"{where}: {name} must hold strings, not {value!r}")


def _check_known(name: str, what: str, known: Any, where: str) -> None:
    if name not in known:
        hint = "; those of the learner, and its network, go into settings" if "settings" in known else ""
        raise ValueError(f"{where}: there is no {what} {name!r}{nearest(name, known)}{hint}")


def _check_job(values: dict[str, Any], where: str) -> None:
    for name in ("learner", "stream"):
        if name not in values:
            raise ValueError(f"{where}: no {name} is named, neither for all nor by the row or the column")
    stream = values["stream"]
    if stream not in benchmarks() and not is_import_name(stream) and find_stream(stream) is None:
        _check_known(stream, "stream", benchmarks(), where)
    for name in ("batch_size", "epochs"):
        if values.get(name, 1) < 1:
            raise ValueError(f"{where}: {name} must be at least 1, not {values[name]}")
    try:
        check_scenario(values.get("scenario", "split"), values.get("amount"), values.get("imbalance"))
        check_class_order(values.get("class_order", "sorted"))
        if is_import_name(stream):
            find_stream(stream)
        if values["learner"] in learners.registry() or values["learner"] not in PAPER:
            imbalanced = values.get("imbalance") is not None
            settings_in_force(values["learner"], stream, imbalanced, values["settings"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


# The learners of the paper. One that is not implemented is skipped with a message.
PAPER = (
    "iid-offline", "iid-online", "finetune", "gem", "icarl", "curl", "cn-dpm",
    "reservoir", "mir", "gss", "cope-ce", "cope",
)  # fmt: skip


def _check_published(panel: dict[str, Any], where: str) -> None:
    there = {(row, column) for row, column, _ in cells(panel)}
    for row, of_row in panel.get("published", {}).items():
        if not isinstance(of_row, dict):
            raise ValueError(
                f"{where}: what is published for {row!r} is {{ COLUMN = [mean, std] }}, not {of_row!r}"
            )
        for column, printed in of_row.items():
            if (row, column) not in there:
                raise ValueError(
                    f"{where}: a value is published for {row!r}, {column!r}, which is not a cell"
                )
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
