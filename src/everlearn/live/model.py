"""A learner and everything that is derived from its journal: a replay of the same entries gives the same model."""

from __future__ import annotations

import builtins
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from everlearn.checkpoint import CheckpointError, State
from everlearn.core.delayed_labels import WaitingSamples
from everlearn.core.learner import Learner
from everlearn.core.state import finite_state_of, under
from everlearn.encoders import Features
from everlearn.label_json import Label
from everlearn.live import editing
from everlearn.live.entries import Change, Entry
from everlearn.live.journal import Refused
from everlearn.live.results import Asked, LiveTold, Requests
from everlearn.live.sample_index import SampleIndex
from everlearn.live.statistics import Statistics
from everlearn.transaction import atomic, current

__all__ = [
    "Mistake",
    "Model",
    "NotRecorded",
    "ids_in",
    "position_in",
    "reason_of",
    "record_in",
    "with_record",
]

PREFIX = "live."  # of what a snapshot holds besides the learner's state
MOST_MISTAKES = 24
TEMPORARY = "temporary, "  # begins the reason of a refusal that a retry may not meet, such as no memory left


class NotRecorded(RuntimeError):
    """The learner made a change that could not be recorded: it is no longer the one of the journal."""


class Mistake(NamedTuple):
    """A wrong answer: its id, the label, the answer, the sample, and the position of the label in the journal."""

    id: Label
    label: Label
    answer: Label
    sample: Tensor
    position: int


class Model:
    """A learner, its statistics, the ids of its samples, and the results of the last requests.

    position: of the last entry that was applied.
    sources: the last position of each outside source that an entry came with.
    """

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.statistics = Statistics()
        self.index = SampleIndex()
        self.requests = Requests()
        self.sources: dict[str, Any] = {}
        self.mistakes: deque[Mistake] = deque(maxlen=MOST_MISTAKES)
        self.position = 0
        self.lock = threading.Lock()  # held while anything but the learner changes

    def apply(self, entry: Entry, durable: Callable[[], object] = lambda: None) -> Any:
        """Make the change of an entry; returns the result of the call.

        If it raises an error other than `NotRecorded`, the learner is unchanged.
        durable: waits until the entry is on disk, and raises an error if it can't be; then nothing changes.
        """
        change = entry.change
        source = change.source  # may raise an error, so before anything changes
        if change.kind in ("delete", "correct"):  # rare changes, which are not undone
            durable()
            result = self._edit(change)
        else:
            result = _together(self.learner, lambda: self._learn(change), durable)
        try:
            with self.lock:
                result = self._record(entry, result)
                self._finish(entry, source)
                if change.request_id is not None:
                    self.requests.add(change.request_id, change.kind, result)
        except Exception as error:
            raise NotRecorded(f"{type(error).__name__}: {error}") from error
        return result

    def _learn(self, change: Change) -> Any:
        """The changes that a learner makes by itself."""
        learner, task = self.learner, change.values.get("t")
        if change.kind == "observe":
            weights = [change.values["weights"]] if "weights" in change.values else []
            return learner.observe(Features(change.x()), change.labels, task, *weights)
        if change.kind == "ask":
            shares = None
            if change.values.get("confidence"):
                x = change.x()
                shares = (
                    learner.predict_proba(Features(x)).max(1).tolist() if learner.labels else [0.0] * len(x)
                )
            return Asked(learner.ask(change.ids, Features(change.x())), shares)
        if change.kind == "tell":
            waiting = learner.waiting.samples
            told = learner.tell(change.ids, change.labels, task)
            return told, [waiting[key] for key in told.learnt]
        if change.kind == "alarm":
            return learner.alarm()
        (label,) = change.labels
        return learner.forget(label)

    def _edit(self, change: Change) -> Any:
        rebuild = change.values.get("rebuild", False)
        assert change.ids is not None
        if change.kind == "delete":
            return editing.delete(self.learner, self.index, change.ids, rebuild)
        return editing.correct(self.learner, self.index, change.ids, change.labels, rebuild)

    def _record(self, entry: Entry, result: Any) -> Any:
        """Record a change that was made; returns the result of the call. Nothing here may fail."""
        change, statistics, at = entry.change, self.statistics, (entry.position, entry.time)
        ids = change.ids
        if change.kind == "observe":
            learnt = self._learnt_rows(change)
            statistics.learnt([change.labels[row] for row in learnt], *at)
            if ids is not None:
                x = change.x()
                samples = x if isinstance(x, Tensor) else self.learner.encode(x)
                self._index(
                    [ids[row] for row in learnt], samples if len(learnt) == len(x) else samples[learnt]
                )
        elif change.kind == "ask":
            assert ids is not None
            statistics.answered(ids, result.labels, entry.time, self.learner.waiting.samples)
        elif change.kind == "tell":
            result = self._record_told(entry, *result)
        elif change.kind == "forget":
            self._record_forgotten(change.labels[0], *at)
        elif change.kind == "alarm":
            statistics.event("alarm", *at)
        else:
            assert ids is not None
            if change.kind == "delete":
                gone = set(ids)
                statistics.removed(ids)
                self.requests.forget_ids()
                self.mistakes = deque((each for each in self.mistakes if each.id not in gone), MOST_MISTAKES)
            event = "deleted" if change.kind == "delete" else "corrected"
            statistics.event(event, *at, exemplars=result.exemplars)
            for label in result.forgotten:
                self._record_forgotten(label, *at)
        return result

    def _record_forgotten(self, label: Label, position: int, time: float) -> None:
        """Drop what is recorded of a class and its samples."""
        self.statistics.forgotten(label, position, time)
        self.mistakes = deque((each for each in self.mistakes if each.label != label), MOST_MISTAKES)
        memory = editing.memory_of(self.learner)
        if memory is not None:
            self.index.keep_only(memory.stored()[0])

    def _learnt_rows(self, change: Change) -> list[int]:
        """The rows of a batch that were learnt: not those of weight 0, nor those without a label that are skipped."""
        weights = change.values.get("weights") or [1] * len(change.labels)
        skips = self.learner.settings.missing_labels == "skip"
        rows = enumerate(zip(change.labels, weights, strict=True))
        return [row for row, (label, weight) in rows if weight > 0 and not (skips and label is None)]

    def _record_told(self, entry: Entry, told: Any, samples: list[Tensor]) -> LiveTold:
        labels = dict(zip(entry.change.ids or (), entry.change.labels, strict=True))
        self.statistics.learnt([labels[key] for key in told.learnt], entry.position, entry.time)
        right: list[Label] = []
        wrong: list[Label] = []
        for key, sample in zip(told.learnt, samples, strict=True):
            answer = self.statistics.label_told(key, labels[key], entry.position, entry.time)
            if answer is not None:
                (right if answer.right else wrong).append(key)
                if not answer.right:
                    self.mistakes.append(Mistake(key, *answer[:2], sample, entry.position))
        if samples:
            self._index(told.learnt, torch.stack(samples))
        return LiveTold.make(told.learnt, told.missing, right, wrong)

    def refuse(self, entry: Entry, error: Exception) -> str:
        """Record that the learner refused a change; returns the reason for the journal."""
        kind, request, reason, source = entry.change.kind, entry.change.request_id, reason_of(error), None
        with contextlib.suppress(ValueError):  # the source may be what was refused
            source = entry.change.source
        with self.lock:
            self.statistics.refused += 1
            self.statistics.event("refused", entry.position, entry.time, change=kind, reason=reason)
            final = isinstance(error, ValueError)  # else a retry is tried again, also one of a source
            self._finish(entry, source if final else None)
            if request is not None and final:
                self.requests.add(request, kind, error)
        return reason

    def refuse_again(self, refused: Refused) -> None:
        """The same for a change that the journal has as refused."""
        name, _, words = refused.reason.removeprefix(TEMPORARY).partition(": ")
        temporary = refused.reason.startswith(TEMPORARY)
        kind: type[Exception] = getattr(builtins, name, RuntimeError) if temporary else ValueError
        self.refuse(refused.entry, kind(words if temporary else refused.reason))

    def remember(self, change: Change, result: Any) -> None:
        """Keep the result of a change that changed nothing, or its error, for retries of the same request."""
        if change.request_id is not None:
            with self.lock:
                self.requests.add(change.request_id, change.kind, result)

    def ids(self) -> set[Label]:
        """All ids that it holds."""
        held = self.statistics.pending, self.requests.ids(), self.index.ids(), self.learner.waiting.samples
        return {*(each.id for each in self.mistakes)}.union(*held)

    def _finish(self, entry: Entry, source: tuple[str, Any] | None) -> None:
        self.position = entry.position
        if source is not None:
            self.sources[source[0]] = source[1]

    def _index(self, ids: list[Label], x: Tensor) -> None:
        memory = editing.memory_of(self.learner)
        if memory is not None:
            self.index.add(ids, x, lambda: memory.stored()[0])

    # State.

    def state(self, time: float) -> State:
        """The state of the learner, with the position and everything else under names that begin with "live."."""
        record = {
            "position": self.position,
            "time": time,
            "statistics": self.statistics.state(),
            "requests": self.requests.state(),
            "sources": self.sources,
        }
        index = {f"{PREFIX}index.{name}": part for name, part in self.index.state().items()}
        return with_record({**finite_state_of(self.learner), **index}, record)

    def restore(self, state: State) -> None:
        """Load everything but the learner from what `state` returned."""
        record = record_in(state)
        self.statistics.restore(record["statistics"])
        self.requests.restore(record["requests"])
        self.sources, self.position = record["sources"], record["position"]
        self.index.restore(under(f"{PREFIX}index.", state))


