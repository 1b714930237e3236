"""Folders that are removed, incomplete or damaged, and disks that fail at a bad moment."""

import shutil
import sqlite3
import time

import pytest
from live_batches import batch, cope, copy_as_killed, teach
from small_learners import same_state

from everlearn import open_live
from everlearn.live import LiveError, folder, holds_learner, sqlite_journal


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=4) as opened:
        yield opened


class FailingCopies:
    """A connection to SQLite that can't copy the log to the database, as on a full disk."""

    def __init__(self, connection):
        self.connection = connection

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def execute(self, statement, *values):
        if "wal_checkpoint" in statement:
            raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(statement, *values)


def test_a_change_that_is_durable_does_not_fail_because_the_log_can_not_be_copied(
    live, tmp_path, monkeypatch
):
    journal = live._storage.journal
    monkeypatch.setattr(sqlite_journal, "LOG_BYTES", 0)
    monkeypatch.setattr(journal, "_connection", FailingCopies(journal._connection))
    teach(live, range(8))
    assert live.position == 8
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


# Folders that are removed or incomplete.


@pytest.fixture
def removed(tmp_path):
    """A live learner at position 6 whose folder was removed."""
    live = open_live(tmp_path / "live", cope(), snapshot_every=4)
    teach(live, range(6))
    live._storage.settle()
    shutil.rmtree(live.folder)
    yield live
    with pytest.raises(LiveError):
        live.close()


def test_a_process_whose_folder_was_removed_acknowledges_nothing_and_makes_no_new_one(removed):
    state = removed.learner.state_dict()
    for number in range(6, 12):
        with pytest.raises(LiveError, match="was removed or replaced while it was in use: close this"):
            teach(removed, [number])
    same_state(removed.learner.state_dict(), state)
    with pytest.raises(LiveError, match="was removed or replaced"):
        removed._storage.folder.write(removed._model.state(0.0))
    assert not removed.folder.exists()


def test_a_process_whose_folder_was_removed_leaves_a_new_one_there_alone(removed):
    with open_live(removed.folder, cope(seed=1)) as new:
        teach(new, range(3))
        here = removed._storage.folder
        calls = (
            removed.save,
            lambda: teach(removed, [6]),
            lambda: here.keep_newest(),
            lambda: here.remove_after(0),
            lambda: here.erase_before(9),
        )
        for call in calls:
            with pytest.raises(LiveError, match="was removed or replaced"):
                call()
        state = new.learner.state_dict()
    with open_live(removed.folder) as again:
        assert again.position == 3
        same_state(again.learner.state_dict(), state)


def test_a_snapshot_that_is_written_while_the_folder_is_removed_is_not_left_behind(tmp_path, monkeypatch):
    live = open_live(tmp_path / "live", cope())
    teach(live, range(2))
    write = folder.checkpoint.write

    def write_late(state, path):
        shutil.rmtree(live.folder)
        write(state, path)

    monkeypatch.setattr(folder.checkpoint, "write", write_late)
    for call in (live.save, live.close):
        with pytest.raises(LiveError, match="was removed or replaced"):
            call()
    assert list(live.folder.iterdir()) == []


@pytest.mark.parametrize("kept", ["snapshot", "journal"])
def test_a_folder_without_live_json_is_not_taken_for_a_new_one(live, tmp_path, kept):
    teach(live, range(3))
    if kept == "snapshot":
        live.save()
    killed = copy_as_killed(live, tmp_path / "killed")
    gone = [killed / folder.ABOUT, *([killed / sqlite_journal.FILE] if kept == "snapshot" else [])]
    backup = {file: file.read_bytes() for file in gone}
    for file in gone:
        file.unlink()
    for learner in (None, cope()):
        with pytest.raises(LiveError, match="live.json is missing, though the folder holds a learner"):
            open_live(killed, learner)
    assert holds_learner(killed)
    for file, content in backup.items():
        file.write_bytes(content)
    with open_live(killed) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_folder_whose_journal_is_gone_is_an_error_and_not_opened_as_of_the_last_snapshot(
    live, tmp_path, how
):
    teach(live, range(3))
    live.save()
    teach(live, range(3, 5))
    killed = copy_as_killed(live, tmp_path / "killed")
    files = list(killed.glob(f"{sqlite_journal.FILE}*"))
    content = {file: file.read_bytes() for file in files}
    assert content[killed / sqlite_journal.FILE]
    for file in files:
        file.unlink()
    if how == "empty":
        (killed / sqlite_journal.FILE).touch()
    for _ in range(2):  # the refusal makes no journal
        with pytest.raises(LiveError, match=f"journal.sqlite is {how}: restore the folder from a backup"):
            open_live(killed)
    for file, kept in content.items():
        file.write_bytes(kept)
    with open_live(killed) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


