"""The exact command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from everlearn.import_names import is_import_name
from everlearn.streams import default_batch_size

__all__ = ["command"]

# Fields of a job that are flags of `everlearn run` by the same name.
FLAGS = (
    "imbalance", "batch_size", "scenario", "amount", "class_order", "validation", "paradigm", "infer", "cost",
)  # fmt: skip
DEFAULTS = {"scenario": "split", "class_order": "sorted", "validation": False}
# Fields of an evaluator, and their flags.
EVALUATOR = {
    "every": "every",
    "horizon": "evaluate",
    "prequential": "prequential",
    "asynchronous": "asynchronous",
    "representation": "plots",
}
# Parts of a job that are treated one by one, and `alone`, which changes the time alone.
OTHERS = ("learner", "stream", "seed", "settings", "horizon", "evaluator", "versions", "alone")


class _NoFlag(ValueError):
    """A part of a job that no flag of `everlearn run` sets."""


def command(job: Mapping[str, Any], seeds: int = 1) -> str:
    """`everlearn run` as one would type it to get this job for seeds 0, 1, …, or a sentence where no command does.

    >>> job = {"learner": "cope", "stream": "split-mnist", "seed": 0, "imbalance": 3, "batch_size": 10}
    >>> command(job | {"settings": {"renormalise": False, "memory_size": 500}}, seeds=5)
    'everlearn run --learner cope --stream split-mnist --seeds 5 --imbalance 3 --no-renormalise --memory-size 500'
    >>> command(job | {"settings": {}, "evaluator": {"transitions": False}})
    'your own script: no flag of everlearn run sets transitions = False'
    """
    if _only_in_python(job):
        return "your own script, with everlearn.experiment"
    try:
        words = _words(job, seeds)
    except _NoFlag as missing:
        return f"your own script: no flag of everlearn run sets {missing}"
    return shlex.join(str(word) for word in words)


def _words(job: Mapping[str, Any], seeds: int) -> list[Any]:
    words = ["everlearn", "run", "--learner", job["learner"], "--stream", job["stream"], "--seeds", seeds]
    usual = DEFAULTS | {"batch_size": default_batch_size(str(job["stream"]))}
    for name, value in job.items():
        if name not in (*FLAGS, *OTHERS) or (name == "class_order" and not isinstance(value, str)):
            raise _NoFlag(f"{name} = {value}")
        if name in FLAGS and value is not None and value != usual.get(name):
            words += _flag(name, value)
    horizon = job.get("horizon")
    if horizon:
        words += _flag("horizon", horizon["extent"])
        words += _flag("window", horizon["samples"]) if horizon.get("samples") else []
        words += _flag("epochs", horizon["epochs"])
    for name, value in (job.get("evaluator") or {}).items():
        words += _of_evaluator(name, value)
    for name, value in (job.get("settings") or {}).items():
        words += _flag(name, value)
    return words


def _of_evaluator(name: str, value: Any) -> list[Any]:
    """The words for one field of an evaluator that is not the default."""
    if name in EVALUATOR:
        return _flag(EVALUATOR[name], value)
    if name == "concepts" and value == "evolving":
        return ["--evolving"]
    if name == "metrics" and isinstance(value, Mapping):
        return ["--metrics", *(f"{metric}={_import_name(version)}" for metric, version in value.items())]
    raise _NoFlag(f"{name} = {value}")


def _import_name(version: Any) -> str:
    """`module:function` of a metric, whose version begins with `module.function`."""
    module, _, function = str(version).partition(" ")[0].rpartition(".")
    name = f"{module}:{function}"
    if not is_import_name(name) or module == "__main__" or " with " in str(version):
        raise _NoFlag(f"the metric {version}")
    return name


def _only_in_python(job: Mapping[str, Any]) -> bool:
    """Whether a part of the job is an object of the user's, which no name stands for."""
    parts = {"learner": job["learner"], "stream": job["stream"], "network": job["settings"].get("network")}
    return any(not is_import_name(str(parts[part])) for part in job.get("versions", {}) if part in parts)


def _flag(name: str, value: Any) -> list[Any]:
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return [f"--{name}", *values]
