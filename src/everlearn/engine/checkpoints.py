"""A run on disk, in one file: the learner, where in the stream it is, and what was measured so far.

The file is a learner's checkpoint with the run beside it, so that `load` takes up the learner of a run as well.
It is written anew as a whole and renamed, so that learner, position and metrics are always of one moment.
"""

from __future__ import annotations

import dataclasses
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
from everlearn.engine.run_record import PLAIN, SEEN, read_record
from everlearn.evaluation.record import to_record
from everlearn.memory.labels import as_labels, encode_label
from everlearn.messages import differing
from everlearn.streams.base import Batch, native

if TYPE_CHECKING:
    from everlearn.engine.loop import Run
    from everlearn.evaluation.worker import EvaluationWorker

__all__ = ["Kept"]


class Kept:
    """The file that holds a run, and what the run does with it."""

    def __init__(self, run: Run, path: str | os.PathLike[str]) -> None:
        self.run, self.path = run, Path(path)
        self.latest: Batch | None = None  # the last batch that was taken from the stream
        self._taken, self._fingerprint = (
            0,
            0,
        )  # at the last checkpoint: how many were, and what the last was like
        if run.evaluator.every is None:
            raise ValueError(
                "a checkpoint is written after every so many batches: say how many, "
                "with Evaluator(every=N) or --every N"
            )
        if run.lookout.detector is not None:
            raise ValueError(
                "a run with a drift detector can't be kept on disk: detectors have no state to write"
            )

    def resume(self) -> bool:
        """Take up the run where the file says it is, if there is one; True if it has ended."""
        if self.path.exists():
            self._fingerprint = restore(self.run, self.path)
            self._taken = self.run.taken
            self.run.progress(self.run.arrived)
        return self.run.done

    def save(self, worker: EvaluationWorker | None = None) -> None:
        """Write the run as it is now, all evaluations included; the time that takes is not the learner's."""
        if worker is not None:
            self.run.lookout.history += worker.collect(wait=True)
        with self.run.watch.stopped():
            save(self.run, self.path, 0 if self.latest is None else fingerprint(self.latest))

    def end(self) -> None:
        """Write the run as it has ended."""
        self.run.done = True
        save(self.run, self.path, 0)

    def recognised(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The stream from its beginning, or a CheckpointError where it is not the one that was learnt."""
        number = 0
        for number, batch in enumerate(batches, 1):
            if number == self._taken and fingerprint(batch) != self._fingerprint:
                raise CheckpointError(
                    f"batch {number} of the stream {self.run.stream.name!r} is not what it was when {self.path} "
                    "was written: a run goes on with the same stream, from its beginning"
                )
            yield batch
        if number < self._taken:
            raise CheckpointError(
                f"the stream {self.run.stream.name!r} ended after {number} batches, but {self._taken} had come "
                f"when {self.path} was written"
            )


def save(run: Run, path: Path, last: int) -> None:
    """Write a run as it is now, atomically. last: the fingerprint of the last batch it took."""
    lookout, clock, novelty = run.lookout, run.clock, run.novelty
    history, confusions = to_record(lookout.history)
    record = {
        "terms": _terms(run),
        "last": last,
        "met": sorted(lookout.met),
        "looked": lookout.looked,
        "seconds": run.watch.seconds,
        "late": None if clock is None else clock._late,
        "novelty": None if novelty is None else _plain(vars(novelty)),
        "history": history,
        "prototypes": [encode_label(label) for label in lookout.prototypes],
        **{name: getattr(run, name) for name in PLAIN},
        **{name: getattr(lookout, name) for name in SEEN},
    }
    state = run.learner.state_dict()
    kept, samples = run.horizon.state()
    state["run.record"] = _as_bytes({**record, "horizon": kept})
    state["run.confusions"] = confusions
    state |= {f"run.horizon.{name}": part for name, part in samples.items()}
    if lookout.prototypes:
        state["run.prototypes"] = torch.stack(list(lookout.prototypes.values()))
    checkpoint.write(state, path)


def restore(run: Run, path: Path) -> int:
    """Take up a run that `save` wrote, whole or not at all; returns the fingerprint of the last batch it took."""
    state = checkpoint.read(path)
    if "run.record" not in state:
        raise CheckpointError(
            f"{path} holds a learner alone and no run: give another place for the checkpoint"
        )
    try:
        record = read_record(state, under("run.horizon.", state))
    except ValueError as error:
        raise CheckpointError(
            f"{path} is not the checkpoint of a run that everlearn wrote: {error}; "
            "give another place for the checkpoint"
        ) from None
    values = record.values
    mine = json.loads(json.dumps(_terms(run)))
    for part, value in values["terms"].items():
        if mine.get(part) != value:
            theirs, ours = differing(value, mine.get(part))
            raise CheckpointError(
                f"{path} is of a run with the {part} {theirs!r}, while this one has {ours!r}: "
                "run the same command again, or give another place for the checkpoint"
            )
    if (run.clock is None) != (values["late"] is None) or (run.novelty is None) != (record.novelty is None):
        raise CheckpointError(
            f"{path} is of a run with another clock or another way to infer t: "
            "run the same command again, or give another place for the checkpoint"
        )
    run.learner.load_state_dict(_of_learner(state))
    # From here on nothing can fail: the run is taken up as a whole.
    for name in PLAIN:
        setattr(run, name, values[name])
    run.watch.seconds = values["seconds"]
    if run.clock is not None:
        run.clock._late = values["late"]
    if run.novelty is not None:
        vars(run.novelty).update(record.novelty or {})
    lookout = run.lookout
    for name in SEEN:
        setattr(lookout, name, values[name])
    lookout.met, lookout.looked = set(values["met"]), values["looked"]
    lookout.history = record.history
    lookout.prototypes = {label: vector.to(run.learner.device) for label, vector in record.prototypes.items()}
    run.horizon.restore(*record.horizon)
    return int(values["last"])


def fingerprint(batch: Batch) -> int:
    """A number that tells this batch from another, to find that a stream is not the one it was."""
    samples = torch.as_tensor(native(batch.x)).detach().cpu().contiguous()
    labels = json.dumps([encode_label(label) for label in as_labels(batch.y)])
    if samples.numel() == 0:
        return zlib.crc32(labels.encode())
    content = samples.flatten().view(torch.uint8).numpy()
    return zlib.crc32(content, zlib.crc32(labels.encode()))  # type: ignore[arg-type]


def _terms(run: Run) -> dict[str, Any]:
    """What a run and the one that goes on with it must agree on, besides the learner's own."""
    evaluator = dataclasses.asdict(dataclasses.replace(run.evaluator, tests=None))
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
        "limit": run.limit,
        "evaluator": evaluator,
        "horizon": dataclasses.asdict(run.horizon.horizon),
        "paradigm": None if run.paradigm is None else run.paradigm.name,
        "infer": None if run.novelty is None else "novelty",
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
