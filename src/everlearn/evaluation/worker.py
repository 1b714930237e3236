"""Evaluation in another process: the learner goes on while a snapshot of it is measured."""

from __future__ import annotations

import dataclasses
import multiprocessing
import pickle
import shutil
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from everlearn.core.learner import Learner
from everlearn.evaluation.evaluator import Evaluator, Tests
from everlearn.evaluation.history import Evaluation
from everlearn.parent_watch import end_with_parent, remove_with_parent

__all__ = ["EvaluationWorker"]

# At most this many snapshots wait on disk; then the learner waits, or a slow evaluator would fill the disk.
WAITING = 100


class EvaluationWorker:
    """A process, spawned and not forked, that evaluates snapshots in order.

    A snapshot is passed as a file, so `submit` does not wait for the worker. Held-out samples are passed only when
    they change. The process ends with its parent, however that ends.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="everlearn-")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve,
            args=(theirs, dataclasses.replace(evaluator, metrics={}), self._folder.name),  # they stay here
            daemon=True,
        )
        self._process.start()
        theirs.close()
        try:
            self._pipe.recv()  # it has imported everything
        except (EOFError, OSError):
            raise _ended() from None
        self._tests: Tests | None = None
        self._ready: list[Evaluation] = []
        self._submitted = self._received = 0

    def submit(self, learner: Learner, tests: Tests, *arguments: Any) -> None:
        """Evaluate the learner as it is now; the arguments are those of `Evaluator.evaluate` after it."""
        while self._submitted - self._received >= WAITING:
            self._receive()
        path = Path(self._folder.name) / str(self._submitted)
        known = tests is self._tests
        path.write_bytes(pickle.dumps((learner.snapshot(), None if known else tests, arguments)))
        self._tests = tests
        try:
            self._pipe.send(str(path))
        except OSError:
            raise _ended() from None
        self._submitted += 1

    def collect(self, wait: bool = False) -> list[Evaluation]:
        """The evaluations that are ready, in order; with `wait`, all that were submitted."""
        while self._received < self._submitted and (wait or self._pipe.poll()):
            self._receive()
        ready, self._ready = self._ready, []
        return ready

    def _receive(self) -> None:
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            raise _ended() from None
        self._received += 1
        if isinstance(answer, Exception):
            raise answer
        self._ready.append(answer)

    def close(self) -> None:
        """End the process and remove its files."""
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._folder.cleanup()


def _ended() -> RuntimeError:
    return RuntimeError(
        "the evaluation process ended before it answered; a script that evaluates asynchronously "
        'must guard its code with `if __name__ == "__main__":`'
    )


def _serve(pipe: Connection, evaluator: Evaluator, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the learner's process to handle
    remove_with_parent(Path(folder))
    end_with_parent()
    torch.set_num_threads(1)
    try:
        _answer_all(pipe, evaluator)
    except (EOFError, OSError):  # the worker was closed, or the learner's process has ended
        shutil.rmtree(folder, ignore_errors=True)


def _answer_all(pipe: Connection, evaluator: Evaluator) -> None:
    pipe.send("ready")
    tests: Tests = ()
    while True:
        path = Path(pipe.recv())
        answer: Evaluation | Exception
        try:
            snapshot, new_tests, arguments = pickle.loads(path.read_bytes())
            path.unlink()
            tests = tests if new_tests is None else new_tests
            answer = evaluator.evaluate(snapshot, tests, *arguments)
        except Exception as error:
            answer = error
        pipe.send(answer)
