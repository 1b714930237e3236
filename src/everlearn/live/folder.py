"""The folder of a live learner: its format, its lock, and its snapshots."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from everlearn import checkpoint
from everlearn.atomic_write import is_still_at, lock_file, replace_file, sync_folder
from everlearn.checkpoint import CheckpointError, State
from everlearn.live.checks import check_path
from everlearn.live.journal import LiveError
from everlearn.live.model import position_in
from everlearn.live.sqlite_journal import FILE, SQLiteJournal
from everlearn.live.upgrades import FORMAT, upgraded

__all__ = ["Folder", "backup", "has_changes", "older_name"]

ABOUT = "live.json"
LOCK = "lock"
SNAPSHOT = re.compile(r"snapshot-(\d{15})\.safetensors")
KEPT = 2  # snapshots
ATTEMPTS = 10  # to copy snapshots while they are replaced


class Folder:
    """The files of a live learner, which one process may use at a time.

    is_new: whether no learner was stored in it yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()  # the process may change its working folder
        lock = self.path / LOCK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            found = lock.exists()
            self._lock = lock.open("ab")
        except OSError as error:
            raise LiveError(f"{self.path} can't be used as a folder ({error.strerror})") from None
        if lock_file(self._lock.fileno(), wait=False) is False:
            self._lock.close()
            raise LiveError(
                f"{self.path} is in use by another process, or was opened before in this one: close it there first"
            )
        try:
            self._check_format()
        except BaseException as error:
            self._lock.close()
            if isinstance(error, LiveError) and not found:  # a folder that is refused stays as it was
                with contextlib.suppress(OSError):
                    lock.unlink()
            raise

    @property
    def is_new(self) -> bool:
        """Whether no learner was stored in it yet."""
        return not (self.path / ABOUT).exists()

    def _check_format(self) -> None:
        """Upgrade a folder of an older format, after a backup; refuse one of a newer format."""
        if self.is_new:
            others = {file.name for file in self.path.iterdir()} - {LOCK}
            unfinished = all(
                name.startswith((FILE, f".{ABOUT}.")) or SNAPSHOT.search(name) for name in others
            )
            if not unfinished:
                raise LiveError(f"{self.path} has other files in it: give a folder that is new or empty")
            if has_changes(self.path):
                raise LiveError(
                    f"{self.path / ABOUT} is missing, though the folder holds a learner: restore it from a backup"
                )
            return
        self._check_journal()
        found = _format(self.path)
        if found > FORMAT:
            raise LiveError(
                f"{self.path} has format {found}, but this version of everlearn reads {FORMAT}: install a newer one"
            )
        if found < FORMAT:
            backup(self.path, self.path.with_name(older_name(self.path.name, found)))
            self._upgrade_snapshots(found)
            self._write_about(FORMAT)

    def _check_journal(self) -> None:
        """Raise a LiveError if the journal is gone, and with it the changes since the last snapshot."""
        journal = self.path / FILE
        if not journal.exists() or not journal.stat().st_size:
            found = "empty" if journal.exists() else "missing"
            raise LiveError(
                f"{journal} is {found}: restore the folder from a backup; if its journal is in PostgreSQL, give "
                "journal='postgresql://...'"
            )

    def _upgrade_snapshots(self, version: int) -> None:
        for position in self.positions():
            with contextlib.suppress(CheckpointError):  # a damaged one is left to the recovery
                self.write(upgraded(self.read(position), version))

    def finish(self) -> None:
        """Mark a new folder as complete: it has a snapshot and a journal."""
        self._write_about(FORMAT)

    def _write_about(self, version: int) -> None:
        with self._changing():
            replace_file(self.path / ABOUT, json.dumps({"everlearn live": True, "format": version}).encode())

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change files of the folder. Errors of the disk become a LiveError."""
        self._check_held()
        try:
            yield
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise LiveError(
                f"{self.path} can't be written ({reason}): make room, or check the disk"
            ) from None

    def _check_held(self) -> None:
        """Raise an error if the folder was removed: another process may have made a new one there."""
        if not is_still_at(self.path / LOCK, os.fstat(self._lock.fileno())):
            raise LiveError(
                f"{self.path} was removed or replaced while it was in use: close this live learner and open the "
                "folder again"
            )

    # Snapshots.

    def positions(self) -> list[int]:
        """The positions of the snapshots, the newest first."""
        return _positions(self.path)

    def snapshot(self, position: int) -> Path:
        """The file of the snapshot at this position."""
        return self.path / _name(position)

    def write(self, state: State) -> None:
        """Write a snapshot."""
        path = self.snapshot(position_in(state))
        with self._changing():
            checkpoint.write(state, path)
        try:
            self._check_held()
        except LiveError:  # the folder was removed meanwhile, and the write has made it again
            path.unlink(missing_ok=True)
            raise

    def read(self, position: int) -> State:
        """Read a snapshot; raises a CheckpointError if it is not valid."""
        path = self.snapshot(position)
        state = checkpoint.read(path)
        if position_in(state) != position:
            raise CheckpointError(f"{path} is of the position {position_in(state)}")
        return state

    def keep_newest(self) -> int:
        """Remove all snapshots but the newest two; returns the position of the older one."""
        positions = self.positions()
        with self._changing():
            for position in positions[KEPT:]:
                self.snapshot(position).unlink(missing_ok=True)
        return positions[:KEPT][-1]

    def remove_after(self, position: int) -> None:
        """Remove the snapshots with larger positions."""
        with self._changing():
            for each in self.positions():
                if each > position:
                    self.snapshot(each).unlink(missing_ok=True)
            sync_folder(self.path)

    def erase_before(self, position: int) -> None:
        """Remove the snapshots with smaller positions, and overwrite their bytes first."""
        with self._changing():
            for each in self.positions():
                if each < position:
                    _overwrite(self.snapshot(each))
            for file in self.path.iterdir():  # of a write that was interrupted
                if file.name.endswith(".partial"):
                    _overwrite(file)
            sync_folder(self.path)

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the folder while it is in use."""
        backup(self.path, target)

    def close(self) -> None:
        """Let others open the folder."""
        # A process that was forked meanwhile still has the file open, and with it the lock.
        if os.name != "nt":
            import fcntl

            with contextlib.suppress(OSError):  # of a file system without locks
                fcntl.flock(self._lock.fileno(), fcntl.LOCK_UN)
        self._lock.close()


