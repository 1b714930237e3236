"""Labels that are None or NaN: refused, skipped, or a class."""

import numpy as np
import pandas as pd
import pytest
import torch
from small_learners import every_learner, make, same_state

from everlearn import load, open_live

MISSING = [None, float("nan"), np.float32("nan"), pd.NA, pd.NaT]
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def task(learner):
    return 0 if "t" in learner.needs else None


@every_learner
def test_a_missing_label_is_refused_with_one_sentence(name):
    learner = make(name)
    for missing in MISSING:
        with pytest.raises(ValueError, match="observe got no label .* for sample 2: leave such samples out"):
            learner.observe(X, ["a", "b", missing, "a"], task(learner))
    assert learner.batches == 0 and learner.classes == []


@every_learner
def test_skipped_samples_have_no_effect_but_are_counted(name):
    learner, other = make(name, missing_labels="skip"), make(name, missing_labels="skip")
    learner.observe(X, ["a", float("nan"), None, "b"], task(learner))
    other.observe(X[[0, 3]], ["a", "b"], task(other))
    learner.observe(X, [None] * 4, task(learner))
    assert (learner.unlabelled, learner.samples, learner.classes) == (6, 2, ["a", "b"])
    other.unlabelled = 6
    same_state(learner.state_dict(), other.state_dict())


def test_none_can_be_a_class():
    learner = make("cope", missing_labels="class")
    learner.observe(X, ["a", None, float("nan"), "b"])
    assert learner.classes == ["a", None, "b"]
    assert set(learner.predict(X)) <= {"a", None, "b"}


def test_the_count_is_part_of_the_state(tmp_path):
    learner = make("cope", missing_labels="skip")
    learner.observe(X, ["a", None, None, "b"])
    learner.save(tmp_path / "state")
    assert load(tmp_path / "state", device="cpu").unlabelled == 2


def test_a_sample_that_is_told_no_label_waits_on():
    learner = make("cope", missing_labels="skip")
    learner.ask(["one", "two"], X[:2])
    assert learner.tell(["one", "two"], ["a", None]) == (["one"], [])
    assert list(learner.waiting.samples) == ["two"]
    with pytest.raises(ValueError, match="tell got no label"):
        make("cope").tell(["one"], [None])


def test_a_live_learner_skips_and_replays_the_same(tmp_path):
    with open_live(tmp_path / "refusing", make("cope")) as live:
        with pytest.raises(ValueError, match="Live.observe got no label"):
            live.observe(X, ["a", None, "b", "a"])
        assert live.position == 0
    with open_live(tmp_path / "skipping", make("cope", missing_labels="skip")) as live:
        live.observe(X, ["a", None, "b", "a"], ids=range(4))
        assert live.delete([1]).exemplars == 0  # it was never stored
        expected = live.learner.state_dict()
    with open_live(tmp_path / "skipping") as live:
        same_state(live.learner.state_dict(), expected)
        assert live.learner.unlabelled == 1 and live.status()["classes"]


@pytest.mark.parametrize("y", ["abcd", 3, None, {"a": 1}])
def test_what_is_no_sequence_is_refused_under_every_rule(y):
    for rule in ("refuse", "skip", "class"):
        with pytest.raises(ValueError, match="y is a sequence of labels"):
            make("cope", missing_labels=rule).observe(X, y)


def test_a_merge_adds_the_samples_without_labels():
    learner, other = (make("cope", missing_labels="skip") for _ in range(2))
    learner.observe(X, ["a", None, "b", None])
    other.observe(X, ["a", None, "b", "a"])
    learner.merge(other)
    assert learner.unlabelled == 3
