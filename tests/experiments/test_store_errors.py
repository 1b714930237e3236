"""SQLite's errors become one sentence each; a read-only store can be read."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from runs_made_up import five

from everlearn.cli import main
from everlearn.experiments import store as stores
from everlearn.experiments import sweep
from everlearn.experiments.store import Store

RUNS = five("cope", "split-mnist", [90, 91])


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user may go into, which pytest's own are not."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture
def store(folder: Path) -> Store:
    made = Store(folder / "store.sqlite")
    for run in RUNS:
        made.add(run)
    return made


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as a user without root's rights: root can write to read-only files."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """A folder, and the files in it, that nobody may write to."""
    mode = path.stat().st_mode
    for inside in filter(Path.is_file, path.iterdir()):
        inside.chmod(0o444)
    path.chmod(0o555)
    try:
        with unprivileged():
            yield
    finally:
        path.chmod(mode)


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as caught:
        Store(path).records()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_store_in_a_read_only_folder_is_read(store) -> None:
    with read_only(store.path.parent):
        assert Store(store.path).records() == RUNS
        assert store.get(RUNS[0].key) == RUNS[0]


def test_a_read_only_file_in_a_folder_of_ones_own_is_read(store) -> None:
    store.path.chmod(0o444)
    store.path.parent.chmod(0o777)
    with unprivileged():
        assert Store(store.path).records() == RUNS


def test_a_report_is_made_of_a_read_only_store(store, folder, capsys) -> None:
    out = folder / "out"
    out.mkdir()
    out.chmod(0o777)
    words = ["report", str(store.path), "--csv", str(out / "runs.csv")]
    assert main(words) == 0  # imports everything while the user may still read it
    (out / "runs.csv").unlink()
    with read_only(folder):
        assert main(words) == 0
    assert len((out / "runs.csv").read_text("utf-8").splitlines()) == 3


def test_a_run_for_a_read_only_store_is_refused_in_one_sentence(store) -> None:
    (new,) = five("mir", "split-mnist", [80])
    with read_only(store.path.parent), pytest.raises(ValueError, match="store.sqlite can"):
        store.add(new)
    assert store.records() == RUNS


def test_a_store_is_tried_before_a_run_and_nothing_is_written(store) -> None:
    before = store.path.read_bytes()
    store.check_writable()
    assert store.path.read_bytes() == before
    with read_only(store.path.parent), pytest.raises(ValueError, match="store.sqlite can"):
        store.check_writable()


def test_nothing_runs_where_the_store_can_only_be_read(store) -> None:
    words = ["reproduce", "balanced", "--quick", "--learners", "finetune", "--seeds", "1", "--device", "cpu"]
    started = []

    def nothing(*arguments):
        started.append(arguments)
        return (outcome for outcome in ())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "outcomes", nothing)
        assert (
            main([*words, "--store", str(store.path)]) == 0
        )  # imports everything while the user may still read it
        assert len(started) == 1
        with read_only(store.path.parent):
            assert main([*words, "--store", str(store.path)]) == 2
    assert len(started) == 1


def test_a_store_that_may_not_be_read_is_named(store) -> None:
    store.path.chmod(0o000)
    with unprivileged():
        said = refused(store.path)
    assert said == (
        f"{store.path} can't be opened; check the permissions of the file and its folder, or name another file"
    )


def test_a_store_in_a_folder_that_can_not_be_made_is_named(folder) -> None:
    with read_only(folder):
        said = refused(folder / "deep" / "store.sqlite")
    assert "is not a store of runs, since its folder can't be created (Permission denied)" in said


def test_a_store_that_another_process_holds_is_named(store, monkeypatch) -> None:
    monkeypatch.setattr(stores, "PATIENCE", 0.05)
    (new,) = five("mir", "split-mnist", [80])
    with closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        with pytest.raises(
            ValueError, match="is in use by another process; wait until that ends, and run the same"
        ):
            store.add(new)
        assert store.records() == RUNS  # readers don't wait
    assert store.add(new)


def test_a_damaged_store_is_named(store) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    store.path.write_bytes(content)
    assert refused(store.path) == f"{store.path} is damaged; restore a copy of it, or name another file"


def test_a_full_disk_is_named(store) -> None:
    def fill() -> None:
        with store._open(write=True) as connection:
            connection.execute("pragma max_page_count = 1")
            connection.execute("create table more as select hex(randomblob(100000)) from runs")

    with pytest.raises(
        ValueError, match="can't be written, since the disk is full; make room, and run the same"
    ):
        fill()
    assert store.records() == RUNS


def test_a_folder_in_place_of_a_store_is_named(folder) -> None:
    (folder / "store.sqlite").mkdir()
    assert "store.sqlite can't be opened; check the permissions" in refused(folder / "store.sqlite")


@pytest.mark.parametrize(
    "change",
    [
        "drop table runs",
        "alter table runs add column more text",
        "alter table runs rename column job to task",
        "create table more (a text)",
        "create trigger t after insert on runs begin delete from runs; end",
        "alter table runs rename to old; create view runs as select * from old",
    ],
)
def test_a_database_that_holds_something_else_is_refused_and_left_as_it_was(change, store) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.executescript(change)
        connection.execute("pragma wal_checkpoint(truncate)")
    before = store.path.read_bytes()
    assert "is not a store of runs (it has other tables); name another" in refused(store.path)
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("job = '{'", "can't be read; restore a copy of the file, or name another"),
        ("job = 3", "its job can't be read"),
        ("settings = '[]'", "its settings can't be read"),
        ("result = '3'", "its result can't be read"),
        ("seconds = 'long'", "its seconds can't be read"),
        ("version = x'00'", "its version can't be read"),
        ("error = x'00'", "its error can't be read"),
    ],
)
def test_a_forged_run_is_named(change, sentence, store) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"update runs set {change} where key = ?", (RUNS[1].key,))
        connection.commit()
    said = refused(store.path)
    assert sentence in said
    assert f"the run {RUNS[1].key!r} in {store.path} " in said


def test_the_command_says_what_is_wrong_with_a_store(folder, capsys) -> None:
    path = folder / "store.sqlite"
    path.write_bytes(b"no database " * 1000)
    assert main(["report", str(path)]) == 2
    assert capsys.readouterr().err.startswith(
        f"everlearn: {path} is not a store of runs (file is not a database);"
    )
