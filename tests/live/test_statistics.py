"""Accuracy of answers, delays, labels that never come, drift, and suggestions."""

import numpy as np
import pytest
import torch
from live_batches import batch, cope, copy_as_killed, ids, teach
from river.drift import ADWIN
from small_learners import same_state

from everlearn import open_live
from everlearn.learners.finetune import Finetune
from everlearn.live import statistics, writer
from everlearn.live.journal import LiveError


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(writer.time, "time", lambda: Clock.now)
    return Clock


def ask_and_tell(live, numbers, wrong=()):
    """Ask and tell batches; returns (label, answer) of each sample. wrong: batches whose answers are all wrong."""
    pairs = []
    for number in numbers:
        x, y = batch(number)
        answers = live.ask(ids(number), x)
        y = ["a" if answer == "b" else "b" for answer in answers] if number in wrong else y
        live.tell(ids(number), y)
        pairs += zip(y, answers, strict=True)
    return pairs


def test_accuracies_are_those_of_all_answers(tmp_path, monkeypatch):
    with open_live(tmp_path / "live", cope()) as live:
        monkeypatch.setattr(statistics, "WINDOW", 20)
        live._model.statistics.window = statistics.deque(maxlen=20)
        pairs = ask_and_tell(live, range(12), wrong=(3, 4))
        found = live.status()["accuracy"]
        right = [label == answer for label, answer in pairs]
        assert found["overall"] == pytest.approx(np.mean(right)) and found["told"] == 48
        assert found["rolling"] == pytest.approx(np.mean(right[-20:])) and found["window"] == 20
        for label in {label for label, _ in pairs}:
            of_class = [answer == label for other, answer in pairs if other == label]
            recent = [answer == label for other, answer in pairs[-20:] if other == label]
            assert found["per_class"][label]["overall"] == pytest.approx(np.mean(of_class))
            assert found["per_class"][label]["told"] == len(of_class)
            assert found["per_class"][label]["rolling"] == (
                pytest.approx(np.mean(recent)) if recent else None
            )
        assert live.confusion() == {pair: pairs[-20:].count(pair) for pair in pairs[-20:]}
        position, _, told, accuracy = live.curve()[0]
        assert (told, position) == (10, 6) and accuracy == pytest.approx(np.mean(right[:10]))


def test_statistics_survive_a_kill(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=5) as live:
        ask_and_tell(live, range(6))
        live.ask(ids(9), batch(9)[0])
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            for name in ("accuracy", "delay", "never_told", "asked", "told", "waiting"):
                assert again.status()[name] == live.status()[name]
            assert again.history() == live.history() and again.curve() == live.curve()
            assert again.tell(ids(9), batch(9)[1]).right == live.tell(ids(9), batch(9)[1]).right


def test_the_delay_of_labels_and_the_share_never_told(tmp_path, clock):
    with open_live(tmp_path / "live", cope(waiting=4)) as live:
        live.ask(["a", "b"], batch(0)[0][:2])
        clock.now += 10
        live.ask(["c", "d"], batch(0)[0][2:])
        clock.now += 20
        live.tell(["a", "c", "d"], ["x", "y", "y"])
        assert live.status()["delay"] == {
            "mean": pytest.approx(70 / 3),
            "median": 20.0,
            "longest": 30.0,
        }
        assert live.status()["never_told"] == 0
        live.ask(ids(1), batch(1)[0])  # more than can wait: "b" is dropped
        assert live.status()["never_told"] == 1 / 4
        live.ask(ids(1)[:1], batch(2)[0][:1])  # the first answer is never told
        assert live.status()["never_told"] == 2 / 5
        assert (live.status()["asked"], live.status()["waiting"]) == (9, 4)


def test_a_drift_detector_of_rivers_raises_alarms(tmp_path):
    with open_live(tmp_path / "live", cope(), drift=ADWIN(clock=1)) as live:
        teach(live, range(20), with_ids=False)
        ask_and_tell(live, range(20, 40))
        assert live.status()["alarms"] == 0
        ask_and_tell(live, range(40, 52), wrong=range(40, 52))
        (alarm,) = [event for event in live.history() if event["event"] == "drift"][:1]
        assert alarm["detector"] == "ADWIN" and alarm["accuracy"] < 1
        alarms = live.status()["alarms"]
        assert alarms >= 1
    detector = ADWIN(clock=1)
    with open_live(tmp_path / "live", drift=detector) as live:
        assert live.status()["alarms"] == alarms  # it got the earlier answers, which raise no alarm again
        assert detector.width > 0


class AtTheTenthAnswer:
    """A detector that reports a change at the tenth answer."""

    seen = 0

    def update(self, error):
        self.seen += 1

    @property
    def drift_detected(self):
        return self.seen == 10


def test_a_detector_that_acts_halves_the_exemplars_in_the_journal(tmp_path):
    by_hand = cope()
    with open_live(tmp_path / "live", cope(), drift=AtTheTenthAnswer(), act=True) as live:
        for number in range(6):  # four answers each, so that the third `tell` has the tenth
            live.ask(ids(number), batch(number)[0])
            by_hand.ask(ids(number), batch(number)[0])
            live.tell(ids(number), batch(number)[1])
            by_hand.tell(ids(number), batch(number)[1])
            if number == 2:
                before = by_hand.exemplars()
                by_hand.alarm()
                assert sum(live.learner.exemplars().values()) < sum(before.values())
        assert [event["event"] for event in live.history()].count("alarm") == live.status()["alarms"] == 1
        assert live.position == 13  # six of each, and the alarm
        assert same_state(live.learner.state_dict(), by_hand.state_dict())
        state = live.learner.state_dict()
        killed = copy_as_killed(live, tmp_path / "killed")
    with open_live(killed) as again:  # replays the journal, without the detector
        assert same_state(again.learner.state_dict(), state)


