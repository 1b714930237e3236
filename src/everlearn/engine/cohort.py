"""Several learners on one GPU at once: their batches are learnt as parallel branches of one CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core.execution import watched
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan, plan_shape
from everlearn.core.setup import add_classes
from everlearn.engine.loop import Run
from everlearn.engine.result import Result
from everlearn.engine.timing import Stopwatch
from everlearn.memory.labels import as_labels
from everlearn.streams.base import Batch
from everlearn.streams.horizon import Horizon
from everlearn.training import cuda_graph
from everlearn.training.cuda_graph import Captured
from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite

__all__ = ["Cohort", "shape_of"]

Shapes = tuple[tuple[int, ...], ...]


def shape_of(run: Run) -> Hashable | None:
    """What all runs of a cohort must have in common; None for a run that can't be in a cohort.

    A run can't be in one if its learner's step is not tensors alone, or if more than `observe` happens to a batch.
    The whole stream may be revisited when it has ended.
    """
    learner, stream = run.learner, run.stream
    if not _is_plain(run):
        return None
    sizes = tuple(len(stretch) for stretch in getattr(stream, "order", ()))
    planned = plan_shape(learner, stream.batch_size or 1)
    epochs = run.horizon.horizon.epochs
    return type(learner), learner.network_name, planned, stream.name, stream.batch_size, sizes, epochs


def _is_plain(run: Run) -> bool:
    captured = cuda_graph.available(run.learner.device) and run.learner.tensors_alone
    monitored = run.evaluator.asynchronous or run.monitor.predicts
    altered = run.clock is not None or run.task_inference is not None or run.limit is not None
    saved = run.checkpoint is not None
    finite = run.stream.samples is not None
    online = run.horizon.horizon == Horizon() or run.horizon.horizon.extent == "stream"
    # What is replayed by the classes of a batch or of a task: the shapes of the plans differ from seed to seed.
    varying = "t" in run.learner.needs or run.learner.draws_vary
    return captured and finite and online and not (monitored or altered or saved or varying)


class Member(NamedTuple):
    """Replaces a learner's own CUDA graphs while it is in a cohort.

    A batch that the learner gets outside of the cohort is learnt eagerly.
    """

    learner: Learner
    cohort: Cohort
    guard: FiniteGuard

    def __call__(self, *inputs: Any) -> None:
        """Learn from one batch outside of the cohort."""
        self.learner.learn(*inputs)

    def forget(self) -> None:
        """The learner replaced tensors that the cohort's graphs use."""
        self.cohort.forget()

    def settle(self) -> None:
        """Raise a NotFinite if a batch was refused since the last call; its samples are in the memory."""
        if bool(self.guard.refused):
            self.guard.refused.zero_()
            raise NotFinite(
                f"a batch of the run of {self.learner.name} with seed {self.learner.seed} would have made the "
                "weights infinite or NaN, so nothing was learnt from it: scale x, or lower learning_rate"
            )


