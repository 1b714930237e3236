"""Replace a file atomically and durably: a reader finds the old content or the new one, never a mix."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WINDOWS = os.name == "nt"
if not WINDOWS:
    import fcntl

__all__ = ["is_still_at", "lock_file", "replace_file", "sync_folder"]

# Where files can't be locked, a temporary file that was not written to for this long counts as abandoned.
ABANDONED_SECONDS = 24 * 3600
# The errors of file systems without locks, or without fsync for folders.
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the content to a temporary file beside the path, then rename it over the path.

    A symbolic link stays a link: the file it points to is replaced. An existing file keeps its mode and, where the
    process may set it, its owner; a new one gets the mode that `open` would give it. Missing folders are created. The
    content, the rename and new folders are synced to disk. Temporary files of killed processes are removed.
    """
    target = Path(os.path.realpath(path))
    old = _existing(target)
    _make_folder(target.parent)
    _remove_abandoned(target)
    with _temporary_file(target, private=old is not None) as (file, temporary):
        file.write(content)
        file.flush()
        if old is not None:
            _keep_mode(file.fileno(), old)
        os.fsync(file.fileno())
        if WINDOWS:  # Windows can't rename an open file
            file.close()
        os.replace(temporary, target)
    sync_folder(target.parent)


def _existing(target: Path) -> os.stat_result | None:
    """The status of the file to replace, or None if there is none."""
    try:
        old = target.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(old.st_mode):  # realpath resolves all links except a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    return old


def _make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, and sync each of them to disk."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


@contextlib.contextmanager
def _temporary_file(target: Path, private: bool) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file in the folder of the target, locked while it is open; it is removed if the block fails.

    private: only the owner may read it, until it gets the mode of the file it replaces. Otherwise it has the mode of
    any new file. The system applies the umask, because a thread can't read it without changing it for all others.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
        with os.fdopen(os.open(temporary, flags, 0o600 if private else 0o666), "wb") as file:
            try:
                lock_file(file.fileno(), wait=True)
                # Another process may have removed it as abandoned before it was locked.
                if temporary.exists():
                    yield file, temporary
                    return
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise


def _keep_mode(descriptor: int, old: os.stat_result) -> None:
    """Set the mode of a file to that of another and, if the process may, its owner and group."""
    if WINDOWS:
        return
    new = os.fstat(descriptor)
    if new.st_gid != old.st_gid:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, old.st_gid)
    if new.st_uid != old.st_uid:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, old.st_uid, -1)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def lock_file(descriptor: int, wait: bool) -> bool | None:
    """Lock a file until it is closed or its process ends; None where files can't be locked.

    `flock` belongs to the open file, so it works between threads, processes and containers.
    """
    if WINDOWS:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return None
    return True


def is_still_at(path: str | os.PathLike[str], status: os.stat_result) -> bool:
    """Whether a path still names the file with this status; False if it was removed or replaced."""
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return False


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.partial")
    with contextlib.suppress(OSError):  # a folder that can't be listed, or a file that has just been renamed
        for found in os.listdir(target.parent):
            if name.fullmatch(found):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(target.parent / found)


def _remove_if_abandoned(path: Path) -> None:
    with path.open("r+b") as file:
        abandoned = lock_file(file.fileno(), wait=False)
        if abandoned is None:
            abandoned = time.time() - os.fstat(file.fileno()).st_mtime > ABANDONED_SECONDS
        if WINDOWS:  # Windows can't remove an open file
            file.close()
        if abandoned:
            path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, where the system can."""
    if os.name != "posix":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to, but not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)
