"""The record of a run in a checkpoint: every value is checked before any of it is used."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from everlearn.engine.task_inference import Novelty
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.record import from_record
from everlearn.memory.labels import Label, decode_label
from everlearn.messages import is_whole

__all__ = ["OF_MONITOR", "OF_RUN", "RunRecord", "read_record"]

# Name in the file: attribute of the run or of its monitor. These are plain numbers, lists of them or None.
OF_RUN = {"taken": "taken", "arrived": "arrived", "missed": "missed", "told": "t", "done": "done"}
OF_MONITOR = {
    "moment": "moment",
    "task": "task",
    "looked": "evaluated_at",
    "correct": "correct",
    "sizes": "sizes",
    "changes": "changes",
}

Check = Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """What a checkpoint holds of a run besides its learner.

    values: by name, as they were written. horizon: its samples, as plain values and tensors.
    """

    values: dict[str, Any]
    history: list[Evaluation]
    prototypes: dict[Label, Tensor]
    novelty: dict[str, Any] | None
    horizon: tuple[dict[str, Any], dict[str, Tensor]]


def read_record(state: Mapping[str, Any], kept: dict[str, Tensor]) -> RunRecord:
    """The record in the state of a run; a ValueError names what is wrong with it.

    kept: the tensors of the horizon.
    """
    written = _tensor(state, "run.record", torch.uint8, 1)
    try:
        values = json.loads(written.numpy().tobytes())
    except (ValueError, RecursionError):
        raise ValueError("its record is not JSON") from None
    if not isinstance(values, dict):
        raise ValueError("its record has no named values")
    for name, check in CHECKS.items():
        if name not in values or not check(values[name]):
            raise ValueError(f"its {name!r} is missing or can't be read")
    if len(values["correct"]) != len(values["sizes"]):
        raise ValueError("its 'correct' and 'sizes' differ in length")
    history = _history(values["history"], _tensor(state, "run.confusions", torch.int64, 1))
    prototypes = _prototypes(values["prototypes"], state)
    return RunRecord(
        values, history, prototypes, _novelty(values["novelty"]), _horizon(values["horizon"], kept)
    )


def _tensor(state: Mapping[str, Any], name: str, kind: torch.dtype, sides: int) -> Tensor:
    tensor = state.get(name)
    if not isinstance(tensor, Tensor) or tensor.dtype != kind or tensor.ndim != sides:
        raise ValueError(f"its {name!r} is missing or not a tensor of {kind}")
    return tensor


def _history(evaluations: list[dict[str, Any]], confusions: Tensor) -> list[Evaluation]:
    for number, evaluation in enumerate(evaluations, 1):
        for name, check in OF_AN_EVALUATION.items():
            if name not in evaluation or not check(evaluation[name]):
                raise ValueError(f"the {name!r} of its evaluation {number} is missing or can't be read")
        for code in evaluation["labels"]:
            _label(code)
        for name in ("exemplars", "prototype_truth", "prototype_shift"):
            for code, _ in evaluation[name]:
                _label(code)
    if sum(len(evaluation["labels"]) ** 2 for evaluation in evaluations) != len(confusions):
        raise ValueError("its confusion matrices do not belong to its evaluations")
    return from_record(evaluations, confusions)


def _prototypes(codes: list[Any], state: Mapping[str, Any]) -> dict[Label, Tensor]:
    if not codes:
        return {}
    vectors = _tensor(state, "run.prototypes", torch.float32, 2)
    if len(vectors) != len(codes):
        raise ValueError(f"it has {len(vectors)} prototypes for {len(codes)} labels")
    return dict(zip(map(_label, codes), vectors, strict=True))


def _novelty(values: dict[str, Any] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    read: dict[str, Any] = {}
    for name, default in vars(Novelty()).items():
        value = values.get(name)
        if isinstance(default, set):
            codes = value.get("labels") if isinstance(value, dict) else None
            valid, value = isinstance(codes, list), {_label(code) for code in codes or []}
        else:
            valid = _is_count(value) if isinstance(default, int) else _is_number(value)
        if not valid:
            raise ValueError(f"the {name!r} of its 'novelty' is missing or can't be read")
        read[name] = value
    return read


def _horizon(plain: dict[str, Any], kept: dict[str, Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    checks = {"samples": _is_count, "y": _is_list, "t": _is_list_of(_is_task), "batch": _is_count}
    for name, check in checks.items():
        if name not in plain or not check(plain[name]):
            raise ValueError(f"the {name!r} of its horizon is missing or can't be read")
    for code in plain["y"]:
        _label(code)
    samples = kept.get("samples")
    count = 0 if samples is None or not samples.ndim else len(samples)
    if not len(plain["y"]) == len(plain["t"]) == count or (count and not plain["batch"]):
        raise ValueError("the samples, labels and tasks of its horizon differ in number")
    try:
        torch.Generator().set_state(_tensor(kept, "generator", torch.uint8, 1))
    except (ValueError, RuntimeError, TypeError):
        raise ValueError("the state of its horizon's generator is missing or can't be read") from None
    return plain, kept


def _label(code: Any) -> Label:
    try:
        label = decode_label(code)
        hash(label)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ValueError("one of its labels can't be read") from None
    return label


def _is_count(value: Any) -> bool:
    return is_whole(value, least=0)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_measure(value: Any) -> bool:
    """A number that may be nan, where there was nothing to measure."""
    return isinstance(value, float) or _is_number(value)


def _is_task(value: Any) -> bool:
    return value is None or is_whole(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_pair_of(first: Check, second: Check) -> Check:
    return lambda value: isinstance(value, list) and len(value) == 2 and first(value[0]) and second(value[1])


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_any(value: Any) -> bool:
    return True


CHECKS: dict[str, Check] = {
    "terms": lambda value: isinstance(value, dict),
    "last": is_whole,
    "met": _is_list_of(_is_count),
    "looked": is_whole,
    "seconds": _is_number,
    "late": _or_none(_is_number),
    "novelty": lambda value: value is None or isinstance(value, dict),
    "history": _is_list_of(lambda value: isinstance(value, dict)),
    "prototypes": _is_list,
    "taken": _is_count,
    "arrived": _is_count,
    "missed": _is_count,
    "told": _is_task,
    "done": lambda value: isinstance(value, bool),
    "moment": _is_count,
    "task": _is_task,
    "correct": _is_list_of(_is_count),
    "sizes": _is_list_of(_is_count),
    "changes": _is_list_of(_is_count),
    "horizon": lambda value: isinstance(value, dict),
}
OF_AN_EVALUATION: dict[str, Check] = {
    "batches": _is_count,
    "samples": _is_count,
    "task": is_whole,
    "accuracies": _is_list_of(_is_pair_of(is_whole, _is_measure)),
    "labels": _is_list,
    "seen": _or_none(_is_list_of(is_whole)),
    "exemplars": _is_list_of(_is_pair_of(_is_any, _is_count)),
    "prototype_truth": _is_list_of(_is_pair_of(_is_any, _is_measure)),
    "variance": _or_none(_is_pair_of(_is_measure, _is_measure)),
    "prototype_shift": _is_list_of(_is_pair_of(_is_any, _is_measure)),
}
