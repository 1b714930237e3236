"""Journal and snapshots in a real PostgreSQL: another folder continues, nothing is lost or applied twice."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from live_batches import batch, cope, ids, in_format_1, teach
from small_learners import same_state

from everlearn import checkpoint, open_live
from everlearn.live import LiveError
from everlearn.live.entries import Change, Entry
from everlearn.live.postgres_database import Database
from everlearn.live.postgres_journal import PostgresJournal
from everlearn.live.sqlite_journal import SQLiteJournal

pytestmark = pytest.mark.services

TESTS = Path(__file__).parents[1]


def _programs():
    """The folder of PostgreSQL's programs, if it is installed."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return Path(found).parent if found else next(iter(folders), None)


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server; yields the address of its database."""
    programs = _programs()
    if programs is None:
        pytest.skip("no PostgreSQL here: `apt-get install postgresql`")
    pytest.importorskip("psycopg", reason="no client of PostgreSQL here: pip install 'everlearn[postgres]'")
    owner = {}
    if os.getuid() == 0:  # PostgreSQL refuses to run as root
        try:
            owner = {"user": pwd.getpwnam("postgres").pw_uid}
        except KeyError:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        data = Path(home) / "data"
        data.mkdir()
        if owner:
            os.chown(data, owner["user"], -1)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/", **owner}
        words = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"]
        subprocess.run(words, check=True, **quiet)
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k", str(data)]
        process = subprocess.Popen([programs / "postgres", "-D", data, "-p", str(port), *settings], **quiet)
        try:
            yield _answering(f"postgresql://postgres@127.0.0.1:{port}/postgres")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _answering(url):
    import psycopg

    end = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(url).close()
            return url
        except psycopg.OperationalError:
            assert time.monotonic() < end
            time.sleep(0.05)


def query(server, words, *values):
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        return connection.execute(words, values).fetchall()


def break_connections(server):
    """End all connections but this one."""
    others = "pid <> pg_backend_pid() and datname = current_database()"
    query(server, f"select pg_terminate_backend(pid) from pg_stat_activity where {others}")


def test_another_machine_continues_with_the_same_bits(server, tmp_path):
    plain = cope()
    for machine, numbers in enumerate([range(5), range(5, 9), range(9, 10)]):
        given = cope() if machine == 0 else None
        with open_live(tmp_path / str(machine) / "same", given, snapshot_every=3, journal=server) as live:
            teach(live, numbers)
            for number in numbers:
                plain.observe(*batch(number))
            same_state(live.learner.state_dict(), plain.state_dict())
            assert live.position == numbers[-1] + 1
            status = live.status()
            assert status["samples"] == plain.samples
            assert status["journal_bytes"] > 0


def test_an_older_format_is_upgraded_after_a_copy(server, tmp_path):
    with open_live(tmp_path / "older", cope(), snapshot_every=2, journal=server) as live:
        for number in range(4):
            live.observe(*batch(number), request_id=f"request {number}")
        state = live.learner.state_dict()
    for position, content in query(
        server, "select position, content from everlearn_snapshots where name = 'older'"
    ):
        path = tmp_path / f"{position}.safetensors"
        path.write_bytes(content)
        checkpoint.write(in_format_1(checkpoint.read(path)), path)
        words = (
            "update everlearn_snapshots set content = %s where name = 'older' and position = %s returning 1"
        )
        query(server, words, path.read_bytes(), position)
    query(server, "update everlearn_learners set format = 1 where name = 'older' returning 1")
    with open_live(tmp_path / "elsewhere" / "older", journal=server) as again:
        same_state(again.learner.state_dict(), state)
        again.observe(*batch(0), request_id="request 0")
        assert again.position == 4
    words = "select name, format from everlearn_learners where name like 'older%%' order by format"
    (copy, one), (name, two) = query(server, words)
    assert (one, name, two) == (1, "older", 2) and copy.startswith("older-format-1-")
    (snapshots,) = query(server, "select count(*) from everlearn_snapshots where name = %s", copy)
    assert snapshots == (2,)


def test_both_journals_answer_alike(server, tmp_path):
    (tmp_path / "folder").mkdir()
    journals = [SQLiteJournal(tmp_path / "folder"), PostgresJournal(Database(server, "alike"))]
    query(server, "insert into everlearn_learners (name, format) values ('alike', 1) returning name")
    seen = []
    for journal in journals:
        torch.manual_seed(0)
        kinds = ["delete" if i == 7 else "observe" for i in range(1, 10)]
        changes = [Change.make(kind, torch.rand(1, 2), labels=["é\0"]) for kind in kinds]
        entries = [Entry(i, 1000.5 + i, change) for i, change in enumerate(changes, 1)]
        journal.append(entries[:6])
        journal.append(entries[6:])
        journal.add_environment(0, {"torch": "1"})
        journal.add_environment(5, {"torch": "2"})
        journal.add_environment(5, {"torch": "3"})
        journal.refuse(9, "why\nnot")
        journal.refuse(4, "no")
        parts = [journal.bounds()]
        while not journal.trim(2, 1):
            pass
        parts += [journal.bounds(), [entry.row for entry in journal.entries(0)], journal.environments()]
        parts += [[(each.entry.row, each.reason) for each in journal.refused()]]
        parts += [[entry.position for entry in journal.deletions()]]
        journal.erase(7, [4])
        parts += [journal.bounds(), [entry.position for entry in journal.entries(0)], len(journal.refused())]
        journal.cut(8)
        parts += [journal.bounds(), journal.refused()]
        journal.close()
        seen.append(parts)
    assert seen[0] == seen[1]


def test_one_process_at_a_time(server, tmp_path):
    with open_live(tmp_path / "a" / "owned", cope(), journal=server) as live:
        teach(live, [0])
        with pytest.raises(LiveError, match="owned in the database is in use by another process"):
            open_live(tmp_path / "b" / "owned", journal=server)
    with open_live(tmp_path / "b" / "owned", journal=server) as live:
        assert live.position == 1


def test_a_broken_connection_is_made_again_and_nothing_is_lost_or_doubled(server, tmp_path):
    plain = cope()
    with open_live(tmp_path / "broken", cope(), journal=server, snapshot_every=2) as live:
        for number in range(6):
            if number % 2:
                live._storage.settle()
                break_connections(server)
            live.observe(*batch(number))
            plain.observe(*batch(number))
        same_state(live.learner.state_dict(), plain.state_dict())


@pytest.mark.parametrize("committed", [True, False])
def test_a_connection_that_breaks_during_a_commit(server, tmp_path, monkeypatch, committed):
    """The answer to a commit is lost; whether it took place is found out."""
    import psycopg

    real, broken = Database._attempt, []

    def attempt(self, action):
        if action.__name__ == "add" and not broken:
            broken.append(1)
            if committed:
                real(self, action)
            raise psycopg.OperationalError("the connection was lost")
        return real(self, action)

    name = f"commit-{committed}"
    with open_live(tmp_path / name, cope(), journal=server) as live:
        live.observe(*batch(0))
        monkeypatch.setattr(Database, "_attempt", attempt)
        live.observe(*batch(1))
        assert broken
        assert query(server, "select count(*) from everlearn_entries where name = %s", name) == [(2,)]
        plain = cope()
        teach(plain, range(2))
        same_state(live.learner.state_dict(), plain.state_dict())


def test_who_lost_the_learner_to_another_can_not_go_on(server, tmp_path):
    with open_live(tmp_path / "a" / "taken", cope(), journal=server) as live:
        live.observe(*batch(0))
        live._storage.journal._database._drop()  # as if its connection had died
        with open_live(tmp_path / "b" / "taken", journal=server) as other:
            other.observe(*batch(1))
            with pytest.raises(LiveError, match="in use by another process"):
                live.observe(*batch(2))
        with pytest.raises(LiveError, match="another process has continued|duplicate key"):
            live.observe(*batch(2))
        live._writer._broken = "it was taken"  # so that closing it writes no snapshot


def test_deleted_samples_leave_no_row(server, tmp_path):
    with open_live(tmp_path / "deleted", cope(), journal=server) as live:
        for number in range(3):
            live.observe(*batch(number), ids(number))
        gone = batch(1)[0][0].numpy().tobytes()
        find = "select count(*) from everlearn_{} where name = 'deleted' and position(%s in {}) > 0"
        entries, snapshots = find.format("entries", "samples"), find.format("snapshots", "content")
        assert query(server, entries, gone) == [(1,)]
        live.delete(ids(1)[:1])
        assert query(server, entries, gone) == query(server, snapshots, gone) == [(0,)]
        assert all(gone not in file.read_bytes() for file in live.folder.iterdir() if file.is_file())


def test_rollback_and_backup(server, tmp_path):
    with open_live(tmp_path / "back", cope(), journal=server) as live:
        teach(live, range(4))
        live.rollback(2)
        plain = cope()
        teach(plain, range(2))
        same_state(live.learner.state_dict(), plain.state_dict())
        with pytest.raises(LiveError, match="back up the database, with pg_dump"):
            live.backup(tmp_path / "copy")
    with open_live(tmp_path / "elsewhere" / "back", journal=server) as live:
        assert live.position == 2


CHILD = """
import sys
sys.path[:0] = {paths!r}
from live_batches import batch, cope
from everlearn import open_live

