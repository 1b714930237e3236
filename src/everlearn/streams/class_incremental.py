"""Class-incremental scenarios: each task has other classes. And the iid stream, as the reference for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from everlearn.streams.dataset_stream import Arrangement, Concept, Schedule, Segment
from everlearn.streams.task_split import TaskSplit

__all__ = ["blurry", "iid", "long_tailed", "recurring", "split"]


def split(source: TaskSplit, amount: float) -> Arrangement:
    """Task after task."""
    return _by_task(source, source.sent)


def iid(source: TaskSplit, amount: float) -> Arrangement:
    """The same samples shuffled together, as one task; each task of the split is still a concept."""
    concepts = _concepts(source)
    return Arrangement((Segment(source.shuffled(), 0),), concepts, ((0, tuple(range(len(concepts)))),))


def long_tailed(source: TaskSplit, amount: float) -> Arrangement:
    """Task after task; class k = 0, …, K−1 keeps n_k · amount^(k/(K−1)) of its samples, at least one.

    The classes count in the order of the tasks, so the first ones are the most frequent.
    """
    sent = set(np.unique(source.y[torch.cat(source.sent)].numpy()).tolist())
    labels = [label for label in source.order if label in sent]
    kept = []
    for task in source.sent:
        keep = torch.zeros(len(task), dtype=torch.bool)
        for k, label in enumerate(labels):
            indices = (source.y[task] == label).nonzero().flatten()
            share = amount ** (k / max(len(labels) - 1, 1))
            keep[indices[: max(round(len(indices) * share), 1)]] = True
        kept.append(task[keep])
    return _by_task(source, kept)


def recurring(source: TaskSplit, amount: float) -> Arrangement:
    """Every task comes `amount` times, each time with new samples; a task returns after all others have come."""
    rounds = int(amount)
    fewest = min(len(task) for task in source.sent)
    if rounds > fewest:
        raise ValueError(f"a task of {fewest} samples can't come {rounds} times; choose a smaller amount")
    parts = [task.tensor_split(rounds) for task in source.sent]
    segments = tuple(Segment(part[i], t) for i in range(rounds) for t, part in enumerate(parts))
    return Arrangement(segments, _concepts(source))


def blurry(source: TaskSplit, amount: float) -> Arrangement:
    """Consecutive tasks are mixed around their boundary, over `amount` times the length of the shorter one.

    The probability of the next task rises linearly from 0 to 1, and every sample is sent once. t changes in the
    middle, where both are equally likely, so it is the task of most samples.
    """
    tasks = list(source.sent)
    schedule: Schedule = ((0, (0,)),)
    end = 0
    for t in range(len(tasks) - 1):
        before, after = tasks[t], tasks[t + 1]
        half = int(amount * min(len(before), len(after)) / 2)
        end += len(before)
        if half == 0:
            schedule += ((end, (t + 1,)),)
            continue
        mixed = _mixed(before[-half:], after[:half], source.generator)
        tasks[t] = torch.cat([before[:-half], mixed[:half]])
        tasks[t + 1] = torch.cat([mixed[half:], after[half:]])
        schedule += ((end - half, (t, t + 1)), (end + half, (t + 1,)))
    return _by_task(source, tasks, schedule)


def _mixed(before: Tensor, after: Tensor, generator: torch.Generator) -> Tensor:
    """Merge two sequences of equal length; the probability of the second rises linearly from 0 to 1.

    Each sample draws a time u in [0, 1], with density 2(1 − u) in the first sequence and 2u in the second. Together
    the times are uniform, and at time u a share u of the samples is from the second sequence.
    """
    times = torch.rand(2, len(before), generator=generator, dtype=torch.float64).sqrt().sort(1).values
    order = torch.cat([1 - times[0].flip(0), times[1]]).argsort(stable=True)
    return torch.cat([before, after])[order]


def _by_task(source: TaskSplit, sent: Sequence[Tensor], schedule: Schedule = ()) -> Arrangement:
    segments = tuple(Segment(samples, t) for t, samples in enumerate(sent))
    return Arrangement(segments, _concepts(source), schedule)


def _concepts(source: TaskSplit) -> tuple[Concept, ...]:
    return tuple(Concept(held_out) for held_out in source.held_out)
