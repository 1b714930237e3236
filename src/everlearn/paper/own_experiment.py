"""Compare learners on streams, your own and the library's: `everlearn.experiment`."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from everlearn import learners as all_learners
from everlearn.core.learner import Learner
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.own import Own
from everlearn.experiments.runner import Backend
from everlearn.experiments.settings import inherited_settings
from everlearn.experiments.store import STORE, Store
from everlearn.experiments.sweep import run_sweep, sweep
from everlearn.messages import is_whole, nearest
from everlearn.paper.experiment import Cell, Experiment, Panel
from everlearn.paper.experiment_result import ExperimentResult
from everlearn.paper.stored_experiments import keep_own
from everlearn.streams import names as stream_names
from everlearn.streams import own_streams
from everlearn.streams.base import Stream
from everlearn.streams.dataset_stream import DatasetStream

__all__ = ["ExperimentResult", "experiment"]

Target = str | os.PathLike[str]


def experiment(
    learners: Mapping[str, Any] | Sequence[str],
    streams: Mapping[str, Any] | Sequence[str],
    *,
    seeds: int = 5,
    store: Target = STORE,
    network: str | Callable[..., Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    evaluator: Evaluator | None = None,
    validation: bool = False,
    scenario: str = "split",
    batch_size: int = 10,
    class_order: str = "sorted",
    against: str | None = None,
    track: Any = (),
    title: str = "Comparison",
    backend: Backend = "local",
    address: str | None = None,
    workers: int | None = None,
    device: str = "auto",
) -> ExperimentResult:
    """Run every learner on every stream with every seed, as far as the store lacks it; stop and resume at any time.

    learners: by the names of the rows. A value is the name of a learner, a subclass of `Learner`, a function of
        `seed` (and `stream`, if it has that parameter) that returns one, or a dict with `learner` and its settings.
    streams: by the names of the columns. A value is the name of a stream, or a function of `seed` that returns one.
    seeds: how many, 0, 1, …. store: the file that keeps every run.
    network: for all learners that are not made by a function: a name, or a function that returns an nn.Module, which
        gets the shape of a sample if it has a parameter.
    settings: for all learners that have them.
    evaluator: what to measure and when, with your own metrics.
    validation: test on a held-out part of the training samples, to choose settings.
    scenario, batch_size, class_order: of the streams; a function gets them if they are not the default.
    against: the row that others are compared with, paired over seeds; by default `cope`, or else the first.
    track: trackers by name, or functions that return one.
    title: of the table; the store keeps it, so that `everlearn report` shows the same table.
    backend, address, workers, device: where to run: see docs/framework.md.

    A run is stored under the names and the versions of its parts: the attribute `version` of a class or function,
    that of its package, or a hash of its source. So a method is run again after it was changed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = experiment(["cope", "finetune"], ["split-digits"], seeds=2, store=f"{folder}/store.sqlite")
    ...     found.mean("cope", "split-digits") > found.mean("finetune", "split-digits")
    True
    """
    if not is_whole(seeds, least=1):
        raise ValueError(f"seeds must be a whole number, at least 1, not {seeds!r}")
    rows, columns = _named(learners, "learners"), _named(streams, "streams")
    if evaluator is not None and not isinstance(evaluator, Evaluator):
        raise ValueError(f"evaluator is a value such as Evaluator(every=50), not {evaluator!r}")
    if against is not None and against not in rows:
        raise ValueError(f"against is one of the learners{nearest(against, rows)}, not {against!r}")
    parts = {row: _learner(row, value) for row, value in rows.items()}
    _check_settings(parts, settings or {})
    trackers = (track,) if isinstance(track, str) or callable(track) else tuple(track)
    cells = []
    for row, (name, own_learner, own_settings) in parts.items():
        given, own_network = _with_common(name, own_learner, own_settings, settings or {}, network)
        for column, value in columns.items():
            stream_name, own_stream = _stream(column, value)
            own = Own(own_learner, own_stream, own_network)
            chosen = _of_benchmark(own, stream_name) | given
            jobs = [
                Job(
                    name,
                    stream_name,
                    seed,
                    batch_size=batch_size,
                    scenario=scenario,
                    class_order=class_order,
                    evaluator=evaluator or Evaluator(),
                    validation=validation,
                    settings=chosen,
                    device=device,
                    track=trackers,
                    own=own if own != Own() else None,
                )
                for seed in range(seeds)
            ]
            cells.append(Cell(row, column, tuple(jobs), None))
    reference = against or ("cope" if "cope" in rows else next(iter(rows)))
    where = "on the validation part, " if validation else ""
    shows = f"Accuracy at the end of the stream, {where}%"
    panel = Panel(shows, "table", None, tuple(cells), reference=reference)
    compared = Experiment(_name(title), title, "", (panel,))
    options = SweepOptions(
        store=Path(store), backend=backend, address=address, workers=workers, device=device
    )
    options.check()
    planned = sweep(compared.jobs(), options.store)
    keep_own(Store(options.store), compared)
    if planned.todo:
        run_sweep(title, planned.todo, options)
    return ExperimentResult(compared, Path(store))


def _name(title: str) -> str:
    """A name for files and links from a title.

    >>> _name("Does the momentum matter?")
    'does-the-momentum-matter'
    """
    return "-".join(re.findall(r"\w+", title.lower()))[:60] or "comparison"


def _named(given: Mapping[str, Any] | Sequence[str], what: str) -> dict[str, Any]:
    named = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(n, str) for n in given):
        named = {name: name for name in given}
    if not named or not all(isinstance(name, str) for name in named):
        raise ValueError(
            f"{what} is a dict of what to run by names for the table, or a list of names, not {given!r}"
        )
    return named


def _learner(row: str, value: Any) -> tuple[str, Callable[..., Any] | None, dict[str, Any]]:
    """The name of the learner in a job, what makes it if that is the user's own, and its settings."""
    if isinstance(value, Mapping):
        given = dict(value)
        if "learner" not in given:
            raise ValueError(f"the dict of {row!r} has no 'learner'")
        name, make, _ = _learner(row, given.pop("learner"))
        return name, make, given
    if isinstance(value, str):
        all_learners.find(value)
        return value, None, {}
    if isinstance(value, type) and issubclass(value, Learner):
        name = getattr(value, "name", row)
        ours = all_learners.registry().get(name) is value
        return (name, None, {}) if ours else (row, value, {})
    if not callable(value):
        raise ValueError(
            f"{row!r} is the name of a learner, a subclass of Learner, a function that returns a learner, or a dict "
            f"with 'learner' and settings, not {value!r}"
        )
    return row, value, {}


