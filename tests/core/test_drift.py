"""Exemplars that follow a world that changes: by contradiction and by alarm, each against a slow oracle."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from everlearn import CoPE, learners
from everlearn.checkpoint import CheckpointError
from everlearn.core.drift import AWAY, LEAST, RECENT, RISE, SURE, Drift, refuted


def samples(count, seed, turned=False):
    """Rows of two classes whose meaning may be turned round."""
    x = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
    return x, ((x[:, 0] > 0) != turned).astype(int)


def trained(drift, batches=60, turned_after=None, **settings):
    learner = CoPE("mlp", memory_size=100, hidden=16, drift=drift, seed=0, device="cpu", **settings)
    for number in range(batches):
        learner.observe(*samples(10, number, turned_after is not None and number >= turned_after))
    return learner


def right(learner):
    """The share of exemplars whose label holds after the meaning has been turned round."""
    x, labels = learner.memory.samples()
    return float(np.mean((x[:, 0] > 0).numpy() != np.array(labels)))


@pytest.mark.parametrize("drift", ["contradiction", "alarm"])
def test_exemplars_from_before_a_change_leave_sooner(drift):
    plain, learner = (trained(kind, 120, 60, half_life=0) for kind in ("none", drift))
    assert right(learner) > right(plain) + 0.1
    assert len(learner.memory) <= 100


@pytest.mark.parametrize("drift", ["contradiction", "alarm"])
def test_without_a_change_exemplars_stay(drift):
    plain, learner = (trained(kind, 60, half_life=0) for kind in ("none", drift))
    assert learner.memory.counts() == plain.memory.counts()
    kept, held = (set(map(tuple, one.memory.samples()[0].tolist())) for one in (plain, learner))
    assert len(kept & held) > 0.9 * len(kept)


@pytest.mark.parametrize("drift", ["contradiction", "alarm"])
def test_a_class_that_is_away_loses_nothing(drift):
    learner = CoPE("mlp", memory_size=90, hidden=16, drift=drift, half_life=0, seed=0, device="cpu")
    for number in range(20):
        learner.observe(np.random.default_rng(number).normal(5, 1, size=(10, 4)), ["away"] * 10)
    for number in range(60):
        learner.observe(*samples(10, number, turned=number > 40))
    assert learner.memory.counts()["away"] == 30


def refuted_slowly(scores, owners, errors, counts):
    """Class by class, in plain Python."""
    gone = set()
    for slot in sorted(set(owners)):
        mine = [i for i, owner in enumerate(owners) if owner == slot]
        behind = {i: max(scores[i]) - scores[i][slot] for i in mine}
        wrong = sum(value > 0 for value in behind.values()) / len(mine)
        if counts[slot] < LEAST:
            continue
        pooled = (wrong * len(mine) + errors[slot] * counts[slot]) / (len(mine) + counts[slot])
        error = math.sqrt(pooled * (1 - pooled) * (1 / len(mine) + 1 / counts[slot]))
        if (wrong - errors[slot]) > SURE * error:
            worst = sorted(mine, key=lambda i: (-behind[i], i))
            gone |= set(worst[: round((wrong - errors[slot]) * len(mine))])
    return [i in gone for i in range(len(owners))]


@pytest.mark.parametrize("seed", range(5))
def test_refuted_exemplars_are_those_of_a_slow_computation(seed):
    rng = np.random.default_rng(seed)
    owners = np.sort(rng.integers(3, size=120))
    scores = rng.normal(size=(120, 3)).round(1)
    scores[np.arange(120), owners] += np.array([2.0, 1.0, 0.0])[owners]
    errors, counts = np.array([0.3, 0.1, 0.1]), np.array([100.0, 100.0, 20.0])
    found = refuted(scores, owners, errors, counts)
    assert found.tolist() == refuted_slowly(scores.tolist(), owners.tolist(), errors, counts)
    assert found[owners == 1].any() and not found[owners == 2].any()


def alarms_slowly(wrong):
    """After which predictions the error rate since the last alarm is above its lowest by three deviations."""
    found, since, lowest = [], [0, 1], None
    for number, error in enumerate(wrong):
        since.append(error)
        if len(since) <= LEAST:
            continue
        rate = sum(since) / len(since)
        deviation = math.sqrt(rate * (1 - rate) / len(since))
        if lowest is None or rate + deviation <= sum(lowest):
            lowest = rate, deviation
        if rate + deviation > lowest[0] + RISE * lowest[1]:
            found.append(number)
            since, lowest = [0, 1], None
    return found


def test_alarms_are_those_of_a_slow_computation():
    rng = np.random.default_rng(0)
    wrong = np.concatenate([rng.random(400) < rate for rate in (0.1, 0.4, 0.05, 0.5)]).astype(int).tolist()
    watch = Drift("alarm")
    found = [number for number, error in enumerate(wrong) if watch._rises(error)]
    assert found == alarms_slowly(wrong)
    assert any(400 <= number < 500 for number in found) and any(1200 <= number < 1300 for number in found)


def test_recent_errors_and_presence_are_counted_class_by_class():
    watch = Drift("none")
    watch.open_classes(3)
    rng = np.random.default_rng(0)
    sent = [*rng.choice(2, size=300, p=[0.9, 0.1]).tolist(), *[0] * 20, 2, 2]
    wrong = (rng.random(len(sent)) < 0.3).tolist()
    for start in range(0, len(sent), 7):
        watch._note(wrong[start : start + 7], sent[start : start + 7])
    for slot in range(2):
        mine = [number for number, label in enumerate(sent) if label == slot]
        mean = gap = 0.0
        for place, number in enumerate(mine):
            mean += (wrong[number] - mean) / min(place + 1, RECENT)
            if place:
                apart = min(number - mine[place - 1], AWAY * max(gap, 1))
                gap += (apart - gap) / (min(place + 1, RECENT) - 1)
        count, absent = min(len(mine), RECENT), len(sent) - 1 - mine[-1]
        np.testing.assert_allclose(watch.classes[:, slot], [mean, count, absent, gap])
    assert watch.present().tolist() == [True, True, True]
    watch._note([False] * 10, [2] * 10)
    assert watch.present().tolist() == [False, True, True]  # class 1 usually comes once in ten samples


@pytest.mark.parametrize("drift", ["contradiction", "alarm"])
def test_a_resumed_learner_is_the_same_to_the_bit(drift, tmp_path):
    from everlearn import load

    learner = trained(drift, 70, 60)
    learner.save(tmp_path / "state.safetensors")
    twin = load(tmp_path / "state.safetensors", device="cpu")
    for number in range(70, 100):
        for one in (learner, twin):
            one.observe(*samples(10, number, turned=True))
    states = [one.state_dict() for one in (learner, twin)]
    assert states[0].keys() == states[1].keys()
    assert all(
        torch.equal(part, states[1][name])
        for name, part in states[0].items()
        if isinstance(part, torch.Tensor)
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("classes", -5.0), ("classes", 1e300), ("rate", -3.0), ("rate", 2.0), ("unchecked", -1)],
)
def test_a_state_with_impossible_counts_of_errors_is_refused(name, value):
    learner = trained("alarm", 3)
    state = learner.state_dict()
    forged = {**state, f"drift.{name}": torch.full_like(state[f"drift.{name}"], value)}
    with pytest.raises(CheckpointError, match="its record of drift has a negative count, or an error rate"):
        learner.load_state_dict(forged)


def test_forgetting_a_class_forgets_its_errors():
    learner = trained("alarm")
    learner.forget(0)
    assert learner.drift.classes.shape == (4, 1)
    learner.observe(*samples(10, 1))


def test_an_alarm_of_the_user_s_own_halves_the_exemplars():
    learner = trained("none")
    before = learner.memory.counts()
    learner.alarm()
    assert learner.memory.counts() == {label: -(-count // 2) for label, count in before.items()}
    learner.observe(*samples(10, 1))


def test_a_method_without_a_class_balanced_memory_says_so():
    learner = learners.find("finetune")("mlp", hidden=8, device="cpu")
    learner.observe(*samples(10, 0))
    with pytest.raises(ValueError, match="finetune has no class-balanced memory"):
        learner.alarm()


def test_a_failed_step_brings_removed_exemplars_back():
    learner = trained("alarm", 60)
    before = {name: part for name, part in learner.state_dict().items() if name != "meta"}
    learner.step, step = lambda *_: learner.alarm() or 1 / 0, learner.step
    with pytest.raises(ZeroDivisionError):
        learner.observe(*samples(10, 99))
    learner.step = step
    after = learner.state_dict()
    assert all(torch.equal(part, after[name]) for name, part in before.items())


def test_a_mistyped_option_is_named():
    with pytest.raises(
        ValueError, match="drift must be none, contradiction, alarm or None, not 'contradict'"
    ):
        CoPE(drift="contradict")


def test_a_detector_of_a_run_may_act():
    from everlearn import run

    class AfterFifty:
        """Reports a change after the 50th prediction."""

        seen = 0

        def update(self, error):
            self.seen += 1

        @property
        def drift_detected(self):
            return self.seen == 50

    batches = [samples(10, number) for number in range(10)]
    sizes = {}
    for act in (False, True):
        learner = CoPE("mlp", memory_size=400, hidden=8, half_life=0, device="cpu")
        result = run(learner, batches, detector=AfterFifty(), act=act)
        sizes[act] = len(learner.memory)
        assert result.changes == [50]
    assert sizes[False] == 100 and sizes[True] in (80, 81)  # half of 40, and 60 more


def test_an_alarm_of_a_live_learner_is_in_its_journal(tmp_path):
    from everlearn import open_live

    with open_live(tmp_path / "live", learner=CoPE("mlp", memory_size=40, hidden=8, device="cpu")) as live:
        live.observe(*samples(30, 0))
        before = sum(live.learner.exemplars().values())
        live.alarm()
        after = live.learner.exemplars()
        assert sum(after.values()) < 0.6 * before
        assert live.history()[-1]["event"] == "alarm"
    with open_live(tmp_path / "live") as live:
        assert live.learner.exemplars() == after
