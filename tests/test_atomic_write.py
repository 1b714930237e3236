"""A file is replaced as a whole, keeps its mode and its links, and leaves nothing beside it."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from everlearn import atomic_write
from everlearn.atomic_write import replace_file

posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX modes, links and locks")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@posix
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o664, 0o400])
def test_an_existing_file_keeps_its_mode(tmp_path, bits):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(bits)
    replace_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", bits)


@posix
def test_a_file_that_was_private_is_private_while_it_is_written(tmp_path, monkeypatch):
    path, seen = tmp_path / "state", []
    path.write_bytes(b"old")
    path.chmod(0o600)
    sync = os.fsync

    def watched(descriptor):
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    replace_file(path, b"new")
    assert seen[0] == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_an_existing_file_keeps_its_owner(tmp_path):
    path = tmp_path / "state"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    replace_file(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


@posix
def test_a_new_file_gets_the_mode_of_any_new_file_and_no_umask_is_touched(tmp_path, monkeypatch):
    (tmp_path / "any").write_bytes(b"")

    def touched(mask):
        raise AssertionError("the umask belongs to the whole process")

    monkeypatch.setattr(os, "umask", touched)
    replace_file(tmp_path / "state", b"new")
    assert mode(tmp_path / "state") == mode(tmp_path / "any")


@posix
def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    target, link, second = tmp_path / "disk" / "real", tmp_path / "link", tmp_path / "second"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    second.symlink_to("link")
    replace_file(second, b"new")
    assert link.is_symlink() and second.is_symlink()
    assert (target.read_bytes(), mode(target)) == (b"new", 0o600)


@posix
def test_a_link_to_nothing_yet_makes_its_target(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "later" / "real")
    replace_file(link, b"new")
    assert link.is_symlink()
    assert (tmp_path / "later" / "real").read_bytes() == b"new"


@posix
def test_a_loop_of_links_and_a_pipe_are_refused_and_stay(tmp_path):
    loop, pipe = tmp_path / "loop", tmp_path / "pipe"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    for path in (loop, pipe):
        with pytest.raises(OSError):
            replace_file(path, b"new")
    assert loop.is_symlink()
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["loop", "pipe"]


@posix
def test_the_parent_of_every_new_folder_is_synced(tmp_path, monkeypatch):
    synced, sync = set(), os.fsync

    def watched(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    path = tmp_path / "a" / "b" / "state"
    replace_file(path, b"new")
    assert {part.stat().st_ino for part in (path, *path.parents[:3])} <= synced


WRITER = """
import os, sys, time
from everlearn.atomic_write import replace_file
os.getpid = lambda: int(sys.argv[2])  # as in another container, where the same numbers are given
def hang(descriptor):
    print("half written", flush=True)
    time.sleep(60)
os.fsync = hang
replace_file(sys.argv[1], b"theirs")
"""


@posix
def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    path = tmp_path / "state"
    (tmp_path / ".state.notes.partial").write_bytes(b"somebody else's")
    # A number that no process here has, and the number of this process.
    for number in (2**22 + 1, os.getpid()):
        words = [sys.executable, "-c", WRITER, str(path), str(number)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "half written\n"
            replace_file(path, b"ours")
            assert len(os.listdir(tmp_path)) == 3  # the state, the notes and what the living one writes
            writer.send_signal(signal.SIGKILL)
        assert len(os.listdir(tmp_path)) == 3
        replace_file(path, b"ours again")
        assert sorted(os.listdir(tmp_path)) == [".state.notes.partial", "state"]


def test_a_temporary_file_removed_before_it_was_locked_is_written_anew(tmp_path, monkeypatch):
    lock, found = atomic_write.lock_file, []

    def late(descriptor, wait):
        if not found:
            found.extend(tmp_path.iterdir())
            found[0].unlink()
        return lock(descriptor, wait)

    monkeypatch.setattr(atomic_write, "lock_file", late)
    replace_file(tmp_path / "state", b"new")
    assert len(found) == 1
    assert [(part.name, part.read_bytes()) for part in tmp_path.iterdir()] == [("state", b"new")]


@posix
def test_without_locks_only_old_temporary_files_are_removed(tmp_path, monkeypatch):
    import fcntl

    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    young, old = (tmp_path / f".state.{digit * 16}.partial" for digit in "ab")
    for part in (young, old):
        part.write_bytes(b"half")
    days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (days_ago, days_ago))
    replace_file(tmp_path / "state", b"new")
    assert sorted(os.listdir(tmp_path)) == [young.name, "state"]
