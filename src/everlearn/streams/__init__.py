"""S: what arrives. Datasets from disk, and the order in which they arrive."""

from __future__ import annotations

import functools
import os
import tomllib
from importlib.resources import files
from typing import Any, get_args

from everlearn.streams import datasets
from everlearn.streams.scenarios import Order, Stream, split_stream
from everlearn.words import nearest

__all__ = ["names", "stream"]


def stream(
    name: str,
    *,
    seed: int = 0,
    imbalance: int | None = None,
    batch_size: int = 10,
    order: Order = "split",
    data_dir: str | os.PathLike[str] | None = None,
) -> Stream:
    """The stream of this name.

    seed: fixes which samples are sent and in what order.
    imbalance: i for the imbalanced variant S(T_i), in which task i sends far more than the others.
    batch_size: |B_n|, how many samples arrive at once.
    order: `split`, task after task; or `iid`, all shuffled together.
    data_dir: where the dataset lies; by default `$EVERLEARN_DATA`, then the user's cache folder.

    >>> s = stream("split-digits", seed=0)
    >>> len(s.tests), s.samples
    (5, 1438)
    """
    if name not in names():
        raise ValueError(f"there is no stream {name!r}{nearest(name, names())}")
    if order not in get_args(Order):
        raise ValueError(f"there is no order {order!r}{nearest(order, get_args(Order))}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    benchmark = _benchmarks()[name]
    dataset = datasets.load(benchmark["dataset"], data_dir)
    tasks = len(dataset.classes) // benchmark["classes_per_task"]
    sizes = None
    if imbalance is not None:
        if not 1 <= imbalance <= tasks:
            raise ValueError(f"imbalance names one of the tasks 1 to {tasks} of {name}, not {imbalance}")
        sizes = [benchmark["few"]] * tasks
        sizes[imbalance - 1] = benchmark["many"]
    return split_stream(
        name, dataset, benchmark["classes_per_task"], sizes, batch_size, seed, order, imbalance
    )


def names() -> list[str]:
    """The streams there are."""
    return list(_benchmarks())


@functools.cache
def _benchmarks() -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath("benchmarks.toml").read_text())
