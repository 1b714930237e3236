"""The TOML file that defines an experiment: read it, check it, and make the small version of it.

Every cell of a panel has a row and a column. Its job merges the values of `all`, then the row, then the column.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from everlearn import learners
from everlearn.experiments.settings import benchmark_settings, settings_in_force
from everlearn.messages import nearest
from everlearn.streams import names
from everlearn.streams.scenarios import check as check_scenario

__all__ = ["cells", "check", "in_small", "parse"]

# The type of every key: of the file, of a panel, and of a job.
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
SMALL_EPOCHS = 10
# Split-Digits has a tenth of Split-MNIST's memory, as in its settings. Its 1,442 samples make few batches of 200,
# so larger batches are a fifth. Neither goes below one exemplar for each class, which is also the paper's batch.
SMALL_MEMORY = 10
SMALL_BATCH = 5
LEAST = 10
# As far below the settings of Split-Digits as the paper's low capacity is below those of Split-MNIST.
SMALL_CAPACITY = {"hidden": 100, "memory_size": 30, "iterations": 5}
SMALL_VIEWS = "In small, images of 8 x 8 are not shifted: they are too small for it."


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
    for row, column, values in cells(panel):
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
            for part in parts:
                values |= part
                settings |= part.get("settings", {})
            values.pop("columns", None)
            yield row, column, values | {"settings": settings}


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


def _check_texts(given: list[Any], name: str, where: str) -> None:
    for value in given:
        if not isinstance(value, str):
            raise ValueError(f"{where}: {name} must hold strings, not {value!r}")


def _check_known(name: str, what: str, known: Any, where: str) -> None:
    if name not in known:
        raise ValueError(f"{where}: there is no {what} {name!r}{nearest(name, known)}")


def _check_job(values: dict[str, Any], where: str) -> None:
    for name in ("learner", "stream"):
        if name not in values:
            raise ValueError(f"{where}: no {name} is named, neither for all nor by the row or the column")
    _check_known(values["stream"], "stream", names(), where)
    for name in ("batch_size", "epochs"):
        if values.get(name, 1) < 1:
            raise ValueError(f"{where}: {name} must be at least 1, not {values[name]}")
    try:
        check_scenario(values.get("scenario", "split"), values.get("amount"), values.get("imbalance"))
        if values["learner"] in learners.registry():
            imbalanced = values.get("imbalance") is not None
            settings_in_force(values["learner"], values["stream"], imbalanced, values["settings"])
        elif values["learner"] not in PAPER:
            learners.find(values["learner"])
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


def in_small(definition: dict[str, Any]) -> dict[str, Any]:
    """The small version of an experiment: its first stream becomes Split-Digits, with a tenth of the memory, a fifth
    of larger batches, at most ten epochs and two seeds.

    Published numbers are of other streams and left out, and so are views of images, which are too small for them.
    """
    small = copy.deepcopy(definition)
    small["seeds"] = SMALL_SEEDS
    first = next(values["stream"] for panel in small["panels"] for _, _, values in cells(panel))
    panels = [panel for panel in small["panels"] if panel.get("all", {}).get("stream", first) == first]
    viewed = any("augmentation" in values["settings"] for panel in panels for _, _, values in cells(panel))
    if viewed and first != SMALL_STREAM:
        small["notes"] = [*small.get("notes", ()), SMALL_VIEWS]
    for panel in panels:
        _make_small(panel, first)
    title = f"{small['title']}, in small on {SMALL_STREAM}"
    return small | {
        "title": title,
        "panels": [panel for panel in panels if panel["rows"] and panel["columns"]],
    }


def _make_small(panel: dict[str, Any], first: str) -> None:
    """Move the cells of this stream to Split-Digits, and remove the others."""
    panel.pop("published", None)
    panel["title"], panel["all"] = _smaller(panel["title"], panel.get("all", {}), first)
    renamed: dict[str, str] = {}
    for group in ("columns", "rows"):
        there = {
            name: values for name, values in panel[group].items() if values.get("stream", first) == first
        }
        panel[group] = {}
        for name, values in there.items():
            if "columns" in values:
                values["columns"] = [renamed[column] for column in values["columns"] if column in renamed]
            small, values = _smaller(name, values, first)
            if group == "columns":
                renamed[name] = small
            elif first.endswith("-mini"):
                _reduce_capacity(values, panel["all"])
            panel[group].setdefault(small, values)


def _smaller(name: str, values: dict[str, Any], first: str) -> tuple[str, dict[str, Any]]:
    """The small version of a row or a column, renamed accordingly."""
    kind = learners.registry().get(values.get("learner", ""))
    if "epochs" in values or (kind is not None and kind.horizon.epochs > SMALL_EPOCHS):
        values["epochs"] = min(values.get("epochs", SMALL_EPOCHS), SMALL_EPOCHS)
    if first == SMALL_STREAM:
        return name, values
    settings = values.get("settings", {})
    for view in ("augmentation", "width", "colour", "mirrored"):
        settings.pop(view, None)
    if "memory_size" in settings:
        name, settings["memory_size"] = _reduced(name, settings["memory_size"], SMALL_MEMORY)
    if "batch_size" in values:
        # A batch size set for one learner is part of its method, and stays.
        share = SMALL_BATCH if kind is None else values["batch_size"]
        name, values["batch_size"] = _reduced(name, values["batch_size"], share)
    if values.get("stream") == first:
        values["stream"] = SMALL_STREAM
    return _on_small_stream(name, first), values


def _reduced(name: str, size: int, share: int) -> tuple[str, int]:
    """A size divided by `share`, and the name with the new size in it.

    >>> _reduced("memory 2000", 2000, 10), _reduced("batch size 20", 20, 5), _reduced("memory 5", 5, 10)
    (('memory 200', 200), ('batch size 10', 10), ('memory 5', 5))
    """
    less = min(size, max(LEAST, size // share))
    return re.sub(rf"\b{size}\b", str(less), name), less


def _reduce_capacity(values: dict[str, Any], for_all: dict[str, Any]) -> None:
    """Give a row the low capacity, in those settings that its learner has and the file does not set."""
    learner = values.get("learner", for_all.get("learner"))
    usual = benchmark_settings(learner, SMALL_STREAM, False) if learner is not None else {}
    less = {name: value for name, value in SMALL_CAPACITY.items() if name in usual}
    values["settings"] = less | for_all.get("settings", {}) | values.get("settings", {})


def _on_small_stream(name: str, first: str) -> str:
    """A name with the small stream in place of this one, capitalised in the same way.

    >>> _on_small_stream("split-mnist", "split-mnist"), _on_small_stream("Split-MNIST: accuracy", "split-mnist")
    ('split-digits', 'Split-Digits: accuracy')
    """

    def small(found: re.Match[str]) -> str:
        return SMALL_STREAM if found[0] == first else SMALL_STREAM.title()

    return re.sub(re.escape(first), small, name, flags=re.IGNORECASE)
