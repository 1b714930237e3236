"""A stream that does not wait: which batches are learnt or missed, and which state predicts meanwhile."""

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everlearn import Clock, Evaluator, Finetune, Horizon, run, stream
from everlearn.engine.loop import StreamError


class Parrot(Finetune):
    """Predicts the label that it observed last, and records observed and predicted labels by batch."""

    def __init__(self):
        super().__init__("mlp", hidden=2, device="cpu")
        self.heard, self.said = [], {}

    def observe(self, x, y, t=None):
        super().observe(x, y, t)
        self.heard.append(y[-1])

    def predict(self, x):
        self.said[int(x[0, 0])] = self.heard[-1]
        return [self.heard[-1]] * len(x)


def batches(labels):
    """A batch of two samples for each label; a sample holds the number of its batch."""
    for number, label in enumerate(labels, 1):
        yield torch.full((2, 2), float(number)), [label, label]


def parrot_after(labels, clock, **options):
    parrot = Parrot()
    return parrot, run(parrot, batches(labels), clock=clock, **options)


@pytest.mark.parametrize(
    ("cost", "learnt"),
    [
        (0.5, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (1.5, [1, 2, 4, 5, 7, 8, 10]),
        (2, [1, 3, 5, 7, 9]),
        (2.5, [1, 3, 6, 8]),
        (100, [1]),
    ],
)
def test_who_costs_c_misses_the_next_c_minus_1(cost, learnt):
    parrot, result = parrot_after(range(1, 11), Clock(cost))
    assert parrot.heard == learnt
    assert (result.samples, result.missed) == (20, 20 - 2 * len(learnt))


@given(st.floats(1, 20), st.integers(1, 200))
def test_a_fractional_cost_is_right_in_the_mean(cost, batches):
    clock = Clock(cost)
    passed = sum(1 + clock.missed() for _ in range(batches))
    assert batches * cost - 1 - 1e-6 <= passed <= batches * cost + 1e-6


def test_predictions_meanwhile_come_from_the_last_finished_model():
    parrot, _ = parrot_after(range(1, 10), Clock(2))
    # 1 is in work until 3 arrives, 3 until 5 arrives, and so on; before that nothing can be predicted.
    assert parrot.said == {3: 1, 4: 1, 5: 3, 6: 3, 7: 5, 8: 5, 9: 7}


def test_predictions_meanwhile_with_a_fractional_cost():
    parrot, _ = parrot_after(range(1, 11), Clock(2.5))
    assert parrot.said == {3: 1, 4: 1, 5: 1, 6: 3, 7: 3, 8: 6, 9: 6, 10: 6}


def test_the_score_counts_what_was_missed():
    _, waiting = parrot_after("aaaabbbb", Clock(1))
    _, hurried = parrot_after("aaaabbbb", Clock(2))
    assert waiting.prequential_accuracy == 6 / 8
    assert hurried.prequential_accuracy == 4 / 8
    assert hurried.correct == [0, 0, 2, 2, 0, 0, 2, 2]


def test_a_batch_in_work_when_the_stream_ends_is_finished():
    parrot, result = parrot_after([1, 2, 3], Clock(10))
    assert parrot.heard == [1]
    assert result.missed == 4


def test_a_batch_in_work_when_the_stream_fails_is_finished():
    def failing():
        yield from batches([1, 2])
        raise OSError("the cable was pulled")

    parrot = Parrot()
    with pytest.raises(StreamError, match="failed at batch 3: the cable was pulled"):
        run(parrot, failing(), clock=Clock(5))
    assert parrot.heard == [1]


def test_what_was_missed_is_not_seen():
    student = Finetune(hidden=4, device="cpu")
    result = run(student, stream("split-digits"), Evaluator(horizon="all"), clock=Clock(1000))
    (evaluation,) = result.history
    assert (evaluation.batches, evaluation.task, evaluation.seen) == (1, 0, (0,))
    assert list(evaluation.accuracies) == [0, 1, 2, 3, 4]


def test_a_concept_is_not_met_before_a_batch_of_it_is_learnt():
    """The batch in work is finished when the next one arrives, which is of the next task."""
    source = stream("split-digits", scenario="permuted", batch_size=145)
    result = run(Finetune(hidden=4, device="cpu"), source, Evaluator(every=1), clock=Clock(2))
    assert [(e.batches, e.task, e.seen) for e in result.history] == [
        (1, 0, (0,)),
        (2, 1, (0, 1)),
        (3, 2, (0, 1, 2)),
        (4, 3, (0, 1, 2, 3)),
        (5, 4, (0, 1, 2, 3, 4)),
    ]


# Measured


class Slow(Parrot):
    """Takes a fixed number of simulated seconds per batch; predictions take time as well."""

    def __init__(self, monkeypatch, seconds):
        super().__init__()
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def observe(self, x, y, t=None):
        super().observe(x, y, t)
        self.now += self.seconds

    def revisit(self, x, y, t=None):
        self.now += self.seconds

    def predict(self, x):
        self.now += 50.0
        return super().predict(x)


def test_with_an_interval_the_cost_is_measured_by_the_batch_before(monkeypatch):
    slow = Slow(monkeypatch, seconds=2.5)
    result = run(slow, batches(range(1, 13)), clock=Clock(interval=1.0))
    # The first batch has no measured time; from then on every batch costs 2.5 intervals.
    assert slow.heard == [1, 2, 4, 7, 9, 12]
    assert result.missed == 12


def test_who_is_fast_enough_misses_nothing(monkeypatch):
    slow = Slow(monkeypatch, seconds=0.9)
    assert run(slow, batches(range(1, 13)), clock=Clock(interval=1.0)).missed == 0


def test_passing_over_the_horizon_again_takes_time_too(monkeypatch):
    slow = Slow(monkeypatch, seconds=0.75)
    run(slow, batches(range(1, 9)), clock=Clock(interval=1.0), horizon=Horizon(epochs=4))
    # A batch costs 3 intervals.
    assert slow.heard == [1, 2, 5, 8]


def test_a_real_clock_counts_real_seconds():
    class Sleepy(Parrot):
        name = "sleepy"

        def observe(self, x, y, t=None):
            time.sleep(0.02)
            super().observe(x, y, t)

    sleepy = Sleepy()
    result = run(sleepy, batches(range(1, 31)), clock=Clock(interval=0.005))
    assert result.missed >= 30
    assert len(sleepy.heard) * 2 + result.missed == 60


@pytest.mark.parametrize("words", [{}, {"cost": 1, "interval": 1}])
def test_a_clock_has_a_cost_or_an_interval(words):
    with pytest.raises(ValueError, match="one of the two"):
        Clock(**words)


@pytest.mark.parametrize("given", [0, -1, float("nan"), float("inf")])
def test_a_clock_s_cost_or_interval_is_a_number_above_0(given):
    with pytest.raises(ValueError, match=f"must be a number above 0, not {given}"):
        Clock(cost=given)
    with pytest.raises(ValueError, match=f"must be a number above 0, not {given}"):
        Clock(interval=given)
