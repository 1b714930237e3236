"""Scenarios in which classes come task by task, and the iid stream that they are measured against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from everlearn.streams.dataset_stream import Arrangement, Concept, Course, Stretch
from everlearn.streams.task_split import Source

__all__ = ["blurry", "iid", "long_tailed", "recurring", "split"]


def split(source: Source, amount: float) -> Arrangement:
    """Task after task."""
    return _by_task(source, source.sent)


def iid(source: Source, amount: float) -> Arrangement:
    """The same samples, all shuffled together, as one task; each task of the split is still a concept."""
    concepts = _concepts(source)
    return Arrangement((Stretch(source.shuffled(), 0),), concepts, ((0, tuple(range(len(concepts)))),))


def long_tailed(source: Source, amount: float) -> Arrangement:
    """Task after task, of which class k = 0, …, K−1 keeps n_k · amount^(k/(K−1)) samples, at least one.

    Classes are taken in their natural order, so the first are the frequent ones.
    """
    labels = np.unique(source.y[torch.cat(source.sent)].numpy()).tolist()
    kept = []
    for task in source.sent:
        keep = torch.zeros(len(task), dtype=torch.bool)
        for k, label in enumerate(labels):
            places = (source.y[task] == label).nonzero().flatten()
            share = amount ** (k / max(len(labels) - 1, 1))
            keep[places[: max(round(len(places) * share), 1)]] = True
        kept.append(task[keep])
    return _by_task(source, kept)


def recurring(source: Source, amount: float) -> Arrangement:
    """Every task comes `amount` times, each time with new samples; all tasks come before one comes again."""
    rounds = int(amount)
    fewest = min(len(task) for task in source.sent)
    if rounds > fewest:
        raise ValueError(f"a task of {fewest} samples can't come {rounds} times; choose a smaller amount")
    parts = [task.tensor_split(rounds) for task in source.sent]
    stretches = tuple(Stretch(part[i], t) for i in range(rounds) for t, part in enumerate(parts))
    return Arrangement(stretches, _concepts(source))


def blurry(source: Source, amount: float) -> Arrangement:
    """Tasks that mix around each transition, over `amount` times the length of the shorter one.

    The chance that a sample is of the next task rises linearly from 0 to 1, and every sample is still sent
    once. t changes in the middle, where the chances are even: it says which task most samples are of.
    """
    tasks = list(source.sent)
    course: Course = ((0, (0,)),)
    end = 0
    for t in range(len(tasks) - 1):
        before, after = tasks[t], tasks[t + 1]
        half = int(amount * min(len(before), len(after)) / 2)
        end += len(before)
        if half == 0:
            course += ((end, (t + 1,)),)
            continue
        mixed = _mixed(before[-half:], after[:half], source.generator)
        tasks[t] = torch.cat([before[:-half], mixed[:half]])
        tasks[t + 1] = torch.cat([mixed[half:], after[half:]])
        course += ((end - half, (t, t + 1)), (end + half, (t + 1,)))
    return _by_task(source, tasks, course)


def _mixed(before: Tensor, after: Tensor, generator: torch.Generator) -> Tensor:
    """Two equally long series as one, in which the chance of the second rises linearly from 0 to 1.

    Each sample draws its time in [0, 1]: those of the first with density 2(1 − u), those of the second with
    2u. Together they come evenly, and at time u a share of u is of the second.
    """
    times = torch.rand(2, len(before), generator=generator, dtype=torch.float64).sqrt().sort(1).values
    order = torch.cat([1 - times[0].flip(0), times[1]]).argsort(stable=True)
    return torch.cat([before, after])[order]


def _by_task(source: Source, sent: Sequence[Tensor], course: Course = ()) -> Arrangement:
    stretches = tuple(Stretch(samples, t) for t, samples in enumerate(sent))
    return Arrangement(stretches, _concepts(source), course)


def _concepts(source: Source) -> tuple[Concept, ...]:
    return tuple(Concept(held_out) for held_out in source.held_out)
