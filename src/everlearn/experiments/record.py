"""One stored run, and the validation of records that come from a file."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from everlearn.experiments.codec import METRICS, PREQUENTIAL
from everlearn.messages import is_whole

__all__ = ["Record", "check_record", "check_run"]


@dataclasses.dataclass(frozen=True)
class Record:
    """One stored run.

    key: identifies the run: a hash of everything that determines its numbers.
    job: the job as JSON values, with the settings that differ from the benchmark's.
    settings: all settings of the learner, and the name of its network.
    version: of everlearn, with the commit if known. hardware: a description. started: ISO time, UTC.
    seconds: of training alone; if result["together"] is above 1, of so many runs together.
    error: one sentence if the run failed. result: what `codec.encode` returns if it did not.
    """

    key: str
    job: dict[str, Any]
    settings: dict[str, Any]
    version: str
    hardware: str
    started: str
    seconds: float
    error: str | None
    result: dict[str, Any] | None


def check_record(record: Record, where: object) -> Record:
    """Return the record if its values have the right types; else raise a ValueError that names the file `where`."""
    right = {
        **{
            name: isinstance(getattr(record, name), str) for name in ("key", "version", "hardware", "started")
        },
        **{name: isinstance(getattr(record, name), dict) for name in ("job", "settings")},
        "seconds": _is_number(record.seconds),
        "error": record.error is None or isinstance(record.error, str),
        "result": record.result is None or isinstance(record.result, dict),
    }
    for name, is_right in right.items():
        if not is_right:
            raise _invalid(record, name, where)
    return record


def check_run(record: Record, where: object) -> Record:
    """Return the record if it has all that a report needs; else raise a ValueError that names the file `where`."""
    check_record(record, where)
    for values, checks, what in ((record.job, OF_A_JOB, "job"), (record.result or {}, OF_A_RESULT, "result")):
        for name, check in checks.items():
            if name in values and not check(values[name]):
                raise _invalid(record, f"{what}'s {name}", where)
    for name in ("learner", "stream", "seed", "settings"):
        if name not in record.job:
            raise _invalid(record, f"job's {name}", where)
    if (record.error is None) == (record.result is None):
        raise _invalid(record, "result", where)
    return record


def _invalid(record: Record, what: str, where: object) -> ValueError:
    key = record.key[:40] if isinstance(record.key, str) else "without a key"
    return ValueError(f"the run {key!r} in {where} is not one that everlearn wrote: its {what} can't be read")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_metric(value: Any) -> bool:
    return value is None or _is_number(value)


def _is_horizon(value: Any) -> bool:
    return value is None or (
        isinstance(value, dict) and isinstance(value.get("extent"), str) and is_whole(value.get("epochs"), 1)
    )


def _is_confusion(value: Any) -> bool:
    if value is None:
        return True
    labels, counts = (value.get("labels"), value.get("counts")) if isinstance(value, dict) else (None, None)
    if not isinstance(labels, list) or not isinstance(counts, list) or len(labels) != len(counts):
        return False
    return all(
        isinstance(row, list) and len(row) == len(labels) and all(map(_is_count, row)) for row in counts
    )


def _is_count(value: Any) -> bool:
    return is_whole(value, least=0) and value < 2**63


def _is_evaluation(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and _is_count(value.get("samples"))
        and _is_metric(value.get("accuracy"))
        and isinstance(value.get("concepts"), dict)
        and isinstance(value.get("metrics", {}), dict)
        and all(map(_is_metric, value.get("metrics", {}).values()))
    )


def _is_dict(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_name(value: Any) -> bool:
    return isinstance(value, str)


OF_A_JOB: dict[str, Callable[[Any], bool]] = {
    "learner": _is_name,
    "stream": _is_name,
    "seed": _is_count,
    "settings": lambda value: isinstance(value, dict),
    "horizon": _is_horizon,
    "evaluator": _is_dict,
}
OF_A_RESULT: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys((*METRICS, PREQUENTIAL), _is_metric),
    "memory_bytes": _is_metric,
    "samples_per_second": _is_metric,
    "metrics": lambda value: isinstance(value, dict) and all(map(_is_metric, value.values())),
    "footprint": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "confusion": _is_confusion,
    "evaluations": lambda value: (
        value is None or (isinstance(value, list) and all(map(_is_evaluation, value)))
    ),
}
