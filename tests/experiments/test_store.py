"""The store: every result is stored exactly once, with several writers and killed processes."""

import dataclasses
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from everlearn.experiments import environment
from everlearn.experiments.codec import decode
from everlearn.experiments.job import Job, key
from everlearn.experiments.runner import attempt
from everlearn.experiments.store import Record, Store, record
from everlearn.experiments.sweep import sweep

DONE = Record("a", {"learner": "cope"}, {}, "1", "cpu", "2026-01-01", 1.5, None, {"accuracy": 0.5})
FAILED = dataclasses.replace(DONE, error="it broke", result=None)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "folder" / "store.sqlite")


def test_a_run_comes_back_as_it_was_stored(store):
    store.add(DONE)
    assert store.get("a") == DONE
    assert Store(store.path).records() == [DONE]
    assert store.get("b") is None


def test_a_done_run_replaces_a_failed_one(store):
    store.add(FAILED)
    assert store.add(DONE)
    assert store.records() == [DONE]


def test_a_newer_failure_replaces_an_older_one(store):
    store.add(FAILED)
    store.add(dataclasses.replace(FAILED, error="it broke again"))
    assert [run.error for run in store.records()] == ["it broke again"]


@pytest.mark.parametrize("later", [FAILED, dataclasses.replace(DONE, seconds=9.0)])
def test_nothing_replaces_a_done_run(store, later):
    store.add(DONE)
    assert not store.add(later)
    assert store.records() == [DONE]


def test_merging_takes_over_what_is_lacking_and_says_how_much(store, tmp_path):
    other = Store(tmp_path / "other.sqlite")
    store.add(FAILED)
    for name in "abc":
        other.add(dataclasses.replace(DONE, key=name))
    assert store.merge(other.records()) == 3
    assert store.merge(other.records()) == 0
    assert [run.key for run in store.records()] == ["a", "b", "c"]
    assert all(run.error is None for run in store.records())


def test_merging_counts_no_failed_run_that_is_there_already(store):
    assert store.merge([FAILED]) == 1
    assert store.merge([FAILED]) == 0
    assert store.merge([dataclasses.replace(FAILED, started="2025-12-31")]) == 0
    assert store.merge([dataclasses.replace(FAILED, started="2026-01-02")]) == 1


@pytest.mark.parametrize(("number", "words"), [(1, ", 1 core,"), (2, ", 2 cores,")])
def test_one_core_is_not_several(number, words, monkeypatch):
    monkeypatch.setattr(environment, "cores", lambda: number)
    assert words in environment.hardware.__wrapped__("cpu")


WRITER = """
import dataclasses, sys
from everlearn.experiments.store import Record, Store
store = Store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[3])):
    store.add(Record(f"{sys.argv[2]}{i}", {}, {}, "1", "cpu", "", 1.0, None, {"filling": "x" * 5000}))
    print(i, flush=True)
"""