def test_an_alarm_that_was_not_written_is_made_after_the_next_change(tmp_path, monkeypatch):
    with open_live(tmp_path / "live", cope(), drift=AtTheTenthAnswer(), act=True) as live:
        journal, append = live._writer.journal, live._writer.journal.append

        def full_disk(entries):
            if entries[0].change.kind == "alarm":
                raise LiveError("the disk is full")
            append(entries)

        monkeypatch.setattr(journal, "append", full_disk)
        ask_and_tell(live, range(4))
        assert "alarm" not in [event["event"] for event in live.history()]
        monkeypatch.undo()
        live.observe(*batch(7))
        assert live.history()[-1]["event"] == "alarm"


def test_what_can_not_act_is_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(ValueError, match="act=True needs a drift detector"):
        open_live(tmp_path / "live", cope(), act=True)
    with pytest.raises(ValueError, match="finetune has no class-balanced memory that an alarm could halve"):
        open_live(tmp_path / "live", Finetune("mlp", hidden=8), drift=AtTheTenthAnswer(), act=True)
    assert not (tmp_path / "live").exists()


class Without:
    """What has no `drift_detected`."""

    def update(self, error):
        pass


class WithAMethod(Without):
    """A detector of another library, which has a method instead."""

    def drift_detected(self):
        return False


@pytest.mark.parametrize(
    ("drift", "words"),
    [
        (ADWIN, r"drift is a detector, not a class: give ADWIN\(\)"),
        (3, "drift is a detector with update and drift_detected, such as .*, not 3"),
        ({}, "drift is a detector with update and drift_detected"),
        (Without(), "drift is a detector with update and drift_detected"),
        (WithAMethod(), "drift is a detector with update and drift_detected"),
    ],
    ids=["class", "number", "dict", "without", "method"],
)
def test_what_is_no_drift_detector_is_refused_before_a_folder_is_made(drift, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        open_live(tmp_path / "live", cope(), drift=drift)
    assert not (tmp_path / "live").exists()


class FailsLater(AtTheTenthAnswer):
    """A detector that raises an error at the third answer."""

    def update(self, error):
        super().update(error)
        if self.seen == 3:
            raise KeyError("bins")


def test_a_detector_that_fails_is_shown_and_does_no_harm(tmp_path):
    plain, detector = cope(), FailsLater()
    with open_live(tmp_path / "live", cope(), drift=detector) as live:
        for number in range(2):
            live.ask(ids(number), batch(number)[0])
            plain.ask(ids(number), batch(number)[0])
            assert live.tell(ids(number), batch(number)[1]) == plain.tell(ids(number), batch(number)[1])
        same_state(live.learner.state_dict(), plain.state_dict())
        (failed,) = [event for event in live.history() if event["event"] == "detector failed"]
        assert (failed["detector"], failed["reason"]) == ("FailsLater", "KeyError: 'bins'")
        assert live.status()["detector_error"] == "FailsLater raised KeyError: 'bins'"
        assert detector.seen == 3  # it is not used any more
    with open_live(tmp_path / "live") as again:
        same_state(again.learner.state_dict(), plain.state_dict())
        assert again.status()["told"] == 8


def test_a_detector_that_fails_at_earlier_answers_is_refused_on_opening(tmp_path):
    with open_live(tmp_path / "live", cope()) as live:
        ask_and_tell(live, range(2))
    with pytest.raises(ValueError, match="the drift detector FailsLater can't be updated: KeyError: 'bins'"):
        open_live(tmp_path / "live", drift=FailsLater())
    with open_live(tmp_path / "live") as again:  # the folder is free
        assert again.position == 4


def test_the_history_has_new_classes_and_is_bounded(tmp_path, monkeypatch):
    with open_live(tmp_path / "live", cope()) as live:
        live.observe(batch(0)[0], ["a", "b", "a", "b"])
        live.forget("b")
        events = [(event["event"], event["label"]) for event in live.history()]
        assert events == [("new class", "a"), ("new class", "b"), ("forgotten", "b")]
    monkeypatch.setattr(statistics, "MOST_POINTS", 4)
    figures = statistics.Statistics()
    for i in range(200):
        figures.answered([i], ["a"], 0.0, {i})
        figures.label_told(i, "a", i, 0.0)
    assert len(figures.points) <= 4 and figures.points[-1][3] == 1.0
    assert [told % figures.point_every for _, _, told, _ in figures.points[:1]] == [0]


def test_suggestions_are_uncertain_and_differ_from_each_other(tmp_path):
    with open_live(tmp_path / "live", cope()) as live:
        assert live.suggest(3) == []
        live.ask(["first", "second"], batch(0)[0][:2])
        assert live.suggest(1) == ["first"]  # before the first label
        live.tell(["first", "second"], ["x", "y"])
        live.forget("x")
        live.forget("y")
        teach(live, range(30), with_ids=False)
        sure, unsure = torch.zeros(20, 6), torch.full((20, 6), 1.5)
        spread = 0.1 * torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
        live.ask([f"sure-{i}" for i in range(20)], sure + spread)
        live.ask([f"unsure-{i}" for i in range(20)], unsure + spread)
        chosen = live.suggest(5)
        assert len(set(chosen)) == 5
        assert sum(key.startswith("unsure") for key in chosen) >= 4
        assert set(live.suggest(100)) == set(live.learner.waiting.samples)
