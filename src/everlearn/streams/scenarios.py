"""The order in which a dataset arrives: split into tasks, balanced or S(T_i), or iid."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from everlearn.streams.datasets import Dataset

__all__ = ["Batch", "Order", "Stream", "split_stream"]

Order = Literal["split", "iid"]


class Batch(NamedTuple):
    """What arrives at once: samples, their labels, and the identifier of the task they belong to."""

    x: Tensor
    y: Tensor
    t: int


@dataclasses.dataclass(frozen=True)
class Stream:
    """A finite stream over a dataset: the same batches in the same order whenever it is iterated.

    >>> from everlearn import stream
    >>> x, y, t = next(iter(stream("split-digits", seed=0)))
    >>> x.shape, x.dtype, sorted(set(y.tolist())), t
    (torch.Size([10, 64]), torch.uint8, [0, 1], 0)
    """

    name: str
    x: Tensor
    y: Tensor
    order: tuple[Tensor, ...]  # for each task, the samples it sends, in order
    tests: tuple[tuple[Tensor, Tensor], ...]  # for each concept, held-out samples and their labels
    batch_size: int
    seed: int
    imbalance: int | None = None

    @property
    def samples(self) -> int:
        """How many samples the stream sends."""
        return sum(len(task) for task in self.order)

    @property
    def classes(self) -> list[int]:
        """The labels it sends, in natural order."""
        return sorted(set(self.y.tolist()))

    def __len__(self) -> int:
        """How many batches the stream sends."""
        return sum(-(-len(task) // self.batch_size) for task in self.order)

    def __iter__(self) -> Iterator[Batch]:
        """The batches in order. None crosses a task, so the last of a task can be short."""
        for t, task in enumerate(self.order):
            for part in task.split(self.batch_size):
                yield Batch(self.x[part], self.y[part], t)


def split_stream(
    name: str,
    dataset: Dataset,
    classes_per_task: int,
    sizes: list[int] | None,
    batch_size: int,
    seed: int,
    order: Order = "split",
    imbalance: int | None = None,
) -> Stream:
    """Tasks of consecutive labels; task i sends a random `sizes[i]` of its samples, or all, in random order."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.from_numpy(dataset.y_train).long()
    y_test, x_test = torch.from_numpy(dataset.y_test).long(), torch.from_numpy(dataset.x_test)
    sent, tests = [], []
    for t, labels in enumerate(_tasks(y, classes_per_task)):
        of_task = torch.isin(y, labels).nonzero().flatten()
        shuffled = of_task[torch.randperm(len(of_task), generator=generator)]
        sent.append(shuffled if sizes is None else shuffled[: sizes[t]])
        held_out = torch.isin(y_test, labels)
        tests.append((x_test[held_out], y_test[held_out]))
    if order == "iid":
        union = torch.cat(sent)
        sent = [union[torch.randperm(len(union), generator=generator)]]
    return Stream(
        name, torch.from_numpy(dataset.x_train), y, tuple(sent), tuple(tests), batch_size, seed, imbalance
    )


def _tasks(y: Tensor, classes_per_task: int) -> tuple[Tensor, ...]:
    return y.unique().split(classes_per_task)
