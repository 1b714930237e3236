"""Split a dataset into tasks of a few classes each; scenarios define the order in which they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.messages import nearest
from everlearn.streams.datasets import Dataset
from everlearn.streams.lazy_samples import LazySamples

__all__ = [
    "Labels",
    "TaskSplit",
    "as_tensor",
    "check_class_order",
    "hold_out_validation",
    "ordered_classes",
    "split_into_tasks",
    "split_samples",
]

Labels = NDArray[np.int64]


class TaskSplit(NamedTuple):
    """A dataset as tensors, split into tasks of a few classes each.

    sent, held_out: for each task, the shuffled indices of its training samples, and those of its test samples.
    generator: the source of any further randomness.
    order: the classes in the order in which the tasks have them.
    names: the label of each class number, if labels are not numbers themselves.
    """

    x: Tensor | LazySamples
    y: Tensor
    x_test: Tensor | LazySamples
    y_test: Tensor
    sent: tuple[Tensor, ...]
    held_out: tuple[Tensor, ...]
    generator: torch.Generator
    order: tuple[int, ...] = ()
    names: tuple[Any, ...] | None = None

    def labels(self, classes: Tensor) -> Any:
        """The labels that a learner gets for these class numbers: the same tensor, or a list of names."""
        return classes if self.names is None else [self.names[number] for number in classes.tolist()]

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


def check_class_order(class_order: Any) -> None:
    """Raise a ValueError unless it is a known word or a sequence of labels."""
    if isinstance(class_order, str) and class_order not in CLASS_ORDERS:
        raise ValueError(f"class_order is a list of labels, or a word{nearest(class_order, CLASS_ORDERS)}")
    if not isinstance(class_order, Iterable):
        raise ValueError(
            f"class_order is a list of labels, or one of {', '.join(CLASS_ORDERS)}, not {class_order!r}"
        )


CLASS_ORDERS = ("sorted", "seed")


def ordered_classes(classes: Sequence[Any], class_order: str | Sequence[Any], seed: int) -> list[int]:
    """The numbers 0, 1, … of these classes in the order in which tasks get them.

    class_order: `sorted` as they are; `seed` shuffled by the seed; or the labels themselves in order.

    >>> ordered_classes(["ant", "bee", "cat"], ["cat", "ant", "bee"], seed=0)
    [2, 0, 1]
    """
    check_class_order(class_order)
    if isinstance(class_order, str):
        numbers = range(len(classes))
        shuffled = np.random.default_rng(seed).permutation(len(classes)).tolist()
        return shuffled if class_order == "seed" else list(numbers)
    places = {label: number for number, label in enumerate(classes)}
    given = class_order.tolist() if hasattr(class_order, "tolist") else list(class_order)
    if sorted(map(str, given)) != sorted(map(str, classes)) or not set(given) <= places.keys():
        raise ValueError(
            f"class_order must name each of the {len(classes)} classes once; it has {len(given)} labels, "
            f"{', '.join(map(repr, given[:5]))}{' …' if len(given) > 5 else ''}"
        )
    return [places[label] for label in given]


def split_into_tasks(
    dataset: Dataset,
    classes_per_task: int,
    sizes: Sequence[int] | None,
    seed: int,
    class_order: str | Sequence[Any] = "sorted",
) -> TaskSplit:
    """Split a dataset so that task i sends `sizes[i]` random samples, or all of them, in random order.

    >>> from everlearn.streams import datasets
    >>> [len(task) for task in split_into_tasks(datasets.load("digits"), 5, None, seed=0).sent]
    [723, 719]
    """
    labels = np.unique(dataset.y_train)
    order = labels[ordered_classes(labels.tolist(), class_order, seed)]
    tasks = [order[start : start + classes_per_task] for start in range(0, len(order), classes_per_task)]
    train = as_tensor(dataset.x_train), as_tensor(dataset.y_train)
    test = as_tensor(dataset.x_test), as_tensor(dataset.y_test)
    return split_samples(train, test, tasks, sizes, seed)


def split_samples(
    train: tuple[Tensor | LazySamples, Tensor],
    test: tuple[Tensor | LazySamples, Tensor],
    tasks: Sequence[Labels],
    sizes: Sequence[int] | None,
    seed: int,
    names: tuple[Any, ...] | None = None,
) -> TaskSplit:
    """Split training and test samples by the classes of each task.

    sizes: how many samples each task sends; None for all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    sent, held_out = [], []
    for t, of_task in enumerate(tasks):
        samples = torch.from_numpy(np.flatnonzero(np.isin(train[1].numpy(), of_task)))
        shuffled = samples[torch.randperm(len(samples), generator=generator)]
        sent.append(shuffled if sizes is None else shuffled[: sizes[t]])
        held_out.append(torch.from_numpy(np.flatnonzero(np.isin(test[1].numpy(), of_task))))
    order = tuple(np.concatenate(tasks).tolist())
    return TaskSplit(*train, *test, tuple(sent), tuple(held_out), generator, order, names)


_copies: dict[int, tuple[NDArray[Any], Tensor]] = {}


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor that shares its memory; a read-only array is copied, once per process."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    if id(array) not in _copies:
        # The array is kept with its copy, so that no other array can get its id.
        _copies[id(array)] = array, torch.from_numpy(array.copy())
    return _copies[id(array)][1]
