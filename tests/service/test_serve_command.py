"""`everlearn serve` as a process: a kill loses nothing that was acknowledged, and a mistake is one sentence."""

import dataclasses
import signal
import socket
import subprocess
import sys
import threading

import httpx
import numpy as np
import pytest

from everlearn import Client, learners, open_live
from everlearn.cli import main
from everlearn.cli.serve import ServeFlags, parse
from everlearn.service.client import ServiceError


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path):
    port = free_port()
    flags = ["--port", str(port), "--memory-size", "50", "--hidden", "16", "--device", "cpu"]
    words = [sys.executable, "-m", "everlearn", "serve", str(tmp_path / "folder"), *flags]
    server = subprocess.Popen(words, stderr=subprocess.PIPE)
    assert b"everlearn serves folder at http://127.0.0.1:" in server.stderr.readline()
    url, acknowledged, enough = f"http://127.0.0.1:{port}", [], threading.Event()

    def learn(number):
        rng = np.random.default_rng(number)
        with Client(url, retries=0) as client:
            try:
                for i in range(10_000):
                    key = f"{number}-{i}"
                    client.ask([key], rng.normal(size=(1, 4)).astype(np.float32))
                    acknowledged.append(("asked", key))
                    if i % 2:
                        client.tell([key], ["even" if i % 4 == 1 else "odd"])
                        acknowledged.append(("told", key))
                    if len(acknowledged) >= 100:
                        enough.set()
            except ServiceError:
                pass

    with Client(url, retries=20) as client:  # it is up
        client.status()
    threads = [threading.Thread(target=learn, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    assert enough.wait(60)
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stderr.close()
    for thread in threads:
        thread.join()
    told = {key for kind, key in acknowledged if kind == "told"}
    asked = {key for kind, key in acknowledged if kind == "asked"} - told
    with open_live(tmp_path / "folder") as live:
        waiting = set(live.learner.waiting.samples)
        # Of each client, one label may be on disk without an answer.
        assert len(asked - waiting) <= len(threads)
        assert not told & waiting
        assert len(told) <= live.learner.samples <= len(told) + len(threads)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "no folder is given"),
        (["a", "--host", "0.0.0.0"], "so the service needs a token"),
        (["a", "--learner", "coep"], "did you mean 'cope'?"),
        (["a", "--from", "amqp://x/y"], "a source is redis://host:port/stream or kafka"),
        (["a", "--journal", "mysql://x/y"], "a journal is None or postgresql://"),
        (["a", "b"], "are new: create one at a time"),
        (["a/b=c d"], "a model's name has letters"),
        (["a", "--limits.queue", "0"], "queue must be at least 1"),
        (["a", "--memory-sise", "3"], "there is no option --memory-sise; did you mean --memory-size?"),
        (["a", "--port", "99999"], "the port must be between 0 and 65535, not 99999"),
        (["a", "--port", "-5"], "the port must be between 0 and 65535, not -5"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(words, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.startswith("everlearn: ")
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_no_setting_of_a_learner_has_the_name_of_a_flag():
    flags = {field.name for field in dataclasses.fields(ServeFlags)}
    for kind in learners.registry().values():
        assert not flags & {field.name for field in dataclasses.fields(kind.Settings)}
    given, _, settings = parse(["folder", "--detector", "ADWIN", "--hidden", "16"])
    assert (given.detector, settings["hidden"]) == ("ADWIN", 16)


def test_a_folder_that_exists_keeps_its_settings(tmp_path, monkeypatch, capsys):
    from running import small

    monkeypatch.chdir(tmp_path)
    open_live("folder", small()).close()
    assert main(["serve", "folder", "--memory-size", "7"]) == 2
    assert "--memory-size is for a new folder" in capsys.readouterr().err


def test_a_port_in_use_is_one_sentence_and_no_folder_is_created(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["serve", "folder", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        f"everlearn: port {port} of 127.0.0.1 is in use by another program: choose another"
    )
    assert len(said.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_is_stopped_ends_its_dashboards_without_an_error(tmp_path):
    words = [sys.executable, "-m", "everlearn", "serve", str(tmp_path / "folder"), "--port", "0"]
    server = subprocess.Popen([*words, "--device", "cpu"], stderr=subprocess.PIPE, text=True)
    try:
        url = server.stderr.readline().partition(" at ")[2].split()[0]
        with httpx.stream("GET", f"{url}/v1/events") as events:
            lines = events.iter_lines()
            assert next(lines).startswith("data: ")
            server.terminate()
            assert list(lines)[-1] == ""  # the end of an event, and of the answer
    finally:
        server.terminate()
        server.wait()
        with server.stderr:
            said = server.stderr.read()
    assert said == ""


def test_any_free_port_is_announced_as_it_is(tmp_path):
    words = [
        sys.executable,
        "-m",
        "everlearn",
        "serve",
        str(tmp_path / "folder"),
        "--port",
        "0",
        "--device",
        "cpu",
    ]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        url = server.stderr.readline().partition(" at ")[2].split()[0]
        assert not url.endswith(":0")
        with Client(url) as client:
            assert client.status()["position"] == 0
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()
