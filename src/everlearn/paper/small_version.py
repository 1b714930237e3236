"""The small version of an experiment, on Split-Digits: it takes a minute and shows the same effects."""

from __future__ import annotations

import copy
import re
from typing import Any

from everlearn import learners
from everlearn.experiments.settings import benchmark_settings
from everlearn.paper.definition import cells

__all__ = ["small_version"]

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
SMALL_PROTOCOL = (
    "In small, class order, replay, iterations and optimiser are the protocol's; the network is an MLP."
)
SMALL_VIEWS = "In small, images of 8 x 8 are not shifted: they are too small for it."


def small_version(definition: dict[str, Any]) -> dict[str, Any]:
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
    if any("protocol" in panel for panel in panels):
        small["notes"] = [*small.get("notes", ()), SMALL_PROTOCOL]
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
    if "protocol" in panel:
        panel["title"] = (
            f"{panel['protocol']}, in small on {SMALL_STREAM.title()}: accuracy at the end of the stream, %"
        )
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
    for view in ("augmentation", "width", "colour", "cutout", "mirrored", "shifted", "turned"):
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