def test_a_kill_while_live_json_was_written_leaves_a_folder_that_is_made_again(tmp_path):
    with open_live(tmp_path / "live", cope()):
        pass
    about = tmp_path / "live" / folder.ABOUT
    about.rename(about.with_name(f".{folder.ABOUT}.0123456789abcdef.partial"))
    assert not holds_learner(tmp_path / "live")
    with open_live(tmp_path / "live", cope(seed=3)) as live:
        live.observe(*batch(0))
        assert live.learner.seed == 3


# Damage to the journal.


def with_statement(live, target, statement):
    """A copy of the folder in whose journal an SQL statement has been run."""
    killed = copy_as_killed(live, target)
    connection = sqlite3.connect(killed / sqlite_journal.FILE)
    with connection:
        connection.execute(statement)
    connection.close()
    return killed


def test_entries_that_are_missing_from_a_damaged_page_are_an_error(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=1000) as live:
        teach(live, range(40))
        file = copy_as_killed(live, tmp_path / "killed") / sqlite_journal.FILE
    content = file.read_bytes()
    leaves = [
        start
        for start in range(sqlite_journal.PAGE, len(content), sqlite_journal.PAGE)
        if content[start] == 13 and content[start + 4] > 0  # the kind of the page, and how many rows it has
    ]
    assert len(leaves) >= 4
    for start in leaves:
        damaged = bytearray(content)
        damaged[start + 4] -= 1
        file.write_bytes(damaged)
        with pytest.raises(LiveError, match="is damaged: restore a backup of the folder"):
            sqlite_journal.SQLiteJournal(file.parent)
    file.write_bytes(content)
    sqlite_journal.SQLiteJournal(file.parent).close()


@pytest.mark.parametrize(
    "value",
    ["samples = cast(samples as text)", "samples = 2.5", "time = 'noon'", "detail = x'ff'", "checksum = 'x'"],
)
def test_an_entry_with_a_value_of_another_type_is_named_and_can_be_left_out(live, tmp_path, value):
    teach(live, range(3))
    killed = with_statement(live, tmp_path / "killed", f"update entries set {value} where position = 2")
    with pytest.raises(LiveError, match=r"is damaged: entry 2 has .* skip=\[2\]"):
        open_live(killed)
    with pytest.warns(UserWarning, match="entry 2 of the journal was left out"):
        again = open_live(killed, skip=[2])
    with again:
        assert (again.position, again.learner.batches, len(again.refused())) == (3, 2, 1)


@pytest.mark.parametrize(
    "statement",
    [
        "update bounds set removed = 'x'",
        "update bounds set last = 2.5",
        "update environments set environment = x'ff00'",
        "update environments set environment = '[]'",
        "update environments set after = 'x'",
    ],
)
def test_a_journal_with_a_wrong_value_outside_its_entries_is_an_error_in_words(live, tmp_path, statement):
    teach(live, range(2))
    killed = with_statement(live, tmp_path / "killed", statement)
    with pytest.raises(LiveError, match="is damaged: restore a backup of the folder"):
        open_live(killed)


# Work in the background.


def test_a_trim_that_failed_is_reported_and_fails_no_later_call(live, monkeypatch):
    def full(*_):
        raise LiveError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(live._storage.journal, "trim", full)
        teach(live, range(9))
        live._storage.settle()
    assert live.status()["snapshot"]["error"] == "the disk is full"
    assert live.history()[-1]["event"] == "snapshot failed"
    live.rollback(8)
    live.delete(["sample-7-0"])
    assert live.save() == 9
    assert live.status()["snapshot"]["error"] is None


def test_status_names_the_snapshot_that_there_is_after_one_that_failed(live, monkeypatch):
    def full(_):
        raise LiveError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(live._storage.folder, "write", full)
        teach(live, range(4))
        live._storage.settle()
    found = live.status()["snapshot"]
    assert (found["position"], found["error"]) == (0, "the disk is full")


# Backups.


