"""Asynchronous evaluation: the same evaluations, in a process that lives as long as the run."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from everlearn import CoPE, Evaluator, run, stream
from everlearn.engine.loop import StreamError
from everlearn.evaluation import worker as module
from everlearn.evaluation.worker import EvaluationWorker


def small():
    return CoPE("mlp", hidden=16, embedding=8, memory_size=20, device="cpu")


def watched(asynchronous, source, **options):
    evaluator = Evaluator(every=7, representation=True, asynchronous=asynchronous, **options)
    return run(small(), source, evaluator)


def same(one, other):
    one, other = dict(vars(one)), dict(vars(other))
    return np.array_equal(one.pop("confusion"), other.pop("confusion")) and one == other


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Where temporary folders are made; whatever happens, no process and no folder is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = multiprocessing.active_children()  # of other tests, which reuse them
    yield tmp_path
    assert [child for child in multiprocessing.active_children() if child not in before] == []
    assert list(tmp_path.iterdir()) == []


def test_the_evaluations_are_those_of_a_synchronous_run_labelled_with_the_batch_of_the_snapshot():
    source = stream("split-digits", scenario="permuted", amount=3)
    at_once, meanwhile = watched(False, source), watched(True, source)
    assert len(meanwhile.history) > 20
    assert all(same(one, other) for one, other in zip(at_once.history, meanwhile.history, strict=True))
    assert [e.batches for e in meanwhile.history][:3] == [7, 14, 21]
    assert meanwhile.accuracy == at_once.accuracy


def test_held_out_samples_that_evolve_and_a_learner_that_must_wait_change_nothing(monkeypatch):
    monkeypatch.setattr(module, "WAITING", 1)
    source = stream("split-digits", scenario="gradual-drift")
    at_once, meanwhile = (watched(kind, source, concepts="evolving") for kind in (False, True))
    assert all(same(one, other) for one, other in zip(at_once.history, meanwhile.history, strict=True))


def test_an_error_in_the_worker_reaches_the_caller():
    bad = (torch.zeros(3, 5), [0, 1, 0])
    with pytest.raises(ValueError, match=r"got x of shape \[3, 5\] but the network takes \[\*, 64\]"):
        watched(True, stream("split-digits"), tests=bad)


def test_a_stream_that_fails_leaves_no_worker_behind():
    def failing():
        yield torch.randn(4, 3), [0, 1, 0, 1]
        raise OSError("the cable was pulled")

    with pytest.raises(StreamError, match="batch 2: the cable was pulled"):
        run(small(), failing(), Evaluator(every=1, tests=(torch.randn(2, 3), [0, 1]), asynchronous=True))


def test_a_worker_that_is_killed_is_missed():
    source, student = stream("split-digits"), small()
    x, y, _ = next(iter(source))
    student.observe(x, y)
    worker = EvaluationWorker(Evaluator())
    try:
        worker.submit(student, source.tests)
        worker._process.kill()
        with pytest.raises(RuntimeError, match="the evaluation process ended before it answered"):
            worker.collect(wait=True)
        with pytest.raises(RuntimeError, match="the evaluation process ended before it answered"):
            worker.submit(student, source.tests)
    finally:
        worker.close()


def test_it_is_started_on_its_own_and_not_forked():
    worker = EvaluationWorker(Evaluator())
    worker._process.kill()
    worker.close()
    assert type(worker._process).__name__ == "SpawnProcess"


PROGRAM = """
import sys, time
from pathlib import Path
import torch
from everlearn import CoPE, Evaluator
from everlearn.evaluation.worker import EvaluationWorker

class Slow(Evaluator):
    def evaluate(self, *arguments):
        Path(sys.argv[1]).touch()
        time.sleep(60)

if __name__ == "__main__":
    learner = CoPE("mlp", hidden=16, embedding=8, memory_size=20, device="cpu")
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    worker = EvaluationWorker(Slow())
    for _ in range(2):  # one is being evaluated, one waits on disk
        worker.submit(learner, ())
    worker.collect(wait=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_worker_that_is_busy_ends_with_a_learner_that_is_killed_and_removes_its_files(
    tmp_path_factory, folders
):
    place = tmp_path_factory.mktemp("program")
    (place / "program.py").write_text(PROGRAM)
    program = subprocess.Popen(
        [sys.executable, str(place / "program.py"), str(place / "busy")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folders)},
    )
    try:
        deadline = time.monotonic() + 60
        while not (place / "busy").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (place / "busy").exists()
        assert len(list(folders.iterdir())) == 1
        program.send_signal(signal.SIGKILL)
        # The worker inherits the output, which ends with it.
        assert program.communicate(timeout=10) == (b"", None)
    finally:
        program.kill()
    assert list(folders.iterdir()) == []
