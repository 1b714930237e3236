"""A consumer survives errors of any kind, and applies each message exactly once."""

import time

import pytest
from running import small

from everlearn import open_live
from everlearn.service.consumer import Consumer
from everlearn.service.sources import Message


class Numbered:
    """A source with five messages; their positions are their numbers."""

    name = "numbered"

    def __init__(self, wrong=None):
        self.messages = [{"x": [float(i), 1.0], "y": "ab"[i % 2]} for i in range(5)]
        if wrong is not None:
            self.messages[wrong] = {"x": [1.0, 2.0, 3.0], "y": "a"}

    def read(self, position, most, seconds):
        start = position or 0
        return [Message(i + 1, self.messages[i]) for i in range(start, min(start + most, 5))]

    def close(self):
        pass


def failing(function, at, error):
    """The function, whose call with this number raises an error."""
    calls = 0

    def call(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == at:
            raise error
        return function(*args, **kwargs)

    return call


def consume(live, source, batch_size):
    consumer, errors = Consumer(live, source, batch_size), set()
    consumer.start()
    end = time.monotonic() + 60
    while consumer.status()["position"] != 5:
        assert time.monotonic() < end and consumer._thread.is_alive(), "the consumer has ended"
        errors.add(consumer.error)
        time.sleep(0.001)
    consumer.close()
    return consumer, errors - {None}


@pytest.mark.parametrize(
    "error", [MemoryError("no memory left"), RuntimeError("an operator failed")], ids=["memory", "torch"]
)
def test_a_message_whose_change_failed_is_applied_once(tmp_path, monkeypatch, error):
    monkeypatch.setattr("everlearn.service.consumer.PAUSE", 0.05)
    with open_live(tmp_path / "model", small()) as live:
        live.observe = failing(live.observe, 3, error)
        _, errors = consume(live, Numbered(), batch_size=1)
        assert errors == {f"{type(error).__name__}: {error}"}
        assert live.learner.samples == live.position == 5


def test_an_error_of_the_learner_itself_loses_no_message(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.service.consumer.PAUSE", 0.05)
    with open_live(tmp_path / "model", small()) as live:
        live.observe([[0.0, 0.0]], ["a"])
        live.learner.observe = failing(live.learner.observe, 2, MemoryError("no memory left"))
        _, errors = consume(live, Numbered(), batch_size=1)
        assert any("no memory left" in error for error in errors)
        assert live.learner.samples == 6


def test_messages_applied_one_by_one_are_not_applied_again_after_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.service.consumer.PAUSE", 0.05)
    with open_live(tmp_path / "model", small()) as live:
        # Message 2 does not fit the others; so 0 and 1 are applied alone, 2 is skipped, and 3 fails.
        live.observe = failing(live.observe, 4, MemoryError("no memory left"))
        consumer, _ = consume(live, Numbered(wrong=2), batch_size=5)
        assert (live.learner.samples, consumer.skipped) == (4, 1)