def test_a_backup_during_a_deletion_can_be_opened(live, tmp_path, monkeypatch):
    teach(live, range(3))
    live.delete(["sample-0-0"])  # after which there is one snapshot
    teach(live, range(3, 5))
    copy, begun = shutil.copy2, []

    def delete_meanwhile(path, target):
        if begun or path.suffix != ".safetensors":
            return copy(path, target)
        begun.append(path)
        with path.open("rb") as half, target.open("wb") as written:
            written.write(half.read(path.stat().st_size // 2))
            live.delete(["sample-1-0"])
            return written.write(half.read())

    monkeypatch.setattr(folder.shutil, "copy2", delete_meanwhile)
    live.backup(tmp_path / "copy")
    with open_live(tmp_path / "copy") as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


def test_a_backup_leaves_out_a_damaged_snapshot_and_fails_without_another(live, tmp_path):
    teach(live, range(2))
    live.save()
    teach(live, [2])
    newest, older = (live._storage.folder.snapshot(each) for each in live._storage.folder.positions())
    newest.write_bytes(newest.read_bytes()[:-5])
    live.backup(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").glob("*.safetensors")] == [older.name]
    with open_live(tmp_path / "copy") as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())
    older.write_bytes(b"")
    with pytest.raises(LiveError, match="are damaged or change too fast to be copied"):
        live.backup(tmp_path / "none")
    assert not (tmp_path / "none").exists()


# Files that can't be changed.


@pytest.mark.parametrize("call", ["keep_newest", "remove_after", "erase_before"])
def test_a_file_that_can_not_be_removed_is_an_error_in_words(live, monkeypatch, call):
    for number in range(3):
        teach(live, [number])
        live._storage.folder.write(live._model.state(0.0))

    def fail(*_, **__):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(folder.Path, "unlink", fail)
    arguments = {"keep_newest": (), "remove_after": (1,), "erase_before": (2,)}[call]
    with pytest.raises(LiveError, match=r"can't be written \(Input/output error\)"):
        getattr(live._storage.folder, call)(*arguments)
    monkeypatch.undo()


# Bytes: how many there may be, and how they are erased.


def test_a_journal_of_many_bytes_is_trimmed_before_many_changes(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.live.storage.LEAST_BYTES", 20_000)
    monkeypatch.setattr("everlearn.live.storage.TIMES", 0)
    with open_live(tmp_path / "live", cope(), snapshot_every=10**6) as live:
        for number in range(6):
            live.observe(*batch(number, 200))  # 4,800 bytes and a page
            live._storage.settle()
        assert live._storage.folder.positions() == [6, 3]
        assert live._storage.journal.bounds() == (3, 6)
        live.observe(*batch(6, 200))
        live.observe(*batch(7, 200))
        killed = copy_as_killed(live, tmp_path / "killed")
    with open_live(killed, snapshot_every=10**6) as again:  # what a killed process has added counts, too
        again.observe(*batch(8, 200))
        again.observe(*batch(9, 200))
        again._storage.settle()
        assert again._storage.folder.positions()[0] == 10


def test_a_large_snapshot_is_written_less_often(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.live.storage.LEAST_BYTES", 0)
    with open_live(tmp_path / "live", cope(memory_size=300), snapshot_every=10**6) as live:
        teach(live, range(20))
        live.save()
        size = live._storage.folder.snapshot(20).stat().st_size
        needed = 4 * size // sqlite_journal.PAGE  # each entry counts as a page and its samples
        teach(live, range(20, 20 + needed // 2))
        live._storage.settle()
        assert live._storage.folder.positions()[0] == 20


def test_a_deletion_overwrites_the_log_and_the_file_before_it_shortens_them(tmp_path, monkeypatch):
    with open_live(tmp_path / "live", cope(), snapshot_every=10**6) as live:
        teach(live, range(12))
        journal = live._storage.journal
        journal._connection.execute("pragma wal_checkpoint(passive)")  # the samples are in both files now
        teach(live, range(12, 15))
        secrets = [batch(number)[0].numpy().tobytes() for number in range(15)]
        shortened = []

        def check(file):
            content = (live.folder / file).read_bytes()
            assert len(content) > sqlite_journal.PAGE and not any(secret in content for secret in secrets)
            shortened.append(file)

        class Checked(FailingCopies):
            def execute(self, statement, *values):
                if statement == "vacuum":
                    check("journal.sqlite")
                if statement == "pragma wal_checkpoint(truncate)":
                    check("journal.sqlite-wal")
                return self.connection.execute(statement, *values)

        with monkeypatch.context() as patched:
            patched.setattr(journal, "_connection", Checked(journal._connection))
            live.delete(["sample-3-0"])
        assert shortened == ["journal.sqlite", "journal.sqlite-wal"]


def test_a_deletion_waits_until_the_log_is_copied_by_another_thread(live, monkeypatch):
    order, journal = [], live._storage.journal

    class Recorded(FailingCopies):
        def execute(self, statement, *values):
            if "wal_checkpoint" in statement:
                order.append(statement)
            return self.connection.execute(statement, *values)

    def slow():
        time.sleep(0.1)
        order.append("copied")

    teach(live, [0])
    with monkeypatch.context() as patched:
        patched.setattr(sqlite_journal, "LOG_BYTES", 0)
        patched.setattr(journal, "_copy_log", slow)
        patched.setattr(journal, "_connection", Recorded(journal._connection))
        live.delete(["sample-0-0"])
    assert order[:2] == ["copied", "pragma wal_checkpoint(restart)"]


def test_a_deletion_says_that_a_reader_keeps_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_journal, "PATIENCE", 0.1)
    with open_live(tmp_path / "live", cope()) as live:
        teach(live, range(3))
        reader = sqlite3.connect(live.folder / sqlite_journal.FILE, isolation_level=None)
        reader.execute("begin")
        reader.execute("select count(*) from entries").fetchone()
        with pytest.raises(
            LiveError, match="older files still hold the samples: .*locked by another process"
        ):
            live.delete(["sample-1-0"])
        reader.close()
        live.delete(["sample-1-0"])
        assert not any(b"sample-1-0" in file.read_bytes() for file in live.folder.iterdir())
