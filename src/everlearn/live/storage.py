"""What a live learner has on disk: journal and snapshots; writing snapshots, erasing, recovery and rollback."""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Sequence

from everlearn.checkpoint import CheckpointError, State
from everlearn.core.display import OWN_NETWORK
from everlearn.core.learner import Learner
from everlearn.core.state_checks import read_meta
from everlearn.encoders import may_load_by_itself
from everlearn.label_json import Label
from everlearn.learners import load
from everlearn.live.entries import Entry
from everlearn.live.folder import Folder
from everlearn.live.journal import EntryError, Journal, LiveError
from everlearn.live.model import Model, ids_in, reason_of
from everlearn.live.worker import Outcome, Worker

__all__ = ["Storage"]

TRIMMED = 50  # entries removed at a time, so that calls can be journaled in between
# A snapshot is written once the entries after the last one take more than this, and several times as much as it does.
LEAST_BYTES = 2**28
TIMES = 4


class Storage:
    """The journal and the snapshots of a live learner.

    every: changes from one snapshot to the next.
    committer: the thread that uses the journal.
    """

    def __init__(self, folder: Folder, journal: Journal, every: int) -> None:
        self.folder, self.journal, self.every = folder, journal, every
        self.committer = Worker("journal")
        self._snapshots = Worker("snapshots")
        self._running: Outcome | None = None  # the snapshot that is being written
        self.position, self.time = 0, 0.0  # of the newest snapshot
        self._bytes = self._added = 0  # its size, and what the journal had added by then
        self._failed_at: int | None = None  # where one that is newer could not be written
        self.error: str | None = None  # why the last one could not be written

    # Snapshots.

    def after_change(self, model: Model) -> None:
        """Begin to write a snapshot if enough has changed since the last one. It is written in another thread."""
        if not self._is_due(model) or (self._running and not self._running.is_known):
            return
        try:
            state = model.state(time.time())
        except CheckpointError as error:  # the network has diverged
            self._failed(model, str(error))
            return
        self._running = self._snapshots.submit(self._write_and_trim, model, state)

    def _is_due(self, model: Model) -> bool:
        grown = self.journal.added - self._added
        last = self.position if self._failed_at is None else self._failed_at
        return model.position - last >= self.every or grown > max(LEAST_BYTES, TIMES * self._bytes)

    def _write_and_trim(self, model: Model, state: State) -> None:
        try:
            self.folder.write(state)
            self._written(model)
            self._trim()
        except Exception as error:  # nobody waits for it: it is in `status` and in the history
            self._failed(model, str(error) or type(error).__name__)

    def save(self, model: Model) -> int:
        """Write a snapshot now; returns its position."""
        self.settle()
        if model.position not in self.folder.positions():
            self.folder.write(model.state(time.time()))
        self._written(model)
        self._trim()
        return model.position

    def _written(self, model: Model) -> None:
        self.position, self.time, self.error = self.folder.positions()[0], time.time(), None
        self._bytes = os.stat(self.folder.snapshot(self.position)).st_size
        self._failed_at, self._added = None, self.journal.added

    def _failed(self, model: Model, reason: str) -> None:
        self.error = reason
        self._failed_at, self._added = model.position, self.journal.added  # try again after as many changes
        with model.lock:
            model.statistics.event("snapshot failed", model.position, time.time(), reason=reason)

    def _trim(self) -> None:
        """Remove what is behind the older snapshot."""
        older = self.folder.keep_newest()
        while not self.committer.submit(self.journal.trim, older, TRIMMED).result():
            pass

    def settle(self) -> None:
        """Wait until no snapshot is being written."""
        if self._running is not None:
            self._running.wait()

    # Deletion.

    def erase(self, model: Model, deletions: Sequence[Entry]) -> None:
        """Write a snapshot, and overwrite everything older."""
        self.settle()
        gone = {key for entry in deletions for key in entry.change.ids or ()}
        self.folder.write(model.state(time.time()))
        self.folder.erase_before(model.position)
        refused = [
            each.entry.position
            for each in self.committer.submit(self.journal.refused).result()
            # A damaged one has no content to read, and may hold any of them.
            if not each.entry.change.values or gone.intersection(each.entry.change.ids or ())
        ]
        self.committer.submit(self.journal.erase, model.position, refused).result()
        self._written(model)

    def holds(self, model: Model, ids: Collection[Label]) -> bool:
        """Whether the learner or a file has one of these ids."""
        if not model.ids().isdisjoint(ids):
            return True
        self.settle()
        try:
            in_journal = self.committer.submit(self._ids_in_journal).result()
            if in_journal is None or not in_journal.isdisjoint(ids):
                return True
            return any(not ids_in(self.folder.read(each)).isdisjoint(ids) for each in self.folder.positions())
        except (LiveError, CheckpointError):  # what can't be read may hold them
            return True

    def _ids_in_journal(self) -> set[Label] | None:
        """The ids in the journal; None if a damaged entry that was set aside may have any."""
        refused = [each.entry for each in self.journal.refused()]
        if any(not entry.change.values for entry in refused):
            return None
        entries = itertools.chain(self.journal.entries(0), refused)  # one by one: they have their samples
        return {key for entry in entries for key in entry.change.ids or ()}

    def sweep(self) -> None:
        """Overwrite what earlier changes have left in the files: rows that were trimmed, interrupted writes."""
        self.settle()
        self.folder.erase_before(0)
        self.committer.submit(lambda: self.journal.erase(self.journal.bounds()[0], ())).result()

    # Recovery.

    def create(self, learner: Learner) -> Model:
        """Store a learner in a new folder."""
        model = Model(learner)
        self.folder.remove_after(-1)  # of a process that was killed while it created the folder
        try:
            self.folder.write(model.state(time.time()))
        except CheckpointError as error:
            raise LiveError(f"this learner can't be stored: {error}") from None
        self.folder.finish()
        self._written(model)
        return model

    def recover_without(self, learner: Learner | None, device: str, skip: Collection[int]) -> Model:
        """Recover a model, and set those of these entries aside that can't be replayed, each with a warning."""
        while True:
            try:
                return self.recover(learner, device)
            except EntryError as error:
                if error.position not in skip:
                    raise
                # The next attempt begins at the snapshot again, so that nothing of the entry is left in the model.
                self.journal.refuse(error.position, reason_of(error.cause))
                words = (
                    f"{self.folder.path}: entry {error.position} of the journal was left out, since it can't be "
                    f"replayed ({error.cause}): live.refused() has it"
                )
                warnings.warn(words, stacklevel=4)

    def recover(self, learner: Learner | None, device: str, until: int | None = None) -> Model:
        """Load the newest valid snapshot, and replay the journal from there, up to a position.

        learner: into which the state is loaded; None for a new one.
        """
        model, replayed = self._load(learner, device, until), 0
        refused = deque(each for each in self.journal.refused() if each.entry.position > model.position)
        for entry in self.journal.entries(model.position):
            if until is not None and entry.position > until:
                break
            while refused and refused[0].entry.position < entry.position:
                model.refuse_again(refused.popleft())
            replayed += len(entry.change.samples or entry.change.detail)
            self._replay(model, entry)
        for each in refused:
            if until is None or each.entry.position <= until:
                model.refuse_again(each)
        _, last = self.journal.bounds()
        model.position = max(model.position, last if until is None else until)  # the last may be refused
        self._added = self.journal.added - replayed
        return model

    def _load(self, learner: Learner | None, device: str, until: int | None) -> Model:
        errors: dict[int, str] = {}  # by the position of the snapshot
        removed, _ = self.journal.bounds()
        for position in self.folder.positions():
            if (until is not None and position > until) or position < removed:
                continue
            try:
                state = self.folder.read(position)
                if learner is None and read_meta(state)["network"].startswith(OWN_NETWORK):
                    raise CheckpointError(
                        "it was made with a network of your own: open_live(folder, learner)"
                    )
                encoder = read_meta(state).get("encoder")
                if learner is None and encoder is not None and not may_load_by_itself(str(encoder)):
                    raise CheckpointError(
                        f"it was made with the encoder {encoder!r}, which is not loaded by itself: "
                        "open_live(folder, learner)"
                    )
                if learner is None:
                    loaded = load(self.folder.snapshot(position), device=device)
                else:
                    learner.load_state_dict(state)
                    loaded = learner
                model = Model(loaded)
                model.restore(state)
            except CheckpointError as error:
                errors[position] = str(error)
                continue
            for damaged in errors:  # so that none counts as one of the two that are kept
                self.folder.snapshot(damaged).unlink(missing_ok=True)
            status = os.stat(self.folder.snapshot(position))
            self.position, self.time, self._bytes = position, status.st_mtime, status.st_size
            self._failed_at = None
            return model
        reason = next(iter(errors.values()), "it has no snapshot that the journal continues")
        raise LiveError(f"{self.folder.path} can't be opened: {reason}")

    def _replay(self, model: Model, entry: Entry) -> None:
        try:
            model.apply(entry)
        except ValueError as error:  # refused; the process ended before that was marked
            self.journal.refuse(entry.position, model.refuse(entry, error))
        except Exception as error:
            words = (
                f"entry {entry.position} of the journal can't be replayed ({type(error).__name__}: {error}): "
                "restore a backup of the folder"
            )
            raise EntryError(words, entry.position, error) from error

    def finish_deletions(self, model: Model) -> None:
        """Erase what a process that was killed had deleted."""
        deletions = self.journal.deletions()
        if deletions:
            self.erase(model, deletions)

    def rollback(self, model: Model, position: int) -> Model:
        """Go back to the state at an earlier position."""
        self.settle()
        possible = [each for each in self.folder.positions() if each >= self.journal.bounds()[0]]
        if not possible or not min(possible) <= position <= model.position:
            raise ValueError(
                f"position {position} can't be restored: the journal goes from {min(possible, default=0)} to "
                f"{model.position}"
            )
        earlier = self.recover(model.learner, "", position)
        self.folder.write(earlier.state(time.time()))
        self.folder.remove_after(position)
        self.journal.cut(position)
        self._written(earlier)
        return earlier

    def close(self) -> None:
        """End the threads, close the journal, and release the folder."""
        self._snapshots.close()
        self.committer.close()
        self.journal.close()
        self.folder.close()

    def differences(self, after: int, environment: dict[str, object]) -> list[str]:
        """How the environments of the entries after a position differ from this one, in words."""
        found = self.journal.environments()
        used: Iterable[dict[str, object]] = [
            each for i, (_, each) in enumerate(found) if i + 1 == len(found) or found[i + 1][0] > after
        ]
        return sorted(
            {
                f"{name} {each.get(name)} then, {environment.get(name)} now"
                for each in used
                for name in environment
                if each.get(name) != environment.get(name)
            }
        )
