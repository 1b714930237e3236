"""Split a dataset into tasks of a few classes each; scenarios define the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.streams.datasets import Dataset

__all__ = ["TaskSplit", "as_tensor", "hold_out_validation", "split_into_tasks"]


class TaskSplit(NamedTuple):
    """A dataset as tensors, split into tasks of consecutive labels.

    sent, held_out: for each task, the shuffled indices of its training samples, and those of its test samples.
    generator: the source of any further randomness.
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    sent: tuple[Tensor, ...]
    held_out: tuple[Tensor, ...]
    generator: torch.Generator

    def shuffled(self) -> Tensor:
        """The samples of all tasks together, in random order."""
        union = torch.cat(self.sent)
        return union[torch.randperm(len(union), generator=self.generator)]


def hold_out_validation(dataset: Dataset) -> Dataset:
    """The training samples only, with a fixed random tenth of each class as the test samples."""
    order = np.random.default_rng(0).permutation(len(dataset.y_train))
    by_class = order[np.argsort(dataset.y_train[order], kind="stable")]
    held = np.zeros(len(order), bool)
    held[by_class[::10]] = True
    x, y = dataset.x_train, dataset.y_train
    return Dataset(dataset.name, x[~held], y[~held], x[held], y[held], dataset.classes)


def split_into_tasks(
    dataset: Dataset, classes_per_task: int, sizes: Sequence[int] | None, seed: int
) -> TaskSplit:
    """Split a dataset so that task i sends `sizes[i]` random samples, or all of them, in random order.

    >>> from everlearn.streams import datasets
    >>> [len(task) for task in split_into_tasks(datasets.load("digits"), 5, None, seed=0).sent]
    [723, 719]
    """
    generator = torch.Generator().manual_seed(seed)
    labels = np.unique(dataset.y_train)
    sent, held_out = [], []
    for t, start in enumerate(range(0, len(labels), classes_per_task)):
        of_task = labels[start : start + classes_per_task]
        samples = torch.from_numpy(np.flatnonzero(np.isin(dataset.y_train, of_task)))
        shuffled = samples[torch.randperm(len(samples), generator=generator)]
        sent.append(shuffled if sizes is None else shuffled[: sizes[t]])
        held_out.append(torch.from_numpy(np.flatnonzero(np.isin(dataset.y_test, of_task))))
    train = as_tensor(dataset.x_train), as_tensor(dataset.y_train)
    test = as_tensor(dataset.x_test), as_tensor(dataset.y_test)
    return TaskSplit(*train, *test, tuple(sent), tuple(held_out), generator)


_copies: dict[int, tuple[NDArray[Any], Tensor]] = {}


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor that shares its memory; a read-only array is copied, once per process."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    if id(array) not in _copies:
        # The array is kept with its copy, so that no other array can get its id.
        _copies[id(array)] = array, torch.from_numpy(array.copy())
    return _copies[id(array)][1]