def writer(store, name, runs):
    words = [sys.executable, "-c", WRITER, store.path, name, str(runs)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def start(*writers):
    """Let them write, all from the same moment on."""
    for process in writers:
        assert process.stdout.readline() == "ready\n"
    for process in writers:
        process.stdin.write("\n")
        process.stdin.flush()


def test_two_processes_write_at_once(store):
    writers = [writer(store, name, 20) for name in ("left", "right")]
    start(*writers)
    assert [process.communicate() and process.returncode for process in writers] == [0, 0]
    keys = {run.key for run in store.records()}
    assert keys == {f"{name}{i}" for name in ("left", "right") for i in range(20)}


def test_a_killed_process_leaves_the_store_sound(store):
    process = writer(store, "run", 100_000)
    start(process)
    for _ in range(20):
        said = process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    keys = [run.key for run in store.records()]
    assert keys[: int(said) + 1] == [f"run{i}" for i in range(int(said) + 1)]
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    assert store.add(DONE)


def test_a_file_that_is_no_store_is_refused_and_left_as_it_was(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("what I wanted to say " * 100)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"notes.txt is not a store of runs .*; name another file"):
        Store(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_store_is_closed_again(tmp_path, monkeypatch):
    path, opened, connect = tmp_path / "notes.txt", [], sqlite3.connect
    path.write_text("what I wanted to say " * 100)

    def opening(*args, **kwargs):
        opened.append(connect(*args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", opening)
    with pytest.raises(ValueError, match="is not a store of runs"):
        Store(path)
    (connection,) = opened
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("select 1")


def test_the_database_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("create table runs (name text)")
    connection.commit()
    connection.close()
    with pytest.raises(ValueError, match="not a store of this version"):
        Store(path)


def test_a_record_holds_all_that_a_run_came_to(store):
    started = time.gmtime()
    job = Job("cope", "split-digits", 3, imbalance=1, device="cpu", settings={"hidden": 20})
    outcome = attempt(job)
    store.add(record(job, outcome))
    (run,) = store.records()
    assert run.job["seed"] == 3
    assert run.job["settings"] == {"hidden": 20}
    assert run.settings["hidden"] == 20
    assert run.settings["momentum"] == 0.99
    assert run.settings["network"] == "mlp"
    assert run.started[:10] == time.strftime("%Y-%m-%d", started)
    assert "torch" in run.hardware
    assert run.error is None
    result = run.result
    assert result["accuracy"] == outcome.result.accuracy
    assert list(result["concepts"]) == [f"task {i}" for i in range(1, 6)]
    assert sum(result["concepts"].values()) / 5 == pytest.approx(result["accuracy"])
    assert [evaluation["samples"] for evaluation in result["evaluations"]] == [200, 220, 240, 260, 280]
    counts = result["confusion"]["counts"]
    assert result["confusion"]["labels"] == list(range(10))
    assert sum(map(sum, counts)) == 355
    assert result["memory_bytes"] == sum(result["footprint"].values())


def test_a_failed_run_is_recorded_with_its_error_and_settings():
    job = Job("cope", "split-digits", 0, device="cpu", settings={"memory_size": 3})
    run = record(job, attempt(job))
    assert run.result is None
    assert "a memory of 3 has no room for an exemplar of each of 10 classes" in run.error
    assert run.settings["memory_size"] == 3


FIRST_VERSION = """
create table runs (
    key text primary key,
    job text not null, settings text not null,
    version text not null, hardware text not null, started text not null, seconds real not null,
    error text, result text
);
pragma user_version = 1;
insert into runs values (
    'bc2da5a3763760ad',
    '{"learner": "finetune", "stream": "split-digits", "seed": 1, "imbalance": 2,
      "batch_size": 10, "scenario": "split", "amount": null, "settings": {}}',
    '{"network": "mlp", "learning_rate": 0.1}',
    '0.1.0', 'a machine', '2026-01-01T00:00:00+00:00', 1.5, null,
    '{"accuracy": 0.5, "anytime_accuracy": 0.6, "worst_case_accuracy": 0.4, "forgetting": null, "samples": 10,
      "memory_bytes": 400, "footprint": {"replay": 400}, "samples_per_second": 50.0, "concepts": {"task 1": 0.5},
      "confusion": {"labels": [0, 1], "counts": [[3, 1], [0, 4]]},
      "evaluations": [{"samples": 10, "accuracy": 0.5, "concepts": {"task 1": 0.5}}], "together": 1}'
);
"""


def test_a_store_of_the_first_version_loads_and_its_runs_are_not_repeated(tmp_path):
    path = tmp_path / "store.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(FIRST_VERSION)
    connection.close()
    job = Job("finetune", "split-digits", 1, imbalance=2)
    assert sweep([job], path).done == 1
    result = decode(Store(path).get(key(job)).result)
    assert (result.accuracy, result.end.confusion.sum(), result.history[0].samples) == (0.5, 8, 10)


def test_a_store_of_the_first_version_takes_an_experiment(tmp_path):
    path = tmp_path / "store.sqlite"
    connection = sqlite3.connect(path)
    connection.executescript(FIRST_VERSION)
    connection.close()
    before = Store(path).records()
    assert Store(path).experiments() == []
    Store(path).add_experiment({"name": "mine"})
    assert Store(path).experiments() == [{"name": "mine"}] and Store(path).records() == before


def format_of(store):
    with closing(sqlite3.connect(store.path)) as connection:
        return connection.execute("pragma user_version").fetchone()[0]


def test_a_store_without_an_experiment_stays_in_the_format_of_earlier_versions(store):
    store.add(DONE)
    assert format_of(store) == 1
    store.add_experiment({"name": "mine"})
    assert format_of(store) == 2


def test_an_experiment_replaces_another_and_is_stored_once(store):
    store.add_experiment({"name": "one"})
    store.add_experiment({"name": "two"})
    store.add_experiment({"name": "two"})
    store.add_experiment({"name": "three"}, replaces=lambda other: other["name"] == "one")
    assert [each["name"] for each in store.experiments()] == ["two", "three"]


@pytest.mark.parametrize("damage", ["[]", "{", "3"])
def test_an_experiment_that_is_not_json_is_one_sentence(store, damage):
    store.add_experiment({"name": "one"})
    with closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("update experiments set definition = ?", (damage,))
    with pytest.raises(ValueError, match="an experiment in .* can't be read; restore a copy of the file"):
        store.experiments()


def test_two_processes_may_create_one_store_at_the_same_moment(tmp_path, monkeypatch):
    path, prepare = tmp_path / "store.sqlite", Store._prepare

    class Interleaved:
        """A connection that lets another process create the store just before this one does."""

        def __init__(self, connection):
            self._connection = connection

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def execute(self, words, *values):
            if words == "pragma journal_mode = wal":
                monkeypatch.setattr(Store, "_prepare", prepare)
                Store(path).add_experiment({"name": "balanced", "quick": True})
            return self._connection.execute(words, *values)

    monkeypatch.setattr(Store, "_prepare", lambda self, connection: prepare(self, Interleaved(connection)))
    Store(path)
    store = Store(path)
    store.add(DONE)
    assert store.records() == [DONE]
