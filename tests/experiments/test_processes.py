"""Runs in processes: a command that is ended takes its processes with it, and loses no run on disk."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from everlearn import Evaluator, load
from everlearn.experiments.job import Job
from everlearn.experiments.runner import execute

fcntl = pytest.importorskip("fcntl")

PROGRAM = """
import fcntl, itertools, sys, time
from pathlib import Path
from everlearn import Evaluator
from everlearn.experiments.job import Job
from everlearn.experiments.processes import in_processes

FOLDER = Path(sys.argv[1])

class Stalling(Job):
    def open_stream(self):
        source = super().open_stream()
        kind = type(source)

        def batches(stream):
            yield from itertools.islice(kind.__iter__(stream), 20)
            lock = open(FOLDER / f"alive-{self.seed}", "w")
            fcntl.flock(lock, fcntl.LOCK_EX)
            (FOLDER / f"ready-{self.seed}").touch()
            time.sleep(60)

        object.__setattr__(source, "__class__", type("Stalling", (kind,), {"__iter__": batches}))
        return source

if __name__ == "__main__":
    settings = {"hidden": 20, "iterations": 1}
    jobs = [
        Stalling("cope", "split-digits", seed, evaluator=Evaluator(every=5), device="cpu", settings=settings,
                 checkpoint=str(FOLDER / "kept"))
        for seed in (0, 1)
    ]
    # Three processes for two jobs: one of them has nothing to do.
    list(in_processes(jobs, 3, lambda samples: None))
"""


def free(path):
    """Whether nobody holds this lock."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def within_seconds(seconds, happens):
    deadline = time.monotonic() + seconds
    while not (happened := happens()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened


def test_a_terminated_command_leaves_no_process_no_temporary_file_and_runs_that_can_go_on(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    # Whatever it starts inherits its output, which ends with the last of them.
    command = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(temporary)}
    )
    try:
        assert within_seconds(60, lambda: all((tmp_path / f"ready-{seed}").exists() for seed in (0, 1)))
        command.send_signal(signal.SIGTERM)
        assert command.wait() == -signal.SIGTERM
        assert within_seconds(10, lambda: all(free(tmp_path / f"alive-{seed}") for seed in (0, 1)))
        output, _ = command.communicate(timeout=10)
        assert output == b""
    finally:
        command.kill()
    assert within_seconds(10, lambda: not list(temporary.iterdir()))
    for seed in (0, 1):
        jobs = [
            Job(
                "cope",
                "split-digits",
                seed,
                evaluator=Evaluator(every=5),
                device="cpu",
                settings={"hidden": 20, "iterations": 1},
                checkpoint=str(tmp_path / folder),
            )
            for folder in ("kept", "whole")
        ]
        assert load(jobs[0].kept_in(), device="cpu").batches == 20
        resumed, whole = (execute(job) for job in jobs)
        assert resumed.accuracy == whole.accuracy
        states = [load(job.kept_in(), device="cpu").state_dict() for job in jobs]
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0] if name != "meta")