def has_changes(folder: Path) -> bool:
    """Whether a folder has a snapshot or a journal of a learner that was changed since it was stored there."""
    if not folder.is_dir():
        return False
    if any(_positions(folder)):
        return True
    if not (folder / FILE).exists():
        return False
    journal = SQLiteJournal(folder)
    try:
        return any(journal.bounds())
    finally:
        journal.close()


def backup(folder: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy the folder of a live learner, also while it is in use. The target must not exist yet.

    The copy is a folder that `open_live` opens, at the position the learner had when the journal was copied, or
    slightly later.
    """
    for each in (folder, target):
        check_path(each)
    source, target = Path(folder), Path(target)
    if not (source / ABOUT).exists():
        raise LiveError(f"{source} holds no live learner")
    if target.exists():
        raise LiveError(f"{target} exists: give a folder that is new")
    unfinished = target.with_name(f".{target.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        # The journal first: every snapshot found later can be continued with it, or is newer than all of it.
        journal = SQLiteJournal(source)
        try:
            journal.copy_to(str(unfinished / FILE))
        finally:
            journal.close()
        _copy_snapshots(source, unfinished)
        shutil.copy2(source / ABOUT, unfinished / ABOUT)
        unfinished.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise LiveError(
            f"{target} can't be written ({error.strerror}): make room, or check the disk"
        ) from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _copy_snapshots(source: Path, target: Path) -> None:
    """Copy all snapshots; one that is damaged is left out if there is another."""
    for _ in range(ATTEMPTS):
        for position in _positions(target):  # of the attempt before
            (target / _name(position)).unlink()
        names = [_name(position) for position in _positions(source)]
        copied = [name for name in names if _is_copied(source / name, target / name)]
        if copied == names:
            break
    if not _positions(target):
        raise LiveError(f"the snapshots in {source} are damaged or change too fast to be copied: try again")


def _is_copied(path: Path, target: Path) -> bool:
    """Copy a snapshot; False, and no copy, if it is damaged, or is removed or overwritten meanwhile."""
    try:
        shutil.copy2(path, target)
        checkpoint.read(target)
    except (FileNotFoundError, CheckpointError):
        target.unlink(missing_ok=True)
        return False
    return True


def older_name(name: str, version: int) -> str:
    """The name of the copy of a folder that is made before an upgrade."""
    return f"{name}-format-{version}-{int(time.time())}"


def _name(position: int) -> str:
    return f"snapshot-{position:015}.safetensors"


def _positions(folder: Path) -> list[int]:
    try:
        found = [SNAPSHOT.fullmatch(name) for name in os.listdir(folder)]
    except OSError as error:
        raise LiveError(f"{folder} can't be read ({error.strerror}): check the disk") from None
    return sorted((int(match[1]) for match in found if match), reverse=True)


def _format(folder: Path) -> int:
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        version = about["format"]
        if type(version) is not int or version < 1 or not about["everlearn live"]:
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError):
        raise LiveError(f"{folder / ABOUT} can't be read: restore a backup of the folder") from None
    return version


def _overwrite(path: Path) -> None:
    """Overwrite a file with zeros, then remove it."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        while size > 0:
            size -= file.write(bytes(min(size, 2**20)))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
