"""Estimates of how long jobs take, from the rates of earlier runs in the store or a table of rates.

Where the table does not have a learner, the images that it passes through its network for each new one tell.
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from statistics import mean
from typing import Any

from everlearn.experiments.codec import decode
from everlearn.experiments.cost import images_per_new_image
from everlearn.experiments.environment import cores, hardware, on_gpu
from everlearn.experiments.job import Job
from everlearn.experiments.own import kind_of
from everlearn.experiments.store import Record, Store
from everlearn.experiments.sweep import Sweep
from everlearn.streams.formats import DataError

__all__ = ["describe", "rates", "seconds"]

Rates = dict[tuple[str, str, str], list[float]]


def rates(records: Sequence[Record]) -> Rates:
    """The rates of earlier runs in samples per second and iteration, by learner, stream and machine."""
    found: Rates = {}
    for record in records:
        if record.result is not None and record.seconds > 0:
            epochs = record.job.get("horizon", {}).get("epochs")
            kind = kind_of(record.job["learner"], own="learner" in record.job.get("versions", {}))
            epochs = epochs or (1 if kind is None else kind.horizon.epochs)
            result = decode(record.result)
            work = result.samples * epochs * record.settings.get("iterations", 1)
            paced = _paced(record.job["learner"], record.job["batch_size"])
            where = (paced, record.job["stream"], record.hardware)
            found.setdefault(where, []).append(work * result.together / record.seconds)
    return found


def seconds(job: Job, earlier: Rates) -> float | None:
    """How long a job takes on its own; None if no rate is known or its dataset is missing."""
    settings = {"network": None, "iterations": 1} | job.all_settings()
    measured = earlier.get((_paced(job.learner, job.batch_size), job.stream, hardware(job.device)))
    device = "gpu" if on_gpu(job.device) else "core"
    known = {} if job.device.startswith("mps") else _table()[device].get(settings["network"], {})
    rate = (
        mean(measured) if measured else known.get(_paced(job.learner, job.batch_size), known.get(job.learner))
    )
    try:
        if rate is not None:
            return float(job.passes() * settings["iterations"] / rate)
        images = _images_per_new_image(job, settings) if "images" in known else None
        return float(job.passes() * images / known["images"]) if images else None
    except DataError:
        return None


def _images_per_new_image(job: Job, settings: Mapping[str, Any]) -> float | None:
    """How many images pass the network for each new one; None where that does not tell how long a job takes."""
    if job.kind is None or not job.kind.tensors_alone or job.own is not None:
        return None
    return _counted(job.learner, settings.get("replayed"), settings["iterations"], job.batch_size)


@functools.cache
def _counted(learner: str, replayed: int | None, iterations: int, batch_size: int) -> float:
    return images_per_new_image(learner, {"replayed": replayed, "iterations": iterations}, batch_size)


def _paced(learner: str, batch_size: int) -> str:
    """The key of a rate: with larger batches the same samples take less time."""
    return learner if batch_size == 10 else f"{learner}, batches of {batch_size}"


def describe(
    plan: Sweep, store: str | os.PathLike[str], workers: int | None = None, missing: Sequence[str] = ()
) -> str:
    """What would run and about how long it takes, as text for a person.

    workers: processes to run it in. missing: learners that are left out since they are not implemented.
    """
    earlier = rates(Store(store).records()) if Path(store).exists() else {}
    lines = [f"{plan.done} runs are stored, {len(plan.todo)} to go"]
    if plan.failed:
        lines[0] += f", {plan.failed} of them failed before"
    groups: dict[str, list[Job]] = {}
    for job in plan.todo:
        groups.setdefault(_title(job), []).append(job)
    total = {"alone": 0.0, "rest": 0.0}
    unknown = 0
    for title, jobs in groups.items():
        known = [taken for job in jobs if (taken := seconds(job, earlier)) is not None]
        total["alone" if jobs[0].alone else "rest"] += sum(known)
        unknown += len(jobs) - len(known)
        took = f"about {_duration(sum(known))}" if len(known) == len(jobs) else _why_unknown(jobs[0])
        lines.append(f"  {title}: {_runs(len(jobs))}, {took}")
    lines += [f"  {learner} is not implemented yet, and is left out" for learner in missing]
    if plan.todo:
        gpu = on_gpu(plan.todo[0].device)
        alone = sum(job.alone for job in plan.todo)
        at_once = 1 if gpu else max(1, min(workers or cores(), len(plan.todo) - alone))
        where = "on this GPU" if gpu else f"in {at_once} process{'es' if at_once > 1 else ''}"
        after = f", {alone} of them one after the other" if alone else ""
        rest = f", and {_runs(unknown)} of unknown length" if unknown else ""
        taken = total["alone"] + total["rest"] / at_once
        lines.append(f"together about {_duration(taken)} {where}{after}{rest}")
        lines.append(
            "by the rates of earlier runs in the store where there are any, else by experiments/rates.toml"
        )
    return "\n".join(lines)


def _why_unknown(job: Job) -> str:
    try:
        job.passes()
    except DataError:
        return "its data are not here"
    return "no rate known yet"


def _runs(number: int) -> str:
    return f"{number} run{'s' if number != 1 else ''}"


def _title(job: Job) -> str:
    """A unique title for jobs that differ in the seed alone."""
    parts = [f"{job.learner} on {job.stream}"]
    if job.imbalance:
        parts.append(f"S(T_{job.imbalance})")
    if job.scenario != "split":
        parts.append(job.scenario if job.amount is None else f"{job.scenario} {job.amount:g}")
    if job.batch_size != 10:
        parts.append(f"batches of {job.batch_size}")
    if job.horizon is not None:
        parts.append(f"{job.horizon.epochs} epoch{'s' if job.horizon.epochs > 1 else ''}")
    parts += [f"{name} {value}" for name, value in job.settings.items()]
    return ", ".join([*parts, "alone"] if job.alone else parts)


def _duration(taken: float) -> str:
    """A duration as text.

    >>> _duration(5), _duration(600), _duration(40_000)
    ('5 seconds', '10 minutes', '11.1 hours')
    """
    if taken < 100:
        return f"{taken:.0f} seconds"
    return f"{taken / 60:.0f} minutes" if taken < 6000 else f"{taken / 3600:.1f} hours"


@functools.cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("everlearn.experiments").joinpath("rates.toml").read_text("utf-8"))
