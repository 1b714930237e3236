"""Evaluation in a process of its own: the learner goes on while a snapshot of it is measured."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from everlearn.evaluation.evaluator import Evaluator
from everlearn.evaluation.history import Evaluation
from everlearn.learners.base import Learner

__all__ = ["EvaluationWorker"]


class EvaluationWorker:
    """A process, started on its own and not forked, that evaluates snapshots in the order they come.

    A snapshot passes through a file, so that handing it over never waits for the worker.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        context = multiprocessing.get_context("spawn")
        self._folder = tempfile.TemporaryDirectory(prefix="everlearn-")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, evaluator), daemon=True)
        self._process.start()
        theirs.close()
        self._handed_over = self._received = 0

    def submit(self, learner: Learner, *arguments: Any) -> None:
        """Hand over the learner as it is now; the arguments are those of `Evaluator.evaluate` after it."""
        path = Path(self._folder.name) / str(self._handed_over)
        path.write_bytes(pickle.dumps((learner.snapshot(), arguments)))
        self._pipe.send(str(path))
        self._handed_over += 1

    def collect(self, wait: bool = False) -> list[Evaluation]:
        """The evaluations that are ready, in order; with `wait`, all that were handed over."""
        ready = []
        while self._received < self._handed_over and (wait or self._pipe.poll()):
            try:
                answer = self._pipe.recv()
            except EOFError:
                raise RuntimeError("the evaluation process ended before it had answered") from None
            self._received += 1
            if isinstance(answer, Exception):
                raise answer
            ready.append(answer)
        return ready

    def close(self) -> None:
        """End the process and remove its files."""
        self._pipe.close()
        self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._folder.cleanup()


def _serve(pipe: Connection, evaluator: Evaluator) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            path = Path(pipe.recv())
        except (EOFError, OSError, KeyboardInterrupt):
            return
        try:
            snapshot, arguments = pickle.loads(path.read_bytes())
            path.unlink()
            pipe.send(evaluator.evaluate(snapshot, *arguments))
        except Exception as error:
            pipe.send(error)
