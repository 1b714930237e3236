"""A worker process ends with its parent, whatever ended that: a signal that can be handled or one that can't."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import threading
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

__all__ = ["end_with_parent", "remove_with_parent"]

# How often a worker asks the system for its parent, where nothing else tells that it has ended.
SECONDS = 0.5

_folders: set[Path] = set()


def end_with_parent() -> None:
    """End this process, as a kill would, as soon as its parent has ended; call it once, first in a worker.

    The parent is the process that started this one through `multiprocessing` or joblib.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("this process is no worker: multiprocessing did not start it")
    arguments = (parent.pid, _handles(parent))
    threading.Thread(target=_watch, args=arguments, name="parent watch", daemon=True).start()


def remove_with_parent(folder: Path) -> None:
    """Remove this folder, which the parent would remove itself, when this process ends with its parent."""
    _folders.add(folder)


def _handles(parent: BaseProcess) -> list[int]:
    """What becomes readable when the parent ends: its sentinel and, on Linux, a descriptor of the process itself.

    Linux could also send a signal (PR_SET_PDEATHSIG), but it does so as soon as the thread ends that started the
    worker, and joblib starts workers in threads of its own.
    """
    sentinel: int | None = parent.sentinel  # none for joblib's workers, except on Windows
    handles = [] if sentinel is None else [sentinel]
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # it has ended, or the system forbids it
            handles.append(os.pidfd_open(parent.pid or 0))
    return handles


def _watch(parent: int, handles: list[int]) -> None:
    first = os.getppid()  # an orphan gets another parent
    while os.getppid() == first and _exists(parent) and not wait(handles, SECONDS):
        pass
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _exists(process: int) -> bool:
    if os.name != "posix":  # elsewhere there is always a sentinel
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
