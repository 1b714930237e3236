"""A dataset arranged as a stream: which samples are sent, when, as what task, and how they look."""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from everlearn.streams.base import Batch, Stream, Tests
from everlearn.streams.task_split import Source

__all__ = ["Arrangement", "Concept", "Course", "DatasetStream", "Drift", "Look", "Stretch"]

Look = Callable[[Tensor], Tensor]
"""How samples look in a domain: a function of a batch of them."""

Course = tuple[tuple[int, tuple[int, ...]], ...]
"""From which sample on which concepts are in force."""


class Stretch(NamedTuple):
    """A part of the stream that no batch crosses the end of.

    samples: which ones, in order. t: the identifier they are sent with.
    look, changed: how they look, if not as in the dataset; and which of them do, if not all.
    """

    samples: Tensor
    t: int | None
    look: Look | None = None
    changed: Tensor | None = None

    def show(self, x: Tensor, part: slice) -> Tensor:
        """This part of its samples as they look when they are sent."""
        if self.look is None:
            return x
        if self.changed is None:
            return self.look(x)
        return mix(x, self.look(x), self.changed[part])


class Concept(NamedTuple):
    """What the evaluator can ask for: which of the test samples, and how they look, if not as they are."""

    held_out: Tensor
    look: Look | None = None


class Drift(NamedTuple):
    """When the second of two concepts replaces the first: ever likelier from one sample to another.

    ranks: for each test sample, how likely the second concept must be for it to look that way.
    """

    start: int
    stop: int
    ranks: Tensor

    def chance(self, samples: int) -> float:
        """How likely the second concept is for the last of so many samples."""
        if samples <= self.start:
            return 0.0
        return 1.0 if samples > self.stop else (samples - self.start - 0.5) / (self.stop - self.start)


@dataclasses.dataclass(frozen=True, eq=False)
class Arrangement:
    """What a scenario makes of a source.

    Without a course, every stretch is of one task, and a task is a concept.
    """

    stretches: tuple[Stretch, ...]
    concepts: tuple[Concept, ...]
    course: Course = ()
    drift: Drift | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class DatasetStream(Stream):
    """A finite stream over a dataset: the same batches in the same order whenever it is iterated.

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
    source: Source = dataclasses.field(repr=False)
    arrangement: Arrangement = dataclasses.field(repr=False)

    def __iter__(self) -> Iterator[Batch]:
        """The batches in order. None crosses a stretch, so the last of a stretch can be short."""
        for stretch in self.arrangement.stretches:
            for start in range(0, len(stretch.samples), self.batch_size):
                part = slice(start, start + self.batch_size)
                which = stretch.samples[part]
                yield Batch(stretch.show(self.x[which], part), self.y[which], stretch.t)

    def __len__(self) -> int:
        """How many batches the stream sends."""
        return sum(-(-len(samples) // self.batch_size) for samples in self.order)

    @property
    def x(self) -> Tensor:
        """The dataset's training samples, in the dataset's order and looks."""
        return self.source.x

    @property
    def y(self) -> Tensor:
        """Their labels."""
        return self.source.y

    @property
    def order(self) -> tuple[Tensor, ...]:
        """For each stretch, the places in `x` and `y` of the samples it sends, in order."""
        return tuple(stretch.samples for stretch in self.arrangement.stretches)

    @functools.cached_property
    def samples(self) -> int:
        """How many samples the stream sends."""
        return sum(len(samples) for samples in self.order)

    @functools.cached_property
    def classes(self) -> list[int]:
        """The labels it sends, in natural order."""
        labels: list[int] = np.unique(self.y[torch.cat(self.order)].numpy()).tolist()
        return labels

    @property
    def tasks(self) -> int | None:
        """How many tasks there are; None where the stream hides them."""
        return len({stretch.t for stretch in self.arrangement.stretches}) if "t" in self.tells else None

    @property
    def tells(self) -> frozenset[str]:
        """What it tells a learner: of "t", "tasks" and "classes", those it does."""
        hidden = any(stretch.t is None for stretch in self.arrangement.stretches)
        return frozenset({"classes"} if hidden else {"t", "tasks", "classes"})

    @functools.cached_property
    def tests(self) -> Tests:
        """The held-out samples and labels of each concept."""
        whole = self.source
        shown = []
        for which, look in self.arrangement.concepts:
            x = whole.x_test[which]
            shown.append((x if look is None else look(x), whole.y_test[which]))
        return tuple(shown)

    def tests_at(self, samples: int) -> Tests:
        """`tests`; where the stream drifts, one concept: the held-out samples as the last one sent looked."""
        drift = self.arrangement.drift
        if drift is None:
            return self.tests
        (before, y), (after, _) = self.tests
        return ((mix(before, after, drift.ranks < drift.chance(samples)), y),)

    def current(self, samples: int) -> tuple[int, ...]:
        """The concepts in force when it has sent so many: those its last sample was drawn from."""
        last = max(samples - 1, 0)
        course = self.arrangement.course or self._task_by_task
        return course[bisect_right(course, last, key=lambda change: change[0]) - 1][1]

    @functools.cached_property
    def _task_by_task(self) -> Course:
        starts = np.cumsum([0, *map(len, self.order)]).tolist()
        stretches = self.arrangement.stretches
        return tuple((start, (stretch.t or 0,)) for start, stretch in zip(starts, stretches, strict=False))


def mix(x: Tensor, other: Tensor, which: Tensor) -> Tensor:
    """The samples of `other` where `which` says so, else those of `x`."""
    return torch.where(which.view(-1, *[1] * (x.ndim - 1)), other, x)
