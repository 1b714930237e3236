"""A dataset as tensors, divided into tasks: what scenarios arrange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.streams.datasets import Dataset

__all__ = ["Source", "as_tensor", "divide"]


class Source(NamedTuple):
    """A dataset, divided into tasks of consecutive labels.

    sent, held_out: for each task, which training samples it sends, shuffled, and which test samples it has.
    generator: draws whatever else is random.
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


def hold_out(dataset: Dataset) -> Dataset:
    """The training samples alone, of which every tenth of a class, in a fixed random order, is held out for tests."""
    order = np.random.default_rng(0).permutation(len(dataset.y_train))
    by_class = order[np.argsort(dataset.y_train[order], kind="stable")]
    held = np.zeros(len(order), bool)
    held[by_class[::10]] = True
    x, y = dataset.x_train, dataset.y_train
    return Dataset(dataset.name, x[~held], y[~held], x[held], y[held], dataset.classes)


def divide(dataset: Dataset, classes_per_task: int, sizes: Sequence[int] | None, seed: int) -> Source:
    """The source in which task i sends a random `sizes[i]` of its samples, or all, in random order.

    >>> from everlearn.streams import datasets
    >>> [len(task) for task in divide(datasets.load("digits"), 5, None, seed=0).sent]
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
    return Source(*train, *test, tuple(sent), tuple(held_out), generator)


_copies: dict[int, tuple[NDArray[Any], Tensor]] = {}


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor over the same memory or, where it is read-only, over one copy for the process."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    if id(array) not in _copies:
        # The array is kept beside its copy, so that no other one can come by its id.
        _copies[id(array)] = array, torch.from_numpy(array.copy())
    return _copies[id(array)][1]
