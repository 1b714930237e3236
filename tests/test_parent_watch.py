"""A worker ends with its parent, whatever signal ends that, and only with it."""

import signal
import subprocess
import sys
import time

import pytest

fcntl = pytest.importorskip("fcntl")

PROGRAM = """
import fcntl, multiprocessing, os, signal, sys, threading, time
from pathlib import Path
from everlearn import parent_watch

FOLDER = Path(sys.argv[-1])

def work(way):
    lock = open(FOLDER / "alive", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if way == "polled":
        if hasattr(os, "pidfd_open"):
            del os.pidfd_open
        multiprocessing.parent_process()._sentinel = None
    if way == "late":
        (FOLDER / "ready").touch()
        while os.getppid() == multiprocessing.parent_process().pid:
            time.sleep(0.01)
    parent_watch.remove_with_parent(FOLDER / "temporary")
    parent_watch.end_with_parent()
    (FOLDER / "ready").touch()
    time.sleep(30)

def start(way):
    if way == "joblib":
        from joblib.externals.loky import get_reusable_executor
        global executor
        executor = get_reusable_executor(max_workers=1)
        executor.submit(work, way)
    else:
        multiprocessing.get_context("spawn").Process(target=work, args=(way,)).start()

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who starts the tests may ignore it, as nohup does
    (FOLDER / "temporary").mkdir()
    if sys.argv[1] == "thread":
        thread = threading.Thread(target=start, args=("spawn",))
        thread.start()
        thread.join()
        print("the thread has ended", flush=True)
    else:
        start(sys.argv[1])
    time.sleep(30)
"""


@pytest.fixture
def parent(tmp_path):
    """Start a program with one worker; gives its process and the folder, when the worker is at work."""
    (tmp_path / "program.py").write_text(PROGRAM)
    running = []

    def start(way):
        words = [sys.executable, str(tmp_path / "program.py"), way, str(tmp_path)]
        running.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        assert within_seconds(20, (tmp_path / "ready").exists)
        return running[0]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def within_seconds(seconds, happens):
    deadline = time.monotonic() + seconds
    while not (happened := happens()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return happened


def worker_has_ended(folder):
    """Whether the lock that the worker holds is free: only its end releases it."""
    with open(folder / "alive", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_worker_ends_with_its_parent_and_removes_its_folder(parent, tmp_path, number):
    process = parent("spawn")
    assert not worker_has_ended(tmp_path)
    process.send_signal(number)
    assert process.wait() == -number
    assert within_seconds(10, lambda: worker_has_ended(tmp_path))
    assert not (tmp_path / "temporary").exists()


@pytest.mark.parametrize("way", ["joblib", "polled", "late"])
def test_it_also_ends_if_the_system_does_not_report_the_end_of_the_parent(parent, tmp_path, way):
    process = parent(way)
    process.kill()
    process.wait()
    assert within_seconds(10, lambda: worker_has_ended(tmp_path))
    assert not (tmp_path / "temporary").exists()


def test_it_goes_on_when_only_the_thread_that_started_it_has_ended(parent, tmp_path):
    process = parent("thread")
    assert process.stdout.readline() == "the thread has ended\n"
    assert not within_seconds(1, lambda: worker_has_ended(tmp_path))
    process.kill()
    process.wait()
    assert within_seconds(10, lambda: worker_has_ended(tmp_path))


def test_a_process_that_is_not_a_worker_gets_an_error():
    words = "from everlearn.parent_watch import end_with_parent; end_with_parent()"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: this process is not a worker" in done.stderr
