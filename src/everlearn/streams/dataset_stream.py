"""A dataset as a stream: which samples are sent, in which order, as which task, with which transform."""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.streams.base import Batch, Stream, Tests
from everlearn.streams.lazy_samples import LazySamples, TransformedSamples
from everlearn.streams.task_split import TaskSplit

__all__ = ["Arrangement", "Concept", "DatasetStream", "Drift", "Schedule", "Segment", "Transform"]

Transform = Callable[[Tensor], Tensor]
"""Changes how a batch of samples looks, as in another domain."""

Schedule = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a sample number and the concepts that are active from there on."""


class Segment(NamedTuple):
    """A part of the stream; no batch contains samples of two segments.

    samples: the indices of its samples, in order. t: the task number they are sent with.
    transform: applied to the samples, or None. transformed: a mask of the samples it applies to, or None for all.
    """

    samples: Tensor
    t: int | None
    transform: Transform | None = None
    transformed: Tensor | None = None

    def apply(self, x: Tensor, part: slice) -> Tensor:
        """Apply the transform to this part of the samples."""
        if self.transform is None:
            return x
        if self.transformed is None:
            return self.transform(x)
        return select(x, self.transform(x), self.transformed[part])


class Concept(NamedTuple):
    """A test set of the stream: the indices of its samples, and the transform that applies to them, if any."""

    held_out: Tensor
    transform: Transform | None = None


class Drift(NamedTuple):
    """The second of two concepts replaces the first: its probability rises linearly between two samples.

    ranks: for each test sample, the probability of the second concept from which on it is transformed.
    """

    start: int
    stop: int
    ranks: Tensor

    def probability(self, samples: int) -> float:
        """The probability of the second concept for the last of this many samples."""
        if samples <= self.start:
            return 0.0
        return 1.0 if samples > self.stop else (samples - self.start - 0.5) / (self.stop - self.start)


@dataclasses.dataclass(frozen=True, eq=False)
class Arrangement:
    """The order of a stream, as a scenario defines it.

    Without a schedule, every segment belongs to one task, and each task is a concept.
    """

    segments: tuple[Segment, ...]
    concepts: tuple[Concept, ...]
    schedule: Schedule = ()
    drift: Drift | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class DatasetStream(Stream):
    """A finite stream over a dataset: the same batches in the same order each time it is iterated.

    >>> from everlearn import stream
    >>> x, y, t = next(iter(stream("split-digits", seed=0)))
    >>> x.shape, x.dtype, sorted(set(y.tolist())), t
    (torch.Size([10, 64]), torch.uint8, [0, 1], 0)
    """

    name: str
    scenario: str
    seed: int
    batch_size: int
    imbalance: int | None
    source: TaskSplit = dataclasses.field(repr=False)
    arrangement: Arrangement = dataclasses.field(repr=False)

    def __iter__(self) -> Iterator[Batch]:
        """The batches in order. The last batch of a segment can be short."""
        parts = [
            (segment, slice(start, start + self.batch_size))
            for segment in self.arrangement.segments
            for start in range(0, len(segment.samples), self.batch_size)
        ]
        indices = [segment.samples[part] for segment, part in parts]
        samples = (
            self.x.batches(indices) if isinstance(self.x, LazySamples) else map(self.x.__getitem__, indices)
        )
        for (segment, part), places, x in zip(parts, indices, samples, strict=True):
            yield Batch(segment.apply(x, part), self.source.labels(self.y[places]), segment.t)

    def __len__(self) -> int:
        """How many batches the stream sends."""
        return sum(-(-len(samples) // self.batch_size) for samples in self.order)

    @property
    def x(self) -> Tensor | LazySamples:
        """The training samples of the dataset, in its own order and without transforms."""
        return self.source.x

    @property
    def y(self) -> Tensor:
        """The class number of each sample of `x`; a number of a named class is its place among the sorted names."""
        return self.source.y

    @property
    def order(self) -> tuple[Tensor, ...]:
        """For each segment, the indices in `x` and `y` of its samples, in order."""
        return tuple(segment.samples for segment in self.arrangement.segments)

    @functools.cached_property
    def samples(self) -> int:
        """How many samples the stream sends."""
        return sum(len(samples) for samples in self.order)

    @functools.cached_property
    def classes(self) -> list[Any]:
        """The labels it sends, sorted."""
        numbers: list[int] = np.unique(self.y[torch.cat(self.order)].numpy()).tolist()
        return numbers if self.source.names is None else [self.source.names[number] for number in numbers]

    @property
    def tasks(self) -> int | None:
        """How many tasks there are; None if the stream hides them."""
        return len({segment.t for segment in self.arrangement.segments}) if "t" in self.tells else None

    @property
    def tells(self) -> frozenset[str]:
        """The information for learners: a subset of `{"t", "tasks", "classes"}`."""
        hidden = any(segment.t is None for segment in self.arrangement.segments)
        return frozenset({"classes"} if hidden else {"t", "tasks", "classes"})

    @functools.cached_property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept."""
        test_sets: list[tuple[Any, Any]] = []
        for indices, transform in self.arrangement.concepts:
            y = self.source.labels(self.source.y_test[indices])
            if isinstance(self.source.x_test, LazySamples):
                lazy = self.source.x_test.subset(indices)
                test_sets.append((lazy if transform is None else TransformedSamples(lazy, transform), y))
                continue
            x = self.source.x_test[indices]
            test_sets.append((x if transform is None else transform(x), y))
        return tuple(test_sets)

    def tests_at(self, samples: int) -> Tests:
        """`tests`; if the stream drifts, one test set with the distribution of the last sample sent."""
        drift = self.arrangement.drift
        if drift is None:
            return self.tests
        (before, y), (after, _) = self.tests
        mask = drift.ranks < drift.probability(samples)
        if isinstance(before, LazySamples):
            transform = self.arrangement.concepts[1].transform
            assert transform is not None
            return ((TransformedSamples(before, transform, mask), y),)
        return ((select(before, after, mask), y),)

    def current(self, samples: int) -> tuple[int, ...]:
        """The concepts that the last of this many samples was drawn from."""
        last = max(samples - 1, 0)
        schedule = self.arrangement.schedule or self._task_by_task
        return schedule[bisect_right(schedule, last, key=lambda change: change[0]) - 1][1]

    @functools.cached_property
    def _task_by_task(self) -> Schedule:
        starts = np.cumsum([0, *map(len, self.order)]).tolist()
        segments = self.arrangement.segments
        return tuple((start, (segment.t or 0,)) for start, segment in zip(starts, segments, strict=False))


def select(x: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """The samples of `other` where the mask is true, else those of `x`."""
    return torch.where(mask.view(-1, *[1] * (x.ndim - 1)), other, x)