class Cohort:
    """Runs of equal shape, one batch of each at a time. All samples are on the device from the start."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = list(runs)
        self.learners = [run.learner for run in runs]
        device = self.learners[0].device
        self._batches = []
        self._samples = []
        for run in runs:
            batches = list(run.stream)
            self._samples.append(torch.cat([batch.x for batch in batches]).to(device))
            # On the host only the first batch is needed, to size the network.
            self._batches.append(
                [batch._replace(x=batches[0].x[: len(batch.x)], y=as_labels(batch.y)) for batch in batches]
            )
        self._streams: list[Any] = []
        self._watch = Stopwatch(device)
        for run in self.runs:
            run.watch = self._watch
        self._guards = [FiniteGuard(learner, rows=False) for learner in self.learners]
        self._start = 0
        self._graphs: dict[Shapes, Captured] = {}

    def finish(self) -> list[Result]:
        """Learn from all streams; the seconds of each result are those of the whole cohort."""
        self._load_kernels()
        alone = [learner.graphs for learner in self.learners]
        for learner, guard in zip(self.learners, self._guards, strict=True):
            learner.graphs = Member(learner, self, guard)
        try:
            with self._watch:
                for batches in zip(*self._batches, strict=True):
                    self._learn(batches)
                self._revisit()
                for run in self.runs:
                    run.end()
        finally:
            for learner, captured in zip(self.learners, alone, strict=True):
                learner.graphs = captured
                learner.tensors_replaced()
        return [run.result() for run in self.runs]

    def _load_kernels(self) -> None:
        """Let a copy learn the first batches: the GPU's libraries load their kernels at the first use."""
        first = self.learners[0]
        if isinstance(first.given, str):
            copy = type(first)(first.given, device=str(first.device), **vars(first.settings))
            for batch in self._batches[0][:8]:
                copy.observe(batch.x, batch.y)

    def forget(self) -> None:
        """A learner replaced tensors: capture all graphs again."""
        self._graphs.clear()

    def _learn(self, batches: tuple[Batch, ...]) -> None:
        plans = []
        for run, batch in zip(self.runs, batches, strict=True):
            run.before_batch(batch)
            plans.append(self._plan(run, batch))
        start = np.array([self._start])  # the position of these batches in the samples of the streams
        self._launch([start for _ in plans], plans)
        size = len(batches[0].x)
        self._start += size
        for run, batch in zip(self.runs, batches, strict=True):
            run.arrived += size
            run.learner.count(size)
            run.after_batch(batch)

    def _revisit(self) -> None:
        """Revisit the streams for the other epochs, each in the order in which its run would do it alone."""
        for parts in zip(*(run.horizon.parts() for run in self.runs), strict=True):
            plans = [
                run.learner.plan(run.horizon.labels_at(part), keep=False)
                for run, part in zip(self.runs, parts, strict=True)
            ]
            self._launch([part.numpy() for part in parts], plans)
            for run, part in zip(self.runs, parts, strict=True):
                run.progress(len(part))
        for run in self.runs:
            run.horizon.mark_revisited()

    def _launch(self, places: Sequence[NDArray[np.int64]], plans: Sequence[Plan]) -> None:
        """Learn from one batch of every run. places: where its samples are, see `sample_places`."""
        decided = [[where, *plan.arrays()] for where, plan in zip(places, plans, strict=True)]
        shapes, form = tuple(part.shape for part in decided[0]), plans[0]
        packed = torch.from_numpy(np.array([np.concatenate(parts, axis=None) for parts in decided]))
        self._run_branches(packed.to(self._watch.device, non_blocking=True), shapes, form)

    def _run_branches(self, table: Tensor, shapes: Shapes, form: Plan) -> None:
        if shapes not in self._graphs:
            self._graphs[shapes] = Captured(
                lambda table: self._branches(table, shapes, form), watched=watched(self.learners)
            )
        self._graphs[shapes](table)

    def _plan(self, run: Run, batch: Batch) -> Plan:
        """What the host decides for a batch."""
        if run.learner.labels.new(batch.y):
            add_classes(run.learner, batch.x, batch.y)
        return run.learner.plan(batch.y)

    def _branches(self, table: Tensor, shapes: Shapes, form: Plan) -> None:
        """One batch of every learner, each on its own CUDA stream. Tensors alone. form: what the plans are like."""
        while len(self._streams) < len(self.runs):
            self._streams.append(torch.cuda.Stream(self._watch.device))  # type: ignore[no-untyped-call]
        main = torch.cuda.current_stream()
        begun = main.record_event()
        ends = []
        for place, stream in enumerate(self._streams):
            with torch.cuda.stream(stream):
                stream.wait_event(begun)
                self._branch(place, table[place], shapes, form)
                ends.append(stream.record_event())
        for end in ends:
            main.wait_event(end)

    def _branch(self, place: int, row: Tensor, shapes: Shapes, form: Plan) -> None:
        """One batch of the learner at this place. Tensors alone."""
        parts = torch.split(row, [math.prod(shape) for shape in shapes])
        where, *arrays = (part.view(shape) for part, shape in zip(parts, shapes, strict=True))
        plan = form.filled(arrays)
        self._guards[place](self._samples[place][sample_places(where, len(plan.slots))], plan)


def sample_places(where: Tensor, size: int) -> Tensor:
    """The positions of the samples of a batch: all of them, or as many as its size from one on.

    >>> sample_places(torch.tensor([7]), 3), sample_places(torch.tensor([5, 2, 9]), 3)
    (tensor([7, 8, 9]), tensor([5, 2, 9]))
    """
    return where if len(where) == size else where + torch.arange(size, device=where.device)