live = open_live({folder!r}, cope() if {first!r} else None, journal={server!r}, snapshot_every=5)
for number in range(live.position, 1000):
    live.observe(*batch(number))
    print(number, flush=True)
"""


def test_after_kills_another_folder_has_everything_that_was_acknowledged(server, tmp_path):
    for machine in range(2):
        values = {"paths": [str(TESTS), str(TESTS / "live")], "server": server, "first": machine == 0}
        code = CHILD.format(folder=str(tmp_path / str(machine) / "killed"), **values)
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        for _ in range(13):
            last = int(child.stdout.readline())
        child.kill()
        last = int((child.stdout.read().split() or [last])[-1])
        child.wait()
        child.stdout.close()
        deadline = time.monotonic() + 30
        while query(server, "select count(*) from pg_locks where locktype = 'advisory'") != [(0,)]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with open_live(tmp_path / "last" / "killed", journal=server) as live:
        assert last + 1 <= live.position <= last + 2  # one more may be on disk than was printed
        plain = cope()
        teach(plain, range(live.position))
        same_state(live.learner.state_dict(), plain.state_dict())


@pytest.mark.parametrize("journal", ["mysql://host/db", "journal.sqlite", ""])
def test_another_kind_of_journal_is_refused(tmp_path, journal):
    with pytest.raises(ValueError, match="a journal is None or postgresql://"):
        open_live(tmp_path / "x", cope(), journal=journal)


def test_a_server_that_does_not_answer(tmp_path):
    pytest.importorskip("psycopg", reason="no client of PostgreSQL here: pip install 'everlearn[postgres]'")
    with pytest.raises(LiveError, match="the database of x can't be used"):
        open_live(tmp_path / "x", cope(), journal="postgresql://nobody@127.0.0.1:9/none")
