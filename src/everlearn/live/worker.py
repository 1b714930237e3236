"""A thread that runs functions one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

__all__ = ["Worker"]


class Worker:
    """One thread that runs functions in the order in which they are submitted.

    Unlike a ThreadPoolExecutor, it can still be used while the interpreter exits.

    >>> worker = Worker("example")
    >>> worker.submit(max, 3, 4).result()
    4
    >>> worker.close()
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = (
            SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name=f"everlearn {name}", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Run a function after all earlier ones; the future has its result or its error."""
        future: Future[Any] = Future()
        self._tasks.put((future, function, args))
        return future

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, function, args = task
            try:
                result = function(*args)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            del task, future, function, args  # so that nothing is kept alive while it waits

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        self._tasks.put(None)
        self._thread.join()
