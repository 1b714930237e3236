"""Your own data as a stream of tasks, in every scenario of the library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from everlearn.encoders import as_encoder
from everlearn.messages import is_whole
from everlearn.streams import scenarios
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.encoded import encoded
from everlearn.streams.lazy_samples import LazySamples
from everlearn.streams.sources import Labelled, Reading, as_size, read
from everlearn.streams.task_split import Labels, check_class_order, ordered_classes, split_samples

__all__ = ["hold_out", "split"]

FEW = 10  # in the imbalanced variant S(T_i), each other task sends one in so many of its samples
VALIDATION = 0.1


def split(
    x: Any,
    y: Any = None,
    *,
    tasks: int = 5,
    scenario: str = "split",
    amount: float | None = None,
    imbalance: int | None = None,
    test: Any = 0.2,
    validation: bool | float = False,
    class_order: str | Sequence[Any] = "sorted",
    batch_size: int = 10,
    seed: int = 0,
    name: str | None = None,
    size: int | tuple[int, int] | None = None,
    transform: Callable[[Any], Any] | None = None,
    workers: int | None = None,
    in_memory: bool | None = None,
    colour: bool | None = None,
    encoder: Any = None,
) -> DatasetStream:
    """Split your own labelled data into tasks that arrive one after another, or in another scenario.

    x, y: arrays, tensors, lists or DataFrames of numbers; image files and their labels; a folder with a subfolder of
        images for each class; a torch Dataset with a length; a Hugging Face dataset (y: the name of its column of
        labels, if that is not `label`).
    tasks: how many tasks the classes are divided into.
    scenario, amount, batch_size, seed: as of `stream`.
    imbalance: i for the variant S(T_i), in which each task except i sends only a tenth of its samples.
    test: the share of each class that is held out for testing, the same samples for every seed; or test data of
        its own: a pair (x, y), a folder or a dataset.
    validation: to choose settings, test on a held-out share of the training samples (True for a tenth); the test
        samples are not used.
    class_order: `sorted`; `seed`, shuffled by the seed, as many papers do; or all labels in order.
    name: the name in results; by default that of the folder, or `own`.
    size: height and width that images are resized to; one number is both.
    transform: a function of each sample, of a Pillow image where x is image files, that returns what is learnt.
    workers: processes that decode images ahead of the learner; by default one or two, if there are cores for them.
    in_memory: whether all samples are kept in memory; by default if they need at most a gigabyte.
    colour: whether images become RGB, or grey; by default as the first one is.
    encoder: a frozen model that turns each sample into a vector, as of `stream`.

    >>> import numpy as np
    >>> x, y = np.arange(60.0).reshape(60, 1), ["ant", "bee", "cat", "dog", "elk", "fox"] * 10
    >>> s = split(x, y, tasks=3, class_order=["fox", "ant", "bee", "cat", "dog", "elk"])
    >>> sorted(set(next(iter(s)).y)), s.samples, [len(test) for test, _ in s.tests]
    (['ant', 'fox'], 48, [4, 4, 4])
    """
    if not is_whole(batch_size, least=1):
        raise ValueError(f"batch_size must be a whole number, at least 1, not {batch_size!r}")
    if not is_whole(seed, least=0):
        raise ValueError(f"seed must be a whole number, at least 0, not {seed!r}")
    batch_size, seed = int(batch_size), int(seed)  # torch takes no integers of numpy
    scenarios.check(scenario, amount, imbalance)
    check_class_order(class_order)
    if colour not in (None, True, False):
        raise ValueError(
            f"colour is True for RGB, False for grey, or None for what the first image is, not {colour!r}"
        )
    how = Reading(as_size(size), transform, workers, in_memory, colour)
    train, held_out = _train_and_test(read(x, y, how), test, how)
    if validation is not False:
        train, held_out = hold_out(train, VALIDATION if validation is True else validation, "validation")
    names = _classes(train, held_out)
    if not is_whole(tasks, least=1) or tasks > len(names):
        raise ValueError(f"tasks must be from 1 to the number of classes, {len(names)}, not {tasks!r}")
    order = np.array(ordered_classes(names, class_order, seed), np.int64)
    of_tasks: list[Labels] = list(np.array_split(order, tasks))
    numbers = {label: number for number, label in enumerate(names)}
    source = split_samples(
        (train.x, _numbered(train, numbers)),
        (held_out.x, _numbered(held_out, numbers)),
        of_tasks,
        _sizes(train, numbers, of_tasks, imbalance),
        seed,
        tuple(names),
    )
    arrangement = scenarios.arrange(source, scenario, amount)
    made = DatasetStream(
        name or train.name or "own", scenario, seed, batch_size, imbalance, source, arrangement
    )
    found = as_encoder(encoder)
    return made if found is None else cast(DatasetStream, encoded(made, found))


def _train_and_test(all_of_it: Labelled, test: Any, how: Reading) -> tuple[Labelled, Labelled]:
    if isinstance(test, int | float):
        return hold_out(all_of_it, float(test), "test")
    x, y = test if isinstance(test, tuple | list) and len(test) == 2 else (test, None)
    held_out = read(x, y, how)
    shapes = [tuple(part.x.shape[1:]) for part in (all_of_it, held_out)]
    if shapes[0] != shapes[1]:
        raise ValueError(
            f"the test samples have the shape {list(shapes[1])}, but the training samples have {list(shapes[0])}"
        )
    return all_of_it, held_out


def hold_out(data: Labelled, share: Any, what: str) -> tuple[Labelled, Labelled]:
    """Separate a fixed random share of each class, at least one sample and never all of them."""
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
        raise ValueError(f"{what} must be a share above 0 and below 1, or data of its own, not {share!r}")
    places: dict[Any, list[int]] = {}
    for place in np.random.default_rng(0).permutation(len(data.y)).tolist():
        places.setdefault(data.y[place], []).append(place)
    held: list[int] = []
    for label, of_class in places.items():
        if len(of_class) < 2:
            raise ValueError(f"the class {label!r} has a single sample, so none can be held out for {what}")
        held += of_class[: min(max(round(share * len(of_class)), 1), len(of_class) - 1)]
    is_held = np.zeros(len(data.y), bool)
    is_held[held] = True
    rest, kept = np.flatnonzero(~is_held), np.flatnonzero(is_held)
    return _part(data, rest), _part(data, kept)


def _part(data: Labelled, places: Any) -> Labelled:
    chosen = torch.from_numpy(places)
    x = data.x.subset(chosen) if isinstance(data.x, LazySamples) else data.x[chosen]
    return Labelled(x, [data.y[place] for place in places.tolist()], data.name)


def _classes(train: Labelled, held_out: Labelled) -> list[Any]:
    """The labels, sorted: numbers by their value, all others by their text."""
    try:
        names = set(train.y)
        unknown = set(held_out.y) - names
    except TypeError:
        raise ValueError("a label must be a str, int, float, bool, None, bytes or a tuple of these") from None
    if unknown:
        raise ValueError(
            f"the test samples have the class {min(map(repr, unknown))}, which no training sample has"
        )
    numbers = all(isinstance(label, int | float) for label in names)
    return sorted(names) if numbers else sorted(names, key=lambda label: (type(label).__name__, str(label)))


def _numbered(data: Labelled, numbers: dict[Any, int]) -> Tensor:
    return torch.tensor([numbers[label] for label in data.y], dtype=torch.int64)


def _sizes(
    train: Labelled, numbers: dict[Any, int], tasks: list[Labels], imbalance: int | None
) -> list[int] | None:
    """How many samples each task of the imbalanced variant sends; None if there is no imbalance."""
    if imbalance is None:
        return None
    if not is_whole(imbalance, least=1) or imbalance > len(tasks):
        raise ValueError(f"imbalance must be one of the tasks 1 to {len(tasks)}, not {imbalance!r}")
    counts = np.bincount([numbers[label] for label in train.y], minlength=len(numbers))
    sizes = [int(counts[task].sum()) for task in tasks]
    return [size if t == imbalance - 1 else -(-size // FEW) for t, size in enumerate(sizes)]