def reason_of(error: Exception) -> str:
    """Why a change was refused, for the journal."""
    return str(error) if isinstance(error, ValueError) else f"{TEMPORARY}{type(error).__name__}: {error}"


def ids_in(state: State) -> set[Label]:
    """All ids in a snapshot."""
    record = record_in(state)
    statistics, requests, index, waiting = Statistics(), Requests(), SampleIndex(), WaitingSamples()
    statistics.restore(record["statistics"])
    requests.restore(record["requests"])
    index.restore(under(f"{PREFIX}index.", state))
    waiting.restore(state)
    return requests.ids().union(statistics.pending, index.ids(), waiting.samples)


def position_in(state: State) -> int:
    """The position of the journal in a snapshot."""
    return int(record_in(state)["position"])


def record_in(state: State) -> dict[str, Any]:
    """What a snapshot holds besides the learner and the index of its samples."""
    try:
        content = bytes(state[f"{PREFIX}record"].numpy()).decode(errors="surrogatepass")
        return dict(json.loads(content))
    except (KeyError, ValueError, RecursionError):
        raise CheckpointError("this is the state of a learner, but not a snapshot of a live one") from None


def with_record(state: State, record: dict[str, Any]) -> State:
    """A snapshot with this record."""
    content = bytearray(json.dumps(record).encode(errors="surrogatepass"))
    return {**state, f"{PREFIX}record": torch.frombuffer(content, dtype=torch.uint8)}


@atomic
def _together(learner: Learner, change: Callable[[], Any], durable: Callable[[], object]) -> Any:
    """Make a change of the learner that is undone if it can't be made durable."""
    transaction = current()
    assert transaction is not None
    transaction.goes_on = True
    result = change()
    learner.settle()  # a GPU may refuse a batch later
    durable()
    return result
