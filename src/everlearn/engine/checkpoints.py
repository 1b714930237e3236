"""A run on disk, in one file: the learner, its position in the stream, and the measurements so far.

The file is a learner's checkpoint with the run added, so `load` can read the learner of a run too. Every write
replaces the whole file atomically, so learner, position and measurements always belong to the same moment.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn import checkpoint
from everlearn.checkpoint import CheckpointError, State
from everlearn.core.state import under
from everlearn.engine.run_record import OF_MONITOR, OF_RUN, read_record
from everlearn.evaluation.record import to_record
from everlearn.memory.labels import as_labels, encode_label
from everlearn.messages import differing
from everlearn.streams.base import Batch, Stream, native
from everlearn.streams.dataset_stream import DatasetStream
from everlearn.streams.lazy_samples import rows, sample_chunks

if TYPE_CHECKING:
    from everlearn.engine.loop import Run

__all__ = ["RunCheckpoint"]

FEW = 10  # held-out samples of each concept that are compared


class RunCheckpoint:
    """The file that holds a run.

    last_batch: the last batch that was taken from the stream.
    """

    def __init__(self, run: Run, path: str | os.PathLike[str]) -> None:
        self.run, self.path = run, Path(path)
        self.last_batch: Batch | None = None
        self._resumed_at = self._fingerprint = (
            0  # of the file: how many batches were taken, and the last of them
        )
        if run.evaluator.every is None:
            raise ValueError(
                "a checkpoint is written after every so many batches: say how many, "
                "with Evaluator(every=N) or --every N"
            )
        if run.monitor.detector is not None:
            raise ValueError(
                "a run with a drift detector can't have a checkpoint: detectors have no state to write"
            )

    @functools.cached_property
    def terms(self) -> dict[str, Any]:
        """The options that this run and its continuation must share."""
        return _terms(self.run)

    def resume(self) -> bool:
        """Continue the run in the file, if there is one; returns whether that run has ended."""
        if self.path.exists():
            self._fingerprint = restore(self.run, self.path, self.terms)
            self._resumed_at = self.run.taken
            self.run.progress(self.run.arrived)
        return self.run.done

    def save(self) -> None:
        """Write the run as it is now, all evaluations included. The learner's time does not include this."""
        self.run.monitor.collect(wait=True)
        with self.run.watch.stopped():
            last = 0 if self.last_batch is None else fingerprint(self.last_batch)
            save(self.run, self.path, last, self.terms)

    def end(self) -> None:
        """Write the run as ended."""
        self.run.done = True
        save(self.run, self.path, 0, self.terms)

    def verified(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The stream from its beginning; a CheckpointError if it is not the stream that was learnt."""
        number = 0
        for number, batch in enumerate(batches, 1):
            if number == self._resumed_at and fingerprint(batch) != self._fingerprint:
                raise CheckpointError(
                    f"batch {number} of the stream {self.run.stream.name!r} is not what it was when {self.path} "
                    "was written: a run resumes with the same stream, from its beginning"
                )
            yield batch
        if number < self._resumed_at:
            raise CheckpointError(
                f"the stream {self.run.stream.name!r} ended after {number} batches, but {self._resumed_at} had "
                f"arrived when {self.path} was written"
            )


def save(run: Run, path: Path, last: int, terms: dict[str, Any]) -> None:
    """Write a run as it is now, atomically. last: the fingerprint of the last batch it took."""
    monitor, clock, inference = run.monitor, run.clock, run.task_inference
    history, confusions = to_record(monitor.history)
    record = {
        "terms": terms,
        "last": last,
        "met": sorted(monitor.concepts),
        "seconds": run.watch.seconds,
        "late": None if clock is None else clock.delay,
        "novelty": None if inference is None else _plain(vars(inference)),
        "history": history,
        "prototypes": [encode_label(label) for label in monitor.prototypes],
        **{name: getattr(run, attribute) for name, attribute in OF_RUN.items()},
        **{name: getattr(monitor, attribute) for name, attribute in OF_MONITOR.items()},
    }
    state = run.learner.state_dict()
    kept, samples = run.horizon.state()
    state["run.record"] = _as_bytes({**record, "horizon": kept})
    state["run.confusions"] = confusions
    state |= {f"run.horizon.{name}": part for name, part in samples.items()}
    if monitor.prototypes:
        state["run.prototypes"] = torch.stack(list(monitor.prototypes.values()))
    checkpoint.write(state, path)


def restore(run: Run, path: Path, terms: dict[str, Any]) -> int:
    """Load a run that `save` wrote, completely or not at all; returns the fingerprint of its last batch."""
    state = checkpoint.read(path)
    if "run.record" not in state:
        raise CheckpointError(f"{path} holds a learner and no run: give another path for the checkpoint")
    try:
        record = read_record(state, under("run.horizon.", state))
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not a valid checkpoint of a run: {error}; give another path for the checkpoint"
        ) from None
    values = record.values
    ours = json.loads(json.dumps(terms))
    for part, value in values["terms"].items():
        if ours.get(part) != value:
            theirs, mine = differing(value, ours.get(part))
            raise CheckpointError(
                f"{path} is of a run with the {part} {theirs!r}, while this one has {mine!r}: "
                "run the same command again, or give another path for the checkpoint"
            )
    if (run.clock is None) != (values["late"] is None) or (run.task_inference is None) != (
        record.novelty is None
    ):
        raise CheckpointError(
            f"{path} is of a run with another clock or another way to infer t: "
            "run the same command again, or give another path for the checkpoint"
        )
    run.learner.load_state_dict(_of_learner(state))
    # From here on nothing can fail, so the run is restored completely.
    for name, attribute in OF_RUN.items():
        setattr(run, attribute, values[name])
    run.watch.seconds = values["seconds"]
    if run.clock is not None:
        run.clock.delay = values["late"]
    if run.task_inference is not None:
        vars(run.task_inference).update(record.novelty or {})
    monitor = run.monitor
    for name, attribute in OF_MONITOR.items():
        setattr(monitor, attribute, values[name])
    monitor.concepts = set(values["met"])
    monitor.history = record.history
    monitor.prototypes = {label: vector.to(run.learner.device) for label, vector in record.prototypes.items()}
    run.horizon.restore(*record.horizon)
    return int(values["last"])


def fingerprint(batch: Batch) -> int:
    """A checksum of a batch, to notice that a stream is not the same."""
    labels = json.dumps([encode_label(label) for label in as_labels(batch.y)])
    return zlib.crc32(_content(batch.x), zlib.crc32(labels.encode()))


def _content(x: Any) -> bytes:
    """The values of samples of any kind."""
    x = x.toarray() if hasattr(x, "toarray") else x  # sparse rows
    try:
        samples = torch.as_tensor(native(x)).detach().cpu().contiguous()
    except (TypeError, ValueError, RuntimeError):  # a DataFrame, dicts, texts, a list of tensors
        return repr(
            x.to_numpy().tolist() if hasattr(x, "to_numpy") else [_plain_row(row) for row in x]
        ).encode()
    return samples.flatten().view(torch.uint8).numpy().tobytes() if samples.numel() else b""


def _plain_row(row: Any) -> Any:
    return row.tolist() if hasattr(row, "tolist") else row


def _held_out(run: Run) -> list[int]:
    """A checksum of the held-out samples of each concept: of all labels, and of the first few samples."""
    tests = run.stream.tests if run.evaluator.tests is None else run.evaluator.tests
    first = [next(sample_chunks(rows(x, range(min(len(y), FEW))))) for x, y in tests]
    return [fingerprint(Batch(x, y)) for x, (_, y) in zip(first, tests, strict=True)]


def _order(stream: Stream) -> int | None:
    """A checksum of which samples are sent, in which order and how they are transformed; None if it is not known.

    The class order and the amount of a scenario change nothing else that a stream tells.
    """
    if not isinstance(stream, DatasetStream):
        return None
    checksum = 0
    for samples, t, transform, transformed in stream.arrangement.segments:
        named = repr((t, getattr(transform, "__name__", transform)))
        checksum = zlib.crc32(named.encode(), checksum)
        for part in (samples, transformed):
            checksum = zlib.crc32(b"" if part is None else part.numpy().tobytes(), checksum)
    return checksum


def _terms(run: Run) -> dict[str, Any]:
    """The options that a run and its continuation must share; the learner's state has its own."""
    evaluator = dataclasses.asdict(dataclasses.replace(run.evaluator, tests=None, metrics={}))
    del evaluator["metrics"]  # they are computed from the history, and change nothing in a run
    stream, clock = run.stream, run.clock
    return {
        "learner": run.learner.name,
        "seed": run.learner.seed,
        "stream": stream.name,
        "stream's seed": stream.seed,
        "imbalance": stream.imbalance,
        "batch size": stream.batch_size,
        "scenario": getattr(stream, "scenario", None),
        "samples": stream.samples,
        "order of samples": _order(stream),
        "held-out samples": _held_out(run),
        "limit": run.limit,
        "evaluator": evaluator,
        "horizon": dataclasses.asdict(run.horizon.horizon),
        "paradigm": None if run.paradigm is None else run.paradigm.name,
        "infer": None if run.task_inference is None else "novelty",
        "clock": None if clock is None else [clock.cost, clock.interval],
    }


def _of_learner(state: State) -> State:
    return {name: part for name, part in state.items() if not name.startswith("run.")}


def _as_bytes(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON takes them; a set is one of labels."""
    return {
        name: {"labels": [encode_label(label) for label in value]} if isinstance(value, set) else value
        for name, value in values.items()
    }
