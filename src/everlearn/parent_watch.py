"""End a worker process when its parent process has ended for any reason, also after SIGKILL."""

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

# How often a worker checks whether its parent exists, on systems that do not report its end.
POLL_SECONDS = 0.5

_folders: set[Path] = set()


def end_with_parent() -> None:
    """End this process as soon as its parent has ended. Call it once, at the start of a worker.

    The parent is the process that started this one through `multiprocessing` or joblib.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("this process is not a worker: it was not started by multiprocessing")
    arguments = (parent.pid, _handles(parent))
    threading.Thread(target=_watch, args=arguments, name="parent watch", daemon=True).start()


def remove_with_parent(folder: Path) -> None:
    """Remove this folder of the parent if the parent ends before it could do so itself."""
    _folders.add(folder)


def _handles(parent: BaseProcess) -> list[int]:
    """Handles that become readable when the parent ends: its sentinel and, on Linux, a descriptor of the process.

    A signal (PR_SET_PDEATHSIG) is not used: Linux sends it when the thread that started the worker ends, and joblib
    starts workers in its own threads.
    """
    sentinel: int | None = parent.sentinel  # None for workers of joblib, except on Windows
    handles = [] if sentinel is None else [sentinel]
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # the parent has ended, or the system forbids it
            handles.append(os.pidfd_open(parent.pid or 0))
    return handles


def _watch(parent: int, handles: list[int]) -> None:
    first = os.getppid()  # an orphan gets another parent
    while os.getppid() == first and _exists(parent) and not wait(handles, POLL_SECONDS):
        pass
    for folder in list(_folders):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _exists(process: int) -> bool:
    if os.name != "posix":  # other systems always have a sentinel
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
