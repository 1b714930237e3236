"""A thread that runs functions one after the other, and the outcome of what another thread does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

__all__ = ["Outcome", "Worker"]


class Outcome:
    """The result or the error of something that another thread does. It is a `Future` with one lock, and as fast.

    >>> outcome = Outcome()
    >>> outcome.succeed(3)
    >>> outcome.result(), outcome.is_known
    (3, True)
    """

    __slots__ = ("_result", "_unknown", "error")

    def __init__(self) -> None:
        self._unknown = threading.Lock()
        self._unknown.acquire()
        self._result: Any = None
        self.error: BaseException | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known by now."""
        return not self._unknown.locked()

    def succeed(self, result: Any) -> None:
        """Set the result."""
        self._result = result
        self._unknown.release()

    def fail(self, error: BaseException) -> None:
        """Set the error."""
        self.error = error
        self._unknown.release()

    def wait(self) -> None:
        """Wait until it is known."""
        with self._unknown:
            pass

    def result(self) -> Any:
        """Wait for the result; raises the error."""
        self.wait()
        if self.error is not None:
            raise self.error
        return self._result


class Worker:
    """One thread that runs functions in the order in which they are submitted.

    Unlike a ThreadPoolExecutor, it can still be used while the interpreter exits.

    >>> worker = Worker("example")
    >>> worker.submit(max, 3, 4).result()
    4
    >>> worker.close()
    """

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[tuple[Outcome, Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"everlearn {name}", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any) -> Outcome:
        """Run a function after all earlier ones."""
        outcome = Outcome()
        self._tasks.put((outcome, function, args))
        return outcome

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            outcome, function, args = task
            try:
                result = function(*args)
            except BaseException as error:
                outcome.fail(error)
            else:
                outcome.succeed(result)
            del task, outcome, function, args  # so that nothing is kept alive while it waits

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        self._tasks.put(None)
        self._thread.join()
