"""The exact command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from everlearn.import_names import is_import_name

__all__ = ["command"]

# Fields of a job that are flags of `everlearn run` by the same name.
FLAGS = (
    "imbalance", "batch_size", "scenario", "amount", "class_order", "validation", "paradigm", "infer", "cost",
)  # fmt: skip
DEFAULTS = {"batch_size": 10, "scenario": "split", "class_order": "sorted", "validation": False}


def command(job: Mapping[str, Any], seeds: int = 1) -> str:
    """`everlearn run` as one would type it to get this job for seeds 0, 1, …

    >>> job = {"learner": "cope", "stream": "split-mnist", "seed": 0, "imbalance": 3, "batch_size": 10}
    >>> command(job | {"settings": {"renormalise": False, "memory_size": 500}}, seeds=5)
    'everlearn run --learner cope --stream split-mnist --seeds 5 --imbalance 3 --no-renormalise --memory-size 500'
    """
    if _only_in_python(job):
        return "your own script, with everlearn.experiment"
    words = ["everlearn", "run", "--learner", job["learner"], "--stream", job["stream"], "--seeds", seeds]
    for name in FLAGS:
        if job.get(name) is not None and job[name] != DEFAULTS.get(name):
            words += _flag(name, job[name])
    horizon = job.get("horizon")
    if horizon:
        words += _flag("horizon", horizon["extent"])
        words += _flag("window", horizon["samples"]) if horizon.get("samples") else []
        words += _flag("epochs", horizon["epochs"])
    every = (job.get("evaluator") or {}).get("every")
    if every:
        words += _flag("every", every)
    for name, value in (job.get("settings") or {}).items():
        words += _flag(name, value)
    return shlex.join(str(word) for word in words)


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
