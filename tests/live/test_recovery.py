"""Kills, damage, full disks, backups, rollbacks and older formats."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from live_batches import batch, cope, copy_as_killed, ids, in_format_1, teach
from small_learners import NAMES, make, same_state

from everlearn import checkpoint, open_live
from everlearn.live import LiveError, folder, sqlite_journal
from everlearn.live.entries import Change, Entry
from everlearn.live.model import Model, record_in
from everlearn.live.sqlite_journal import FILE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=4) as opened:
        yield opened


def settled(live):
    """The same live learner, once no snapshot is being written."""
    live._storage.settle()
    return live


@pytest.mark.parametrize("name", NAMES)
def test_after_a_kill_every_learner_has_the_same_bits(name, tmp_path):
    learner = make(name)
    with open_live(tmp_path / "live", learner, snapshot_every=10**9) as live:
        task = {"t": 0} if learner.needs else {}
        for number in range(3):
            live.observe(*batch(number), ids(number), **task)
        live.ask(ids(3), batch(3)[0])
        live.tell(ids(3)[:2], ["a", "b"], **task)
        if learner.can_forget:
            live.forget("a")
        live.delete(["sample-0-0", "sample-3-2"])
        live.observe(*batch(4), ids(4), **task)
        live.correct(ids(4)[:1], ["b"])
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            same_state(again.learner.state_dict(), live.learner.state_dict())
            for each in (live, again):
                each.observe(*batch(5), **task)
            same_state(again.learner.state_dict(), live.learner.state_dict())
            assert again._model.statistics.state() == live._model.statistics.state()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_fifty_kills_nothing_is_lost_or_applied_twice():
    words = [sys.executable, str(ROOT / "benchmarks" / "live_kills.py"), "--kills", "50"]
    told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "0 lost, 0 applied twice, 0 states with other bits" in told


def test_two_snapshots_are_kept_and_the_journal_is_trimmed_behind_the_older(live):
    for first in (0, 4, 8):
        teach(live, range(first, first + 4))
        settled(live)
    teach(live, [12])
    assert live._storage.folder.positions() == [12, 8]
    assert live._storage.journal.bounds() == (8, 13)
    assert [entry.position for entry in live._storage.journal.entries(0)] == [9, 10, 11, 12, 13]


def test_the_log_has_its_size_after_a_few_commits(live, tmp_path):
    log = live.folder / f"{FILE}-wal"
    teach(live, range(12))
    size = log.stat().st_size
    assert size > sqlite_journal.LOG_BYTES
    teach(settled(live), range(12, 30))
    assert log.stat().st_size == size
    live.delete(["sample-0-0"])  # empties it
    assert log.stat().st_size < size
    teach(live, range(30, 42))
    assert log.stat().st_size > sqlite_journal.LOG_BYTES
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


def test_a_damaged_snapshot_is_replaced_by_the_older_one_and_the_journal(live, tmp_path):
    teach(live, range(13))
    killed = copy_as_killed(settled(live), tmp_path / "killed")
    newest, _ = sorted(killed.glob("*.safetensors"), reverse=True)
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    with open_live(killed) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())
        assert again.position == 13
        assert not newest.exists()
    for damaged in killed.glob("*.safetensors"):
        damaged.write_bytes(damaged.read_bytes()[:-5])
    with pytest.raises(LiveError, match=r"can't be opened: .*is not a valid checkpoint"):
        open_live(killed)
    assert len(list(killed.glob("*.safetensors"))) == 2


def test_a_damaged_journal_is_an_error(live, tmp_path):
    teach(live, range(2))
    killed = copy_as_killed(live, tmp_path / "killed")
    stored = batch(1)[0].numpy().tobytes()
    content = (killed / FILE).read_bytes()
    assert stored in content
    (killed / FILE).write_bytes(content.replace(stored, bytes(len(stored))))
    with pytest.raises(LiveError, match="is damaged: entry 2 has another checksum than its content"):
        open_live(killed)
    (killed / FILE).write_bytes(b"not a database at all" * 100)
    with pytest.raises(LiveError, match="is not a journal: restore a backup"):
        open_live(killed)


@pytest.mark.parametrize("lost", [1, 100, 5000, 20000])
def test_a_torn_log_gives_the_state_at_an_earlier_position(live, tmp_path, lost):
    teach(live, range(4))
    shutil.copytree(settled(live).folder, tmp_path / "torn")
    log = tmp_path / "torn" / f"{FILE}-wal"
    content = log.read_bytes()
    log.write_bytes(content[: max(len(content) - lost, 0)])
    (tmp_path / "torn" / f"{FILE}-shm").unlink()
    with open_live(tmp_path / "torn") as again:
        plain = cope()
        for number in range(again.position):
            plain.observe(*batch(number))
        same_state(again.learner.state_dict(), plain.state_dict())


def test_a_full_disk_fails_the_call_and_nothing_else(live, tmp_path):
    teach(live, range(3))
    state, connection = live.learner.state_dict(), live._storage.journal._connection
    pages = connection.execute("pragma page_count").fetchone()[0]
    connection.execute(f"pragma max_page_count = {pages}")
    x, y = batch(3, 400)
    with pytest.raises(
        LiveError, match="can't be written, since the disk is full: make room, and call again"
    ):
        live.observe(x, y)
    same_state(live.learner.state_dict(), state)
    assert live.position == 3
    connection.execute("pragma max_page_count = 1000000")
    live.observe(x, y)
    assert live.position == 4
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


FULL = """
import resource, sys
sys.path[:0] = [{tests!r}, {here!r}]
from live_batches import batch, cope, teach
from everlearn import open_live
from everlearn.live import LiveError

