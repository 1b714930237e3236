"""Calls of a live learner that fail: a rollback, one of several that are written together; retries after a kill."""

import numpy as np
import pytest
from live_batches import batch, cope, copy_as_killed, ids, teach
from small_learners import same_state

from everlearn import open_live
from everlearn.live import LiveError
from everlearn.live.entries import Change, Entry
from everlearn.live.writer import Call


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=5) as opened:
        yield opened


def denied(*_):
    raise PermissionError(1, "Operation not permitted")


# Rollback.


@pytest.mark.parametrize(
    ("place", "name"), [("folder", "remove_after"), ("folder", "write"), ("journal", "cut")]
)
def test_a_rollback_that_fails_with_an_error_of_the_disk_changes_nothing(place, name, live, monkeypatch):
    teach(live, range(6))
    live.forget("b")
    state = live.learner.state_dict()
    with monkeypatch.context() as patched:
        patched.setattr(getattr(live._storage, place), name, denied)
        with pytest.raises(PermissionError):
            live.rollback(6)
    assert live.position == 7 and "b" not in live.classes
    same_state(live.learner.state_dict(), state)
    teach(live, [7])
    state = live.learner.state_dict()
    live.close()
    with open_live(live.folder) as again:
        assert again.position == 8
        same_state(again.learner.state_dict(), state)


def test_nothing_is_learnt_after_a_rollback_from_which_the_learner_was_not_recovered(live, monkeypatch):
    teach(live, range(7))
    state, recover = live.learner.state_dict(), live._storage.recover

    def only_once(learner, device, until=None):
        return recover(learner, device, until) if until is not None else denied()

    with monkeypatch.context() as patched:
        patched.setattr(live._storage.folder, "remove_after", denied)
        patched.setattr(live._storage, "recover", only_once)
        with pytest.raises(PermissionError):
            live.rollback(5)
    with pytest.raises(
        LiveError, match=r"could not be recovered \(\[Errno 1\] Operation not permitted\): close"
    ):
        teach(live, [7])
    live.close()
    with open_live(live.folder) as again:
        assert again.position == 7
        same_state(again.learner.state_dict(), state)


def test_a_position_that_can_not_be_restored_recovers_nothing(live, monkeypatch):
    teach(live, range(3))
    monkeypatch.setattr(live._storage, "recover", denied)
    with pytest.raises(ValueError, match="position 9 can't be restored"):
        live.rollback(9)
    teach(live, [3])
    assert live.position == 4


# Calls that are written together.


def test_each_call_of_a_group_that_was_not_written_gets_its_own_error(live, monkeypatch):
    teach(live, [0])
    state, observe = live.learner.state_dict(), live.learner.observe

    def full(_):
        raise LiveError("the disk is full")

    def refuse_three(x, y, *more):
        if len(y) == 3:
            raise ValueError("this batch would make the weights infinite")
        return observe(x, y, *more)

    x, y = batch(1)
    calls = [Call(Change.make("observe", x[:size], labels=y[:size])) for size in (3, 4, 3)]
    with monkeypatch.context() as patched:
        patched.setattr(live._writer.journal, "append", full)
        patched.setattr(live.learner, "observe", refuse_three, raising=False)
        live._writer._apply(calls)
    found = [(type(call.outcome.error), str(call.outcome.error)) for call in calls]
    assert found == [
        (ValueError, "this batch would make the weights infinite"),
        (LiveError, "the disk is full"),
        (LiveError, "the disk is full"),
    ]
    same_state(live.learner.state_dict(), state)
    teach(live, [1])


# Retries.


def test_a_retry_after_a_kill_gets_the_confidences_too(live, tmp_path):
    teach(live, range(3))
    x, _ = batch(9)
    labels, confidences = live.ask(ids(9), x, confidence=True, request_id="first")
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same = again.ask(ids(9), x, confidence=True, request_id="first")
        assert same[0] == labels and np.array_equal(same[1], confidences) and len(confidences) == 4
        same_state(again.learner.state_dict(), live.learner.state_dict())


def test_an_answer_in_a_journal_of_before_confidences_were_written_is_replayed(live, tmp_path):
    teach(live, range(3))
    x, _ = batch(9)
    entry = Entry(4, 0.0, Change.make("ask", x, ids=ids(9), request="first"))
    live._storage.committer.submit(live._storage.journal.append, [entry]).result()
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        assert again.ask(ids(9), x, request_id="first") == live.predict(x)
        assert again.position == 4 and len(again.learner.waiting) == 4


def test_a_message_that_failed_for_want_of_memory_is_not_passed_over_after_a_kill(tmp_path, monkeypatch):
    live = open_live(tmp_path / "live", cope())
    live.observe(*batch(0), source=("orders", 1))

    def no_memory(*_, **__):
        raise MemoryError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(type(live.learner), "learn", no_memory)
        with pytest.raises(MemoryError):
            live.observe(*batch(1), source=("orders", 2))
    assert live.sources == {"orders": 1}
    with pytest.raises(ValueError, match="NaN"):
        live.observe(np.full_like(batch(1)[0], np.nan), batch(1)[1], source=("orders", 2))
    live.observe(*batch(1), source=("orders", 2))
    assert live.sources == {"orders": 2}
    live.close()
    with open_live(tmp_path / "live") as again:
        assert again.sources == {"orders": 2}
        assert again.learner.batches == 2
