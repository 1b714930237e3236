"""Copies of a live learner for predictions and for the disk: when they fail, and when they are not needed."""

import threading

import pytest
import torch
from live_batches import batch, cope, teach

from everlearn import CoPE, open_live
from everlearn.core.learner import Learner
from everlearn.live import LiveError


class KeepsItsOutput(torch.nn.Module):
    """A network that torch can't copy after a step, since it keeps a result with its gradient."""

    def __init__(self, keeps=True):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
        self.keeps = keeps

    def forward(self, x):
        out = self.layer(x)
        if self.keeps:
            self.last = out
        return out


def in_a_thread(function):
    """The result of a function that another thread calls, or its error; fails if it hangs."""
    found = []

    def call():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    assert found, "the call hangs"
    return found[0]


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=3) as opened:
        yield opened


def no_memory(*_):
    raise MemoryError("can't allocate memory")


def test_changes_go_on_when_a_copy_for_predictions_fails(live, monkeypatch):
    in_a_thread(lambda: teach(live, [0]))
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "snapshot", no_memory)
        error = in_a_thread(lambda: live.predict(batch(9)[0]))
        assert isinstance(error, LiveError)
        assert str(error) == "the learner can't be copied for predictions: MemoryError: can't allocate memory"
        assert live.status()["copy_error"] == "MemoryError: can't allocate memory"
        in_a_thread(lambda: teach(live, [1]))
        assert live.position == 2
    assert in_a_thread(lambda: live.predict(batch(9)[0])) == live.predict(batch(9)[0])
    assert live.status()["copy_error"] is None


@pytest.mark.parametrize("caller", [in_a_thread, lambda function: function()], ids=["thread", "opener"])
def test_changes_go_on_when_a_snapshot_for_the_disk_fails(caller, live, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(live._model, "state", no_memory)
        caller(lambda: teach(live, range(4)))
        assert live.position == 4
        assert "can't allocate memory" in live.status()["snapshot"]["error"]
    caller(lambda: teach(live, range(4, 8)))
    live._storage.settle()
    assert live.status()["snapshot"]["error"] is None
    assert live.status()["snapshot"]["position"] > 3


def test_a_network_that_can_not_be_copied_is_refused_before_its_first_batch_is_written(tmp_path):
    words = r"KeepsItsOutput can't be copied, as predictions in other threads need it \(RuntimeError"
    with open_live(tmp_path / "live", CoPE(KeepsItsOutput(), memory_size=20)) as live:
        with pytest.raises(ValueError, match=words):
            teach(live, [0])
        with pytest.raises(ValueError, match=words):
            live.ask(["a"], batch(0)[0][:1])
        assert live.position == 0
    with open_live(tmp_path / "live", CoPE(KeepsItsOutput(keeps=False), memory_size=20)) as live:
        teach(live, range(3))
        assert in_a_thread(lambda: live.predict(batch(0)[0])) == live.predict(batch(0)[0])
    with pytest.raises(ValueError, match=words):
        open_live(tmp_path / "live", CoPE(KeepsItsOutput(), memory_size=20))


def test_the_trial_of_a_network_changes_nothing(tmp_path):
    class Normalised(torch.nn.Sequential):
        def __init__(self):
            super().__init__(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))

    torch.manual_seed(0)
    network, plain = Normalised(), Normalised()
    plain.load_state_dict(network.state_dict())
    plain = CoPE(plain, memory_size=20)
    with open_live(tmp_path / "live", CoPE(network, memory_size=20)) as live:
        for number in range(3):
            live.observe(*batch(number))
            plain.observe(*batch(number))
        state, expected = live.learner.state_dict(), plain.state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in expected if name != "meta")


def test_a_position_that_was_not_reached_leaves_no_copies_behind(live, monkeypatch):
    teach(live, [0])
    with pytest.raises(TimeoutError, match="position 1000 was not reached"):
        live.snapshot(1000, timeout=0.01)
    live._publisher._read_at = float("-inf")  # no prediction for a long time
    copies = []
    monkeypatch.setattr(live._publisher, "replace", copies.append)
    teach(live, range(1, 6))
    assert copies == []


def test_no_copies_are_made_for_a_position_before_it_is_reached(live, monkeypatch):
    teach(live, [0])
    waiting = threading.Thread(target=live.snapshot, args=(4,), daemon=True)
    waiting.start()
    while not live._publisher._wanted:
        pass
    live._publisher._read_at = float("-inf")
    positions, replace = [], live._publisher.replace
    monkeypatch.setattr(
        live._publisher, "replace", lambda model: (positions.append(model.position), replace(model))
    )
    teach(live, range(1, 6))
    waiting.join(30)
    assert not waiting.is_alive() and positions[0] == 4
