"""S, the data stream: datasets from disk, scenarios (the order of arrival), your own streams, recordings."""

from __future__ import annotations

import dataclasses
import functools
import os
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, cast

from everlearn.encoders import as_encoder
from everlearn.messages import is_whole, nearest
from everlearn.streams import datasets, own_streams, scenarios
from everlearn.streams.base import Batch, Stream
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.encoded import AT, encoded
from everlearn.streams.image_sets import IMAGE_SETS, image_stream
from everlearn.streams.own_data import split
from everlearn.streams.record_stream import RECORD_STREAMS, RecordStream, record_stream
from everlearn.streams.task_split import check_class_order, hold_out_validation, split_into_tasks
from everlearn.streams.user_stream import as_stream

__all__ = ["Batch", "Stream", "as_stream", "benchmarks", "default_batch_size", "names", "split", "stream"]


# Streams that are another scenario of a benchmark, by their usual names.
OTHER_SCENARIOS = {"permuted-mnist": ("split-mnist", "permuted"), "rotated-mnist": ("split-mnist", "rotated")}


def stream(
    name: str = "split-digits",
    *,
    seed: int = 0,
    imbalance: int | None = None,
    batch_size: int | None = None,
    scenario: str = "split",
    amount: float | None = None,
    validation: bool = False,
    class_order: str | Sequence[int] = "sorted",
    data_dir: str | os.PathLike[str] | None = None,
    encoder: Any = None,
) -> DatasetStream | RecordStream:
    """The stream of this name.

    name: one of `names()`; `split-digits` needs no download. Streams of records (`elec2`, `weather`, …) have one
        order and no test set: only seed, batch_size and data_dir apply to them. Or your own: `module:function`, or an
        entry point of the group `everlearn.streams`, which is called with the seed and the options that are given.
    seed: determines which samples are sent, their order and the random transforms.
    imbalance: i for the imbalanced variant S(T_i), in which task i sends many more samples than the others.
    batch_size: |B_n|, how many samples arrive together; by default 10, and 1 if the stream is one of records.
    scenario: `split`, task after task; `iid`, shuffled together; or another one of docs/streams.md.
    amount: the parameter of the scenario; docs/streams.md has its meaning and default.
    validation: to choose settings, test on a held-out tenth of the training samples; the test samples are not used.
    class_order: `sorted`, the paper's; `seed`, shuffled by the seed, as many papers do; or all labels in order.
    data_dir: the folder with the dataset; by default `$EVERLEARN_DATA`, then the user's cache folder.
    encoder: a frozen model that turns each sample into a vector: a name such as `"efficientnet-lite0"`, an nn.Module
        or a function. `stream("split-cifar100@efficientnet-lite0")` is the same; its output is cached on disk.

    >>> s = stream("split-digits", seed=0)
    >>> len(s.tests), s.samples
    (5, 1442)
    >>> [t for _, _, t in stream("split-digits", scenario="recurring", batch_size=100)]
    [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    """
    if encoder is not None or AT in name:
        base, _, named = name.partition(AT)
        if encoder is not None and named:
            raise ValueError(f"the stream {name!r} names its encoder already; leave out encoder")
        found = as_encoder(encoder if encoder is not None else named)
        assert found is not None
        plain = stream(
            base, seed=seed, imbalance=imbalance, batch_size=batch_size, scenario=scenario, amount=amount,
            validation=validation, class_order=class_order, data_dir=data_dir,
        )  # fmt: skip
        return cast(DatasetStream, encoded(plain, found))
    if name not in names():
        make = own_streams.find(name)
        if make is None:
            raise ValueError(f"there is no stream {name!r}{nearest(name, names())}; or give module:function")
        options = {
            "imbalance": imbalance, "batch_size": batch_size, "scenario": scenario, "amount": amount,
            "validation": validation, "class_order": class_order, "data_dir": data_dir,
        }  # fmt: skip
        return cast(DatasetStream, own_streams.open_own(make, name, seed, options))
    batch_size = default_batch_size(name) if batch_size is None else batch_size
    if not is_whole(batch_size, least=1):
        raise ValueError(f"batch_size must be a whole number, at least 1, not {batch_size!r}")
    if not is_whole(seed, least=0):
        raise ValueError(f"seed must be a whole number, at least 0, not {seed!r}")
    batch_size, seed = int(batch_size), int(seed)  # torch takes no integers of numpy
    if name in RECORD_STREAMS:
        if validation or (scenario, amount, imbalance, class_order) != ("split", None, None, "sorted"):
            raise ValueError(
                f"{name} is a stream of records in time order; scenario, amount, imbalance, class_order and "
                "validation do not apply to it, so leave them out"
            )
        return record_stream(name, batch_size, seed, data_dir)
    scenarios.check(scenario, amount, imbalance)
    check_class_order(class_order)
    if name in IMAGE_SETS:
        return image_stream(
            name, data_dir, seed=seed, batch_size=batch_size, scenario=scenario, amount=amount,
            imbalance=imbalance, validation=validation, class_order=class_order,
        )  # fmt: skip
    if name in OTHER_SCENARIOS:
        if scenario != "split":
            raise ValueError(f"{name} has its own scenario; remove the scenario {scenario}")
        base, scenario = OTHER_SCENARIOS[name]
        moved = stream(
            base, seed=seed, imbalance=imbalance, batch_size=batch_size, scenario=scenario, amount=amount,
            validation=validation, class_order=class_order, data_dir=data_dir,
        )  # fmt: skip
        return dataclasses.replace(cast(DatasetStream, moved), name=name)
    benchmark = _benchmarks()[name]
    dataset = datasets.load(benchmark["dataset"], data_dir)
    if validation:
        dataset = hold_out_validation(dataset)
    tasks = len(dataset.classes) // benchmark["classes_per_task"]
    sizes = [benchmark["size"]] * tasks if "size" in benchmark else None
    if imbalance is not None:
        if sizes is not None:
            raise ValueError(f"{name} has no imbalanced variants; remove the imbalance of {imbalance}")
        if not 1 <= imbalance <= tasks:
            raise ValueError(f"imbalance must be one of the tasks 1 to {tasks} of {name}, not {imbalance}")
        sizes = [benchmark["few"]] * tasks
        sizes[imbalance - 1] = benchmark["many"]
    source = split_into_tasks(dataset, benchmark["classes_per_task"], sizes, seed, class_order)
    arrangement = scenarios.arrange(source, scenario, amount)
    return DatasetStream(name, scenario, seed, batch_size, imbalance, source, arrangement)


def default_batch_size(name: str) -> int:
    """How many samples arrive together, unless the user says otherwise: records come one by one."""
    return 1 if name.partition(AT)[0] in RECORD_STREAMS else 10


def names() -> list[str]:
    """The names of all streams."""
    return [*benchmarks(), *OTHER_SCENARIOS, *IMAGE_SETS, *RECORD_STREAMS]


def benchmarks() -> list[str]:
    """The names of the streams over a dataset with classes, tasks and a test set."""
    return list(_benchmarks())


@functools.cache
def _benchmarks() -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath("benchmarks.toml").read_text())
