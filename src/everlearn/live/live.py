"""A durable learner in a folder: every change is on disk before the call returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from everlearn.core.drift import check_alarm
from everlearn.core.learner import Learner
from everlearn.label_json import Label
from everlearn.live import checks, suggestion
from everlearn.live.entries import Change
from everlearn.live.journal import LiveError, Refused
from everlearn.live.model import Mistake, Model
from everlearn.live.published import LiveSnapshot, Publisher, check_copies
from everlearn.live.reader import PATIENCE, Reader
from everlearn.live.results import Asked, Corrected, Deleted, LiveTold
from everlearn.live.statistics import DriftDetector
from everlearn.live.status import status_of
from everlearn.live.storage import Storage
from everlearn.live.writer import Call, Writer
from everlearn.memory.labels import as_labels, shortened
from everlearn.messages import is_whole
from everlearn.notebook import card, curve

__all__ = ["Live"]


class Live:
    """A learner whose every change is on disk before the call returns. `open_live` makes one.

    Any number of threads may call it. One thread applies the changes in order; predictions use a copy and never wait
    for a change that another thread makes. If a call is interrupted (Ctrl-C), its change is still applied.

    request_id: a retry with the same request id is applied once, and gets the result of the first call. The last
        10,000 request ids are remembered.
    """

    def __init__(
        self,
        model: Model,
        storage: Storage,
        drift: DriftDetector | None = None,
        queue: int | None = None,
        act: bool = False,
    ) -> None:
        self._storage, self._process = storage, os.getpid()
        if drift is not None:
            model.statistics.attach(drift, act)
        check_copies(model.learner)
        self._publisher = Publisher(model, lambda: self._writer.wake())
        self._writer = Writer(model, storage, self._between, queue)
        self._reader = Reader(self._writer, self._publisher)
        self._closed = False

    # Changes.

    def observe(
        self,
        x: Any,
        y: Any,
        ids: Any = None,
        *,
        t: Any = None,
        sample_weight: Any = None,
        request_id: str | None = None,
        source: tuple[str, Any] | None = None,
    ) -> None:
        """Learn from a batch.

        x, y, t, sample_weight: samples, labels, task and weights, as for the learner's `observe`.
        ids: one for each sample, by which it can be deleted or corrected later; the same id may come again.
        source: the name of an outside source, and the position in it after this batch: a number, a str, or a list or
            dict of these, as JSON; see `sources`.
        """
        batch = checks.observed(self.learner, x, y, ids, t, sample_weight)
        self._change("observe", batch, request_id, source)

    def ask(
        self,
        ids: Any,
        x: Any,
        *,
        confidence: bool = False,
        request_id: str | None = None,
        source: tuple[str, Any] | None = None,
    ) -> Any:
        """Predict, and store the samples by id until `tell` gives their labels.

        With `confidence`, a pair: the labels, and the probability of each.
        """
        wants = checks.as_flag(confidence, "confidence")
        samples, values = checks.asked(self.learner, ids, x)
        batch = samples, values | {"confidence": True if wants else None}
        asked: Asked = self._change("ask", batch, request_id, source)
        if not wants:
            return asked.labels
        return asked.labels, np.array(asked.confidences or [], np.float32)

    def tell(
        self,
        ids: Any,
        y: Any,
        t: Any = None,
        *,
        request_id: str | None = None,
        source: tuple[str, Any] | None = None,
    ) -> LiveTold:
        """Learn, as one batch, from samples given to `ask` earlier; says which answers were right."""
        told: LiveTold = self._change("tell", checks.told(self.learner, ids, y, t), request_id, source)
        return told

    def forget(self, label: Label, *, request_id: str | None = None) -> None:
        """Remove a class from the learner: prototype, exemplars, counters, logit, and what is recorded of it.

        Journal and older snapshots keep its samples until later snapshots replace them, so that a `rollback` is
        possible. Only `delete` erases samples from the files.
        """
        self._change("forget", (None, {"labels": as_labels([label])}), request_id)

    def alarm(self, *, request_id: str | None = None) -> None:
        """The world has changed: the classes that are present lose the older half of their exemplars."""
        check_alarm(self.learner)
        self._change("alarm", (None, {}), request_id)

    def delete(self, ids: Any, *, rebuild: bool = False, request_id: str | None = None) -> Deleted:
        """Delete all samples that were observed or asked under these ids, also from every file in the folder.

        The class means are computed anew. What the weights have learnt stays; with `rebuild`, a fresh network is
        trained from the samples in memory. A snapshot follows at once, and the journal before it is erased.
        """
        deleted: Deleted = self._change(
            "delete", checks.edited(self.learner, "delete", ids, rebuild), request_id
        )
        return deleted

    def correct(
        self, ids: Any, labels: Any, *, rebuild: bool = False, request_id: str | None = None
    ) -> Corrected:
        """Give samples in memory that were observed or told under these ids the right labels.

        The class means are computed anew. What the weights have learnt stays, unless `rebuild` is set.
        """
        edited = checks.edited(self.learner, "correct", ids, rebuild, labels)
        corrected: Corrected = self._change("correct", edited, request_id)
        return corrected

    def _change(
        self,
        kind: str,
        checked: checks.Checked,
        request: str | None,
        source: tuple[str, Any] | None = None,
    ) -> Any:
        checks.check_request_id(request)
        position = checks.as_source(source)
        self._check_open()
        x, values = checked
        if self.learner.sample_shape is None and isinstance(x, Tensor):
            check_copies(self.learner, x[:2])
        change = Change.make(kind, x, **values, request=request, source=position)
        return self._writer.submit(Call(change))

    # Predictions.

    def predict(self, x: Any, *, confidence: bool = False, min_position: int | None = None) -> Any:
        """The label of each sample, by a learner that includes every change that has returned.

        confidence: whether to return a pair, the labels and the probability of each.
        min_position: include the changes up to this position only, which may be faster under load; 0 for any.
        """
        wants = checks.as_flag(confidence, "confidence")
        return self._read(min_position, lambda learner: learner.predict(x, wants))

    def predict_proba(self, x: Any, *, min_position: int | None = None) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        found: NDArray[np.float32] = self._read(min_position, lambda learner: learner.predict_proba(x))
        return found

    def _read(self, min_position: int | None, function: Callable[[LiveSnapshot], Any]) -> Any:
        position = None if min_position is None else checks.as_position(min_position, "min_position")
        self._check_open()
        return self._reader.read(position, function)

    def snapshot(self, min_position: int = 0, timeout: float = PATIENCE) -> LiveSnapshot:
        """The newest copy of the learner at hand, for predictions in any thread.

        It may be some milliseconds old. If it does not include `min_position`, wait until one does.
        """
        position, seconds = checks.as_position(min_position, "min_position"), checks.as_seconds(timeout)
        self._check_open()
        return self._reader.snapshot(position, seconds)

    def suggest(self, n: int) -> list[Label]:
        """The ids of the n waiting samples whose labels would teach the learner most, the best first."""
        if not is_whole(n, least=0):
            raise ValueError(f"Live.suggest takes a number of samples, not {shortened(n)}")
        return suggestion.suggest(self.snapshot(self.position), self.learner.waiting.samples, int(n))

    # What there is.

    @property
    def learner(self) -> Learner:
        """The learner as it is now. To change it, use the methods of this object: they are in the journal."""
        return self._model.learner

    @property
    def position(self) -> int:
        """The position of the journal: the number of the last change that is applied and on disk."""
        return self._model.position

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._storage.folder.path

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.learner.classes

    @property
    def sources(self) -> dict[str, Any]:
        """The last position of each outside source that `observe` was given, by name."""
        with self._model.lock:
            return dict(self._model.sources)

    @property
    def _model(self) -> Model:
        return self._writer.model

    def status(self) -> dict[str, Any]:
        """What the learner holds and how well it does, as a dict."""
        self._check_open()
        # Without waiting for a change: what only a copy shows may be some milliseconds old.
        held = self._reader.held(
            lambda learner: (learner.classes, learner.exemplars()), self._reader.newest_copy
        )
        found = status_of(self._model, self._storage, self._writer, *held)
        return found | {"copy_error": self._publisher.error}

    def history(self) -> list[dict[str, Any]]:
        """The last 1,000 events, the oldest first: new classes, refused changes, drift alarms, deletions."""
        with self._model.lock:
            return [dict(event) for event in self._model.statistics.events]

    def curve(self) -> list[tuple[int, float, int, float]]:
        """The accuracy over time: (position, time, labels told so far, accuracy of the last 1,000 answers)."""
        with self._model.lock:
            return list(self._model.statistics.points)

    def confusion(self) -> dict[tuple[Label, Label], int]:
        """How often a label got an answer, among the last 1,000 answers: {(label, answer): count}."""
        with self._model.lock:
            return self._model.statistics.confusion()

    def mistakes(self) -> list[Mistake]:
        """The last wrong answers since the folder was opened, the oldest first."""
        with self._model.lock:
            return list(self._model.mistakes)

    def refused(self) -> list[Refused]:
        """The last changes that the learner refused, with their samples and the reason; at most 100."""
        self._check_open()
        found: list[Refused] = self._storage.committer.submit(self._storage.journal.refused).result()
        return found

    # The folder.

    def save(self) -> int:
        """Write a snapshot of the learner to the folder now; returns its position."""
        return int(self._between_changes(lambda: self._storage.save(self._model)))

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the folder while it is in use; the copy can be opened with `open_live`."""
        self._check_open()
        self._storage.folder.backup(target)

    def rollback(self, position: int) -> None:
        """Go back to the state at an earlier position; all later changes are removed.

        The journal reaches back to the older of two snapshots, and never behind a `delete`.
        """
        if not is_whole(position, least=0):
            raise ValueError(f"a position is a whole number, 0 or above, not {shortened(position)}")
        self._between_changes(lambda: self._roll_back(int(position)))

    def _roll_back(self, position: int) -> None:
        try:
            self._use(self._storage.rollback(self._model, position))
        except BaseException as error:
            # A plain ValueError says that the position can't be restored, before anything is changed.
            if type(error) is not ValueError:
                self._recover()
            raise

    def _recover(self) -> None:
        """Load the learner as the folder has it, after a rollback that failed; else nothing is learnt any more."""
        try:
            self._use(self._storage.recover(self.learner, ""))
        except BaseException as error:
            self._writer.stop(f"a rollback failed, and the learner could not be recovered ({error})")

    def _use(self, model: Model) -> None:
        model.statistics.attach_that_of(self._model.statistics)
        self._writer.use(model)
        self._publisher.replace(model)

    def _between_changes(self, action: Any) -> Any:
        self._check_open()
        return self._writer.submit(Call(None, action))

    def close(self) -> None:
        """Finish what waits, write a snapshot, and release the folder. A second call does nothing."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._writer.close()
        self._publisher.close()
        try:
            if not self._writer.is_broken:
                self._storage.save(self._model)
        finally:
            self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"position {self.position:,}"
        return f"Live({type(self.learner).__name__}, {str(self.folder)!r}, {state})"

    def _repr_html_(self) -> str:
        samples, classes = f"{self.learner.samples:,}", len(self.classes)
        facts = {"position": f"{self.position:,}", "samples": samples, "classes": classes}
        points = [(float(told), accuracy) for _, _, told, accuracy in self.curve()]
        return card(repr(self), facts, curve(points, "accuracy of the last 1,000 answers"))

    # Inside.

    def _between(self) -> float | None:
        """After each group of changes: make copies for predictions and for the disk."""
        again = self._publisher.between(self._model)
        if not self._writer.is_broken:
            self._storage.after_change(self._model)
        return again

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise LiveError("a live learner can't be used in a forked process: open the folder there")
        if self._closed:
            raise LiveError("this live learner is closed: open the folder again")