def _stream(column: str, value: Any) -> tuple[str, Callable[..., Any] | None]:
    if isinstance(value, str):
        if value not in stream_names() and own_streams.find(value) is None:
            raise ValueError(
                f"there is no stream {value!r}{nearest(value, stream_names())}; or give module:function"
            )
        return value, None
    if isinstance(value, DatasetStream):
        raise ValueError(
            f"the stream {column!r} has one seed, but every run needs its own: pass a function, such as "
            "`lambda seed: split(..., seed=seed)`"
        )
    if isinstance(value, Stream):
        return column, _Fixed(value)
    if not callable(value):
        raise ValueError(
            f"{column!r} is the name of a stream, or a function of seed that returns one, not {value!r}"
        )
    return column, value


class _Fixed:
    """A stream of one order, the same for every seed."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.version = f"stream {stream.name}"

    def __call__(self) -> Stream:
        return self._stream


def _check_settings(parts: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise a ValueError for a common setting that no learner has."""
    known = {field for name, make, _ in parts.values() for field in _fields(name, make)}
    for name in settings:
        if known and name not in known:
            raise ValueError(f"no learner has a setting {name!r}{nearest(name, sorted(known))}")


def _fields(name: str, make: Callable[..., Any] | None) -> list[str]:
    kind: Any = all_learners.find(name) if make is None else make
    settings = getattr(kind, "Settings", None)
    return [] if settings is None else [field.name for field in dataclasses.fields(settings)]


def _of_benchmark(own: Own, stream: str) -> dict[str, Any]:
    """What the benchmark sets for the learner that a class of the user's is made from."""
    if own.stream is not None or not isinstance(own.learner, type):
        return {}
    found = inherited_settings(own.learner, stream, imbalanced=False)
    if own.network is not None:
        found.pop("network", None)
    return found


def _with_common(
    name: str,
    make: Callable[..., Any] | None,
    own: dict[str, Any],
    common: Mapping[str, Any],
    network: str | Callable[..., Any] | None,
) -> tuple[dict[str, Any], Callable[..., Any] | None]:
    """The settings of a learner, the common ones included, and a function that makes its network."""
    if make is not None and not isinstance(make, type):
        return own, None
    known = _fields(name, make)
    given = {key: value for key, value in common.items() if key in known} | own
    network = given.pop("network", network)
    if isinstance(network, str):
        given["network"] = network
    return given, network if callable(network) else None