live = open_live({folder!r}, cope(), snapshot_every=3)
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
number = 0
try:
    while True:
        live.observe(*batch(number, 40))
        number += 1
except LiveError as error:
    print(number, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
live.observe(*batch(number, 40))
print(live.position)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the size of files")
def test_a_write_that_fails_halfway_loses_nothing(tmp_path):
    here = str(Path(__file__).parent)
    script = FULL.format(tests=str(ROOT / "tests"), here=here, folder=str(tmp_path / "live"))
    told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    first, last = told.splitlines()
    number = int(first.split()[0])
    assert "the disk fails or is full" in first and number > 0
    assert int(last) == number + 1
    plain = cope()
    for each in range(number + 1):
        plain.observe(*batch(each, 40))
    with open_live(tmp_path / "live") as again:
        same_state(again.learner.state_dict(), plain.state_dict())


def test_a_snapshot_that_can_not_be_written_is_reported_and_tried_again(live, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(folder.checkpoint, "write", full)
        teach(live, range(5))
        settled(live)
        assert "can't be written (No space left on device)" in live.status()["snapshot"]["error"]
        assert live.history()[-1]["event"] == "snapshot failed"
        with pytest.raises(LiveError, match="No space left on device"):
            live.save()
    teach(live, range(5, 12))
    settled(live)
    assert live.status()["snapshot"]["error"] is None
    assert live.position == 12


def test_a_diverged_network_is_never_saved_over_a_good_snapshot(live):
    teach(live, range(3))
    live.save()
    with torch.no_grad():
        live.learner.parameters[0].fill_(float("nan"))
    with pytest.raises(ValueError, match="the network has diverged"):
        live._storage.folder.write(live._model.state(0.0))
    live._storage.position = -100
    live._storage.after_change(live._model)
    assert "the network has diverged" in live._storage.error
    assert live._storage.folder.positions()[0] == 3


def test_an_unfinished_new_folder_is_made_again(tmp_path):
    with open_live(tmp_path / "live", cope()):
        pass
    (tmp_path / "live" / folder.ABOUT).unlink()
    with open_live(tmp_path / "live", cope(seed=3)) as live:
        teach(live, [0])
        assert live.learner.seed == 3


def test_a_folder_that_is_gone_is_an_error_in_words_and_none_at_exit(tmp_path):
    here = str(Path(__file__).parent)
    script = f"""
import os, shutil, sys
sys.path[:0] = [{str(ROOT / "tests")!r}, {here!r}]
from live_batches import batch, cope
from everlearn import open_live
from everlearn.live import LiveError

os.chdir({str(tmp_path)!r})
live = open_live("live", cope())
os.chdir("/")
live.observe(*batch(0))
print(live.save())
shutil.rmtree(live.folder)
try:
    live.save()
except LiveError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[0] == "1"
    assert "can't be read (No such file or directory)" in done.stdout.splitlines()[1]
    assert done.stderr == ""


def test_another_environment_is_said(live, tmp_path):
    teach(live, range(2))
    killed = copy_as_killed(live, tmp_path / "killed")
    with open_live(killed) as again:
        assert again.history() == live.history()
    killed = copy_as_killed(live, tmp_path / "other")
    journal = folder.SQLiteJournal(killed)
    ((_, environment),) = journal.environments()
    journal.add_environment(0, environment | {"torch": "1.0"})
    journal.close()
    with (
        pytest.warns(UserWarning, match=r"2 changes were replayed in another environment \(torch 1.0 then"),
        open_live(killed) as again,
    ):
        assert again.history()[-1]["event"] == "environment"
    with open_live(killed) as again:  # a snapshot was written, nothing is replayed
        assert again.position == 2


# Entries that can't be replayed.


def with_entry(live, target, change):
    """A copy of the folder whose next entry is this change, and a batch after it."""
    killed = copy_as_killed(live, target)
    journal = folder.SQLiteJournal(killed)
    last = journal.bounds()[1]
    x, y = batch(9)
    journal.append([Entry(last + 1, 0.0, change), Entry(last + 2, 0.0, Change.make("observe", x, labels=y))])
    journal.close()
    return killed


def learnt(*numbers):
    """The state of a plain learner after these batches."""
    plain = cope()
    for number in numbers:
        plain.observe(*batch(number))
    return plain.state_dict()


def test_an_entry_that_can_not_be_replayed_is_named_with_its_reason_and_the_way_out(live, tmp_path):
    teach(live, range(2))
    killed = with_entry(live, tmp_path / "killed", Change("observe", '{"labels": ["a"]}', None))
    words = r"entry 3 of the journal can't be replayed \(AssertionError: \).*open_live\(folder, skip=\[3\]\)"
    for skip in ([], [2, 4]):
        with pytest.raises(LiveError, match=words):
            open_live(killed, skip=skip)


def test_an_entry_that_can_not_be_replayed_is_left_out_on_request(live, tmp_path):
    teach(live, range(2))
    killed = with_entry(live, tmp_path / "killed", Change("observe", '{"labels": ["a"]}', None))
    with pytest.warns(UserWarning, match="entry 3 of the journal was left out, since it can't be replayed"):
        again = open_live(killed, skip=[3])
    with again:
        same_state(again.learner.state_dict(), learnt(0, 1, 9))
        assert again.position == 4
        (refused,) = again.refused()
        assert refused.entry.position == 3 and "AssertionError" in refused.reason
        assert again.status()["refused"] == 1
    with open_live(killed, skip=[3]) as again:  # for good, and without another warning
        same_state(again.learner.state_dict(), learnt(0, 1, 9))


def test_an_entry_that_can_be_replayed_is_not_left_out(live, tmp_path):
    teach(live, range(3))
    with open_live(copy_as_killed(live, tmp_path / "killed"), skip=[2]) as again:
        same_state(again.learner.state_dict(), learnt(0, 1, 2))
        assert again.refused() == []


def test_a_wrong_source_in_an_older_folder_refuses_its_entry_alone(live, tmp_path):
    teach(live, range(2))
    x, y = batch(5)
    killed = with_entry(live, tmp_path / "killed", Change.make("observe", x, labels=y, source=["orders"]))
    with open_live(killed) as again:
        same_state(again.learner.state_dict(), learnt(0, 1, 9))
        assert [each.entry.position for each in again.refused()] == [3]
        assert again.sources == {}


@pytest.mark.parametrize("broken", [b'{"labels"; ', b'{"labels\xff: '])
def test_a_damaged_entry_is_left_out_on_request(broken, live, tmp_path):
    teach(live, range(3), with_ids=False)
    killed = copy_as_killed(live, tmp_path / "killed")
    content = (killed / FILE).read_bytes()
    samples = content.index(batch(1)[0].numpy().tobytes())
    detail = content.rindex(b'{"labels": ', 0, samples)
    (killed / FILE).write_bytes(content[:detail] + broken + content[detail + len(broken) :])
    with pytest.raises(LiveError, match=r"is damaged: entry 2 has .* skip=\[2\]"):
        open_live(killed)
    with pytest.warns(UserWarning, match="entry 2 of the journal was left out"):
        again = open_live(killed, skip=[2])
    with again:
        same_state(again.learner.state_dict(), learnt(0, 2))
        (refused,) = again.refused()
        assert (refused.entry.position, refused.entry.change.labels) == (2, [])


def test_every_entry_that_is_left_out_has_a_warning_also_if_opening_fails(live, tmp_path):
    teach(live, range(2))
    wrong = Change("observe", '{"labels": ["a"]}', None)
    killed = with_entry(live, tmp_path / "killed", wrong)
    journal = folder.SQLiteJournal(killed)
    journal.append([Entry(5, 0.0, wrong)])
    journal.close()
    warns = pytest.warns(UserWarning, match="entry 3 of the journal was left out")
    with warns, pytest.raises(LiveError, match="entry 5 of the journal can't be replayed"):
        open_live(killed, skip=[3])


def test_a_deletion_removes_a_damaged_entry_that_was_left_out(live, tmp_path):
    teach(live, range(3))
    killed = copy_as_killed(live, tmp_path / "killed")
    content = (killed / FILE).read_bytes()
    secret = batch(1)[0].numpy().tobytes()
    detail = content.rindex(b'{"', 0, content.index(secret))
    (killed / FILE).write_bytes(content[:detail] + b"[" + content[detail + 1 :])
    with pytest.warns(UserWarning, match="entry 2 of the journal was left out"):
        again = open_live(killed, skip=[2])
    with again:
        again.delete(["an id that nobody knows"])  # which the damaged entry may have had
        assert again.refused() == []
    assert not any(secret in file.read_bytes() for file in killed.iterdir() if file.is_file())


# Backups and rollbacks.


def test_a_backup_while_in_use_can_be_opened(live, tmp_path):
    done = threading.Event()

    def work():
        number = 0
        while not done.is_set():
            teach(live, [number])
            number += 1

    working = threading.Thread(target=work)
    working.start()
    for i in range(5):
        live.backup(tmp_path / f"backup-{i}")
    done.set()
    working.join()
    plain = cope()
    for i in range(5):
        with open_live(tmp_path / f"backup-{i}") as copied:
            while plain.batches < copied.position:
                plain.observe(*batch(plain.batches))
            same_state(copied.learner.state_dict(), plain.state_dict())


def test_a_backup_never_overwrites(live, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(LiveError, match="exists: give a folder that is new"):
        live.backup(tmp_path / "there")
    with pytest.raises(LiveError, match="holds no live learner"):
        folder.backup(tmp_path / "there", tmp_path / "new")


def test_a_rollback_gives_the_state_of_then(live, tmp_path):
    plain, states = cope(), {}
    for number in range(11):
        live.observe(*batch(number), ids(number))
        plain.observe(*batch(number))
        states[number + 1] = plain.state_dict()
    settled(live)
    older = live._storage.folder.positions()[-1]
    for position in (10, older + 1, older):
        live.rollback(position)
        assert live.position == position
        same_state(live.learner.state_dict(), states[position])
        assert live.predict(batch(0)[0]) == live.snapshot(position).predict(batch(0)[0])
    with pytest.raises(ValueError, match=f"position 0 can't be restored: the journal goes from {older} to"):
        live.rollback(0)
    with pytest.raises(ValueError, match="a position is a whole number, 0 or above, not 'x'"):
        live.rollback("x")
    teach(live, range(older, 11))
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), states[11])


def test_a_rollback_that_fails_changes_nothing(live, monkeypatch):
    teach(live, range(7))
    state = live.learner.state_dict()

    def full(*_):
        raise LiveError("the disk is full")

    for place, name in ((live._storage.folder, "write"), (live._storage.journal, "cut")):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, full)
            with pytest.raises(LiveError, match="the disk is full"):
                live.rollback(5)
        same_state(live.learner.state_dict(), state)
        assert live.position == 7
    teach(live, [7])
    live.rollback(7)
    same_state(live.learner.state_dict(), state)


def test_a_detector_acts_after_a_rollback_too(tmp_path):
    class Always:
        drift_detected = True

        def update(self, error):
            pass

    with open_live(tmp_path / "live", cope(), drift=Always(), act=True) as live:
        teach(live, range(3))
        live.rollback(2)
        live.ask(ids(5), batch(5)[0])
        live.tell(ids(5), batch(5)[1])
        assert live.history()[-1]["event"] == "alarm"


# Formats.


def test_a_folder_of_a_newer_format_is_refused(live):
    live.close()
    about = live.folder / folder.ABOUT
    about.write_text(json.dumps({"everlearn live": True, "format": 99}))
    with pytest.raises(LiveError, match="has format 99, but this version of everlearn reads 2"):
        open_live(live.folder)
    about.write_text("?")
    with pytest.raises(LiveError, match="can't be read: restore a backup of the folder"):
        open_live(live.folder)


def test_a_folder_of_an_older_format_is_upgraded_after_a_backup(live, tmp_path):
    for number in range(6):
        live.observe(*batch(number), request_id=f"request {number}")
    live.ask(ids(6), batch(6)[0], request_id="asked")
    state = live.learner.state_dict()
    older = copy_as_killed(settled(live), tmp_path / "older")
    for path in older.glob("*.safetensors"):
        checkpoint.write(in_format_1(checkpoint.read(path)), path)
    (older / folder.ABOUT).write_text(json.dumps({"everlearn live": True, "format": 1}))
    with open_live(older) as again:
        same_state(again.learner.state_dict(), state)
        for number in range(6):
            again.observe(*batch(number), request_id=f"request {number}")
        assert again.position == 7  # the requests are known
    assert json.loads((older / folder.ABOUT).read_text())["format"] == 2
    (kept,) = tmp_path.glob("older-format-1-*")
    assert json.loads((kept / folder.ABOUT).read_text())["format"] == 1
    assert (kept / FILE).exists()
    for path in kept.glob("*.safetensors"):
        assert record_in(checkpoint.read(path))["requests"][:1] in ([], [["request 0", "observe", None]])
    with open_live(older) as again:  # and once only
        same_state(again.learner.state_dict(), state)
    assert list(tmp_path.glob("older-format-*")) == [kept]


def test_an_interrupted_upgrade_is_made_again(live, tmp_path, monkeypatch):
    for number in range(9):
        live.observe(*batch(number), request_id=f"request {number}")
    state = live.learner.state_dict()
    older = copy_as_killed(settled(live), tmp_path / "older")
    for path in older.glob("*.safetensors"):
        checkpoint.write(in_format_1(checkpoint.read(path)), path)
    (older / folder.ABOUT).write_text(json.dumps({"everlearn live": True, "format": 1}))
    written = []

    def once(state, path):
        if written:
            raise OSError(28, "No space left on device")
        written.append(path)
        checkpoint.write(state, path)

    with monkeypatch.context() as patched:
        patched.setattr(folder, "checkpoint", SimpleNamespace(read=checkpoint.read, write=once))
        with pytest.raises(LiveError, match="No space left on device"):
            open_live(older)
    monkeypatch.setattr(folder.time, "time", lambda: 1e9)
    with open_live(older) as again:
        same_state(again.learner.state_dict(), state)
        assert "request 8" in again._model.requests


def test_a_model_is_restored_from_its_state(live):
    teach(live, range(3))
    live.ask(ids(5), batch(5)[0], request_id="asked")
    live.tell(ids(5)[:2], ["a", "c"], request_id="told")
    state = live._model.state(0.0)
    again = Model(cope())
    again.learner.load_state_dict(state)
    again.restore(state)
    same_state(again.state(0.0), state)
