"""How the result of a run is written as JSON values, and read back.

Every store and every file of results contains this form.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everlearn.engine.result import Result
from everlearn.evaluation.history import Evaluation
from everlearn.memory.labels import Label

__all__ = ["METRICS", "PREQUENTIAL", "StoredResult", "decode", "encode"]

METRICS = ("accuracy", "anytime_accuracy", "worst_case_accuracy", "forgetting")
PREQUENTIAL = "prequential_accuracy"
"""Stored where every batch was predicted before it was learnt."""


@dataclasses.dataclass(frozen=True)
class StoredResult:
    """The result of a run as it was stored. Accuracies are fractions; None where a metric was not defined.

    metrics: the library's, with the prequential accuracy where it was measured, then those of the user's own.
    footprint: bytes of the operational memory by part. concepts: accuracy of each task at the end.
    together: how many runs shared the time.
    """

    metrics: Mapping[str, float | None]
    samples: int
    memory_bytes: int | None
    footprint: Mapping[str, int]
    samples_per_second: float | None
    concepts: Mapping[str, float]
    together: int
    evaluations: Sequence[Mapping[str, Any]] = dataclasses.field(repr=False)
    confusion: Mapping[str, Any] = dataclasses.field(repr=False)

    @property
    def accuracy(self) -> float | None:
        """The unweighted mean over tasks at the end."""
        return self.metrics["accuracy"]

    @property
    def history(self) -> list[Evaluation]:
        """Every evaluation that has an accuracy, with its mean accuracy alone."""
        return [
            _evaluation(each["samples"], len(each["concepts"]) - 1, each["accuracy"])
            for each in self.evaluations
            if each["accuracy"] is not None
        ]

    @property
    def end(self) -> Evaluation | None:
        """The last evaluation with its confusion matrix; None where the matrix was not stored."""
        labels = tuple(self.confusion.get("labels", ()))
        if not labels:
            return None
        counts = np.array(self.confusion["counts"], np.int64)
        return dataclasses.replace(_evaluation(0, 0, self.accuracy), labels=labels, confusion=counts)


def encode(result: Result, together: int = 1) -> dict[str, Any]:
    """A result as JSON values. together: how many runs shared the time it took."""
    last = result.history[-1] if result.history else None
    curves = result.metric_curves.items()
    of_own = (
        [{name: _number(values[place]) for name, values in curves} for place in range(len(result.history))]
        if curves
        else []
    )
    return {
        **{metric: _number(getattr(result, metric)) for metric in METRICS},
        "samples": result.samples,
        "memory_bytes": result.memory_bytes,
        "footprint": dict(result.memory),
        "samples_per_second": result.samples_per_second,
        "concepts": {} if last is None else _concepts(last.accuracies),
        "confusion": {
            "labels": [] if last is None else [_label(label) for label in last.labels],
            "counts": result.confusion.tolist(),
        },
        "evaluations": [
            {
                "samples": evaluation.samples,
                "accuracy": _number(evaluation.accuracy),
                "concepts": _concepts(evaluation.accuracies),
                **({"metrics": of_own[place]} if of_own else {}),
            }
            for place, evaluation in enumerate(result.history)
        ],
        "together": together,
        **({PREQUENTIAL: _number(result.prequential_accuracy)} if result.sizes else {}),
        **({"metrics": {name: _number(value) for name, value in result.metrics.items()}} if of_own else {}),
    }


def decode(values: Mapping[str, Any] | None) -> StoredResult:
    """A result from the JSON values that `encode` made; what an older version did not store is empty."""
    values = values or {}
    return StoredResult(
        metrics={metric: values.get(metric) for metric in METRICS}
        | {name: values[name] for name in (PREQUENTIAL,) if name in values}
        | (values.get("metrics") or {}),
        samples=values.get("samples", 0),
        memory_bytes=values.get("memory_bytes"),
        footprint=values.get("footprint", {}),
        samples_per_second=values.get("samples_per_second"),
        concepts=values.get("concepts", {}),
        together=values.get("together", 1),
        evaluations=values.get("evaluations") or (),
        confusion=values.get("confusion") or {},
    )


def _evaluation(samples: int, task: int, accuracy: Any) -> Evaluation:
    return Evaluation(0, samples, task, {0: accuracy}, (), np.zeros((0, 0), np.int64))


def _concepts(accuracies: dict[int, float]) -> dict[str, float]:
    return {f"task {task + 1}": accuracy for task, accuracy in accuracies.items()}


def _label(label: Label) -> str | int | float | None:
    """A label as JSON has it; a text for bytes, tuples and the answer "none of these".

    >>> _label(3), _label("cat"), _label(("left", b"1"))
    (3, 'cat', "('left', b'1')")
    """
    return label if label is None or isinstance(label, str | int | float) else repr(label)


def _number(value: float) -> float | None:
    """JSON has no nan."""
    return None if math.isnan(value) else float(value)
