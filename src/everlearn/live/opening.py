"""Open the folder of a live learner: create it, or recover it exactly as it was."""

from __future__ import annotations

import atexit
import contextlib
import os
import platform
import time
import warnings
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from everlearn import __version__
from everlearn.checkpoint import CheckpointError
from everlearn.core.drift import check_alarm
from everlearn.core.learner import Learner
from everlearn.live.checks import as_flag, check_path
from everlearn.live.folder import ABOUT, Folder, has_changes
from everlearn.live.journal import Journal, LiveError
from everlearn.live.live import Live
from everlearn.live.model import Model
from everlearn.live.postgres_database import Database, has_learner, is_postgres
from everlearn.live.postgres_folder import PostgresFolder
from everlearn.live.postgres_journal import PostgresJournal
from everlearn.live.sqlite_journal import SQLiteJournal
from everlearn.live.statistics import DriftDetector, check_detector
from everlearn.live.storage import Storage
from everlearn.memory.labels import shortened
from everlearn.messages import is_whole

__all__ = ["holds_learner", "open_live"]

OPENED: weakref.WeakSet[Live] = weakref.WeakSet()  # in this process; a second `close` of one does nothing


def open_live(
    folder: str | os.PathLike[str],
    learner: Learner | None = None,
    *,
    snapshot_every: int = 1000,
    drift: DriftDetector | None = None,
    act: bool = False,
    queue: int | None = None,
    journal: str | None = None,
    skip: Collection[int] = (),
) -> Live:
    """Open a durable learner: in a new folder with this learner, or as it was in an existing folder.

    learner: needed for a new folder. For an existing one, a fresh learner of the same class, network and settings,
        into which the state is loaded; it is needed only if the network is your own module.
    snapshot_every: changes from one snapshot on disk to the next. More make opening after a kill slower.
    drift: a drift detector of River's; it is updated with every answer whose label is told.
    act: let the detector act: each change that it reports is followed by an `alarm()`, which is in the journal.
    queue: calls that may wait; further ones raise `Busy`. None for any number.
    journal: `postgresql://user@host/database` to keep journal and snapshots there, under the name of the folder, so
        that another machine can continue; None for the folder itself.
    skip: positions of entries to leave out if they can't be replayed; the error of such an entry names its position.
        They are set aside as `live.refused()`, and a warning names each. Entries that can be replayed are.

    >>> import tempfile
    >>> from everlearn import CoPE
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_live(folder, CoPE("mlp", memory_size=10, hidden=16)) as live:
    ...         live.observe(torch.eye(2), ["left", "right"])
    ...     with open_live(folder) as live:
    ...         print(live.position, live.classes)
    1 ['left', 'right']
    """
    check_path(folder)
    if learner is not None and not isinstance(learner, Learner):
        raise ValueError(f"open_live takes a learner such as CoPE(...), not {shortened(learner)}")
    if not is_whole(snapshot_every, least=1):
        raise ValueError(f"snapshot_every is a whole number of at least 1, not {shortened(snapshot_every)}")
    if queue is not None and not is_whole(queue, least=1):
        raise ValueError(f"queue is None or a whole number of at least 1, not {shortened(queue)}")
    left_out = _positions(skip)
    if drift is not None:
        check_detector(drift)
    act = as_flag(act, "act")
    if act and drift is None:
        raise ValueError("act=True needs a drift detector that can act, such as drift=river.drift.ADWIN()")
    if act and learner is not None:
        check_alarm(learner)
    if learner is None and not holds_learner(folder, journal):
        raise LiveError(f"{os.fspath(folder)} holds no learner yet: give one, open_live(folder, CoPE(...))")
    database = Database(str(journal), Path(folder).resolve().name) if is_postgres(journal) else None
    try:
        place = Folder(folder) if database is None else PostgresFolder(folder, database)
    except BaseException:
        if database is not None:
            database.close()
        raise
    try:
        if not place.is_new and learner is not None and (learner.batches or len(learner.waiting)):
            raise LiveError(
                f"{place.path} holds a learner already, and the given one has learnt, too: "
                "open_live(folder) opens the first; give another folder for the second"
            )
        opened: Journal = SQLiteJournal(place.path) if database is None else PostgresJournal(database)
    except BaseException:
        place.close()
        if database is not None:
            database.close()
        raise
    storage = Storage(place, opened, int(snapshot_every))
    try:
        model = (
            _create(storage, learner)
            if place.is_new and learner is not None
            else _recover(storage, learner, left_out)
        )
        if act:
            check_alarm(model.learner)
        live = Live(model, storage, drift, queue, act)
    except BaseException:
        storage.close()
        raise
    OPENED.add(live)
    return live


def holds_learner(folder: str | os.PathLike[str], journal: str | None = None) -> bool:
    """Whether a learner is stored there already, so that `open_live` opens it or says what is missing."""
    if is_postgres(journal):
        return has_learner(str(journal), Path(folder).resolve().name)
    return (Path(folder) / ABOUT).exists() or has_changes(Path(folder))


def _create(storage: Storage, learner: Learner) -> Model:
    storage.journal.cut(0)  # of a process that was killed while it created the folder
    storage.journal.add_environment(0, _environment(learner))
    return storage.create(learner)


def _positions(skip: Any) -> set[int]:
    """The positions of entries to leave out."""
    if not isinstance(skip, (list, tuple, set, frozenset)) or not all(
        is_whole(each, least=1) for each in skip
    ):
        raise ValueError(f"skip is a list of positions in the journal, such as [3], not {shortened(skip)}")
    return {int(each) for each in skip}


def _recover(storage: Storage, learner: Learner | None, skip: set[int]) -> Model:
    known = storage.journal.environments()
    device = known[-1][1].get("device", "auto") if known else "auto"
    model = storage.recover_without(learner, device, skip)
    environment, snapshot = _environment(model.learner), storage.position
    differences = storage.differences(snapshot, environment)
    if differences:
        if model.position > snapshot:
            words = (
                f"{storage.folder.path}: {model.position - snapshot:,} changes were replayed in another environment "
                f"({'; '.join(differences)}): the learner may differ in the last bits from the one that was stopped"
            )
            warnings.warn(words, stacklevel=3)
            model.statistics.event("environment", model.position, time.time(), differences=differences)
        storage.journal.add_environment(model.position, environment)
    storage.finish_deletions(model)
    return model


def _environment(learner: Learner) -> dict[str, Any]:
    """What the bits of a step depend on."""
    return {
        "everlearn": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": learner.settings.threads,
        "device": str(learner.device),
    }


@atexit.register
def _close_at_exit() -> None:
    """Close the live learners that are still open when the interpreter exits.

    Errors are ignored: every change is in the journal, and the next opening replays what a snapshot would have saved.
    """
    for live in list(OPENED):
        with contextlib.suppress(LiveError, CheckpointError):
            live.close()
