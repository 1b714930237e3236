"""The result of a run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.evaluation import metrics as measures
from everlearn.evaluation.history import Evaluation
from everlearn.evaluation.prequential import prequential_accuracy
from everlearn.memory.labels import Label
from everlearn.notebook import card, curve

__all__ = ["Embedding", "Result"]


class Embedding(NamedTuple):
    """Features `[n, d]`, the label of each, and the prototypes."""

    features: Tensor
    labels: list[Label]
    prototypes: dict[Label, Tensor]


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run. Accuracies are fractions; those on held-out samples are nan without an evaluation.

    history: every evaluation, in order. samples: how many the stream sent.
    seconds: how long the learner learnt, without evaluation. memory: bytes of the operational memory by part.
    missed: samples that passed while the learner was busy.
    correct, sizes: for each batch, how many samples were predicted correctly before it was learnt, and its size.
    changes: after how many samples a drift detector reported a change.
    embedding: some held-out samples and the prototypes at the end, if the evaluator measures the representation.
    metric_curves: each metric of your own after every evaluation.
    """

    learner: str
    stream: str
    seed: int
    settings: dict[str, Any]
    history: list[Evaluation]
    samples: int
    seconds: float
    memory: dict[str, int]
    missed: int = 0
    correct: list[int] = dataclasses.field(default_factory=list)
    sizes: list[int] = dataclasses.field(default_factory=list)
    changes: list[int] = dataclasses.field(default_factory=list)
    embedding: Embedding | None = None
    metric_curves: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The unweighted mean of the accuracies of all tasks, at the end."""
        return measures.accuracy(self.history) if self.history else float("nan")

    @property
    def anytime_accuracy(self) -> float:
        """The mean accuracy over all evaluations."""
        return measures.anytime_accuracy(self.history) if self.history else float("nan")

    @property
    def worst_case_accuracy(self) -> float:
        """The current task's accuracy, weighed with the lowest accuracy that each earlier task fell to."""
        return measures.worst_case_accuracy(self.history) if self.history else float("nan")

    @property
    def forgetting(self) -> float:
        """How far the earlier tasks ended below their best before; negative if they ended above it."""
        return measures.forgetting(self.history) if self.history else float("nan")

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of your own at the end, as the evaluator defines them."""
        return {name: values[-1] if values else math.nan for name, values in self.metric_curves.items()}

    @property
    def prequential_accuracy(self) -> float:
        """The share of samples predicted correctly before they were learnt; missed ones count too."""
        return prequential_accuracy(self.correct, self.sizes)

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows: true labels; columns: predictions; at the end, in the natural order of the labels."""
        return measures.confusion(self.history) if self.history else np.zeros((0, 0), np.int64)

    @property
    def samples_per_second(self) -> float:
        """Samples learnt per second, without evaluation."""
        return (self.samples - self.missed) / self.seconds

    @property
    def memory_bytes(self) -> int:
        """Bytes of the operational memory at the end."""
        return sum(self.memory.values())

    def __repr__(self) -> str:
        named = ", ".join(f"{name} {value}" for name, value in self._facts().items())
        return f"Result({self.learner} on {self.stream}, seed {self.seed}: {named})"

    def _repr_html_(self) -> str:
        """The result as a notebook shows it: its numbers, and accuracy over samples."""
        picture = curve([(e.samples, e.accuracy) for e in self.history], "accuracy on the tasks seen")
        return card(f"{self.learner} on {self.stream}, seed {self.seed}", self._facts(), picture)

    def _facts(self) -> dict[str, str]:
        """The numbers that were measured, as text."""
        shares = {
            "accuracy": self.accuracy,
            "anytime accuracy": self.anytime_accuracy,
            "worst-case accuracy": self.worst_case_accuracy,
            "forgetting": self.forgetting,
            "prequential accuracy": self.prequential_accuracy,
        }
        facts = {name: f"{100 * share:.2f} %" for name, share in shares.items() if not math.isnan(share)}
        facts |= {name: f"{value:.4g}" for name, value in self.metrics.items()}
        facts |= {"samples": f"{self.samples:,}", "missed samples": f"{self.missed:,}"}
        facts |= {"memory": f"{self.memory_bytes / 1e6:.2f} MB", "learning time": f"{self.seconds:.1f} s"}
        return (
            facts if self.missed else {name: text for name, text in facts.items() if name != "missed samples"}
        )
