"""How a learner meets a stream: the loop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from everlearn.evaluation import metrics
from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.metrics import Evaluation
from everlearn.learners.base import Learner
from everlearn.streams.scenarios import Stream

__all__ = ["Result", "run"]

# Networks below this size lose more to a second thread than they gain.
SMALL_NETWORK = 5_000_000


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run came to. Accuracies are fractions.

    history: every evaluation, in order. seconds: spent learning, evaluation apart.
    """

    learner: str
    stream: str
    seed: int
    settings: dict[str, Any]
    history: list[Evaluation]
    samples: int
    seconds: float
    memory: dict[str, int]

    @property
    def accuracy(self) -> float:
        """The unweighted mean of the accuracies of all tasks, at the end."""
        return metrics.accuracy(self.history)

    @property
    def anytime_accuracy(self) -> float:
        """The mean accuracy over all evaluations."""
        return metrics.anytime_accuracy(self.history)

    @property
    def worst_case_accuracy(self) -> float:
        """The newest task's accuracy, weighed with the lowest that the others ever fell to."""
        return metrics.worst_case_accuracy(self.history)

    @property
    def forgetting(self) -> float:
        """How far the earlier tasks ended below their best."""
        return metrics.forgetting(self.history)

    @property
    def confusion(self) -> NDArray[np.int64]:
        """Rows: true labels; columns: predictions; at the end, in the natural order of the labels."""
        return self.history[-1].confusion

    @property
    def samples_per_second(self) -> float:
        """How fast it learnt, evaluation apart."""
        return self.samples / self.seconds

    @property
    def memory_bytes(self) -> int:
        """Bytes of the operational memory at the end."""
        return sum(self.memory.values())


def run(
    learner: Learner,
    stream: Stream,
    evaluator: Evaluator | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Let a learner learn from a stream, once, with an evaluator that watches.

    progress: called with the number of samples after every batch.

    >>> from everlearn import CoPE, stream
    >>> result = run(CoPE(hidden=100, memory_size=200), stream("split-digits", imbalance=1))
    >>> result.accuracy > 0.5
    True
    """
    evaluator = evaluator or Evaluator()
    tests = evaluator.tests or stream.tests
    missing = learner.needs - {"t", "tasks", "classes"}
    if missing:
        raise ValueError(f"{learner.name} must be told {', '.join(sorted(missing))}, which {stream.name} does not tell")
    history: list[Evaluation] = []
    task = 0
    clock = Stopwatch(learner.device)

    def look() -> None:
        if not history or history[-1].batches != learner.batches:
            with clock.stopped():
                history.append(evaluator.evaluate(learner, tests, task))

    with few_threads(learner), clock:
        for x, y, t in stream:
            if t != task:
                learner.end_horizon()
                if evaluator.due(learner.batches, transition=True):
                    look()
                task = t
            learner.observe(x, y, t)
            if evaluator.due(learner.batches, transition=False):
                look()
            if progress is not None:
                progress(len(x))
        learner.end_horizon()
        look()
    settings = {"network": learner.network_name, **dataclasses.asdict(learner.settings)}
    return Result(
        learner.name,
        stream.name,
        learner.seed,
        settings,
        history,
        learner.samples,
        clock.seconds,
        learner.footprint(),
    )


class Stopwatch:
    """Counts the seconds inside a `with`, less those inside `stopped`; waits for the device at both ends."""

    def __init__(self, device: torch.device) -> None:
        self.seconds = 0.0
        self._device = device

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()

    def __enter__(self) -> Stopwatch:
        self._since = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += self._now() - self._since

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Time in here is not counted."""
        self.__exit__()
        yield
        self.__enter__()


@contextmanager
def few_threads(learner: Learner) -> Iterator[None]:
    """One thread while a small network learns on the CPU; then as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
