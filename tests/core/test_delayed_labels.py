"""Delayed labels, for every learner."""

import json

import pytest
import torch
from small_learners import batches, every_learner, make, same_state, taught

from everlearn import UNKNOWN, load
from everlearn.checkpoint import CheckpointError


def task(learner):
    return 0 if "t" in learner.needs else None


@every_learner
def test_a_sample_whose_label_comes_later_is_learnt_like_an_observed_one(name):
    late, prompt = make(name), make(name)
    for number, (x, y) in enumerate(batches(4)):
        ids = [(number, i) for i in range(len(y))]
        answers = late.ask(ids, x)
        assert answers == (prompt.predict(x) if number else [UNKNOWN] * len(y))
        report = late.tell(ids, y, task(late))
        assert report == (ids, [])
        prompt.observe(x, y, task(prompt))
    assert same_state(late.state_dict(), prompt.state_dict())


def test_labels_may_come_in_any_order_or_never():
    learner = make("cope")
    x = torch.randn(6, 6)
    learner.ask([*"uvwxyz"], x)
    assert learner.tell(["z", "v"], ["late", "later"]) == (["z", "v"], [])
    assert learner.classes == ["late", "later"]
    kept, labels = learner.memory.samples()
    assert torch.equal(kept[labels.index("late")], x[5])
    assert torch.equal(kept[labels.index("later")], x[1])
    assert len(learner.waiting) == 4


def test_ids_without_a_stored_sample_are_reported_as_missing():
    learner = make("cope", waiting=3)
    learner.ask([1, 2, 3], torch.randn(3, 6))
    learner.ask([4], torch.randn(1, 6))
    report = learner.tell([1, 4, "never"], ["a", "b", "c"])
    assert report.learnt == [4]
    assert report.missing == [1, "never"]
    assert learner.tell([4], ["b"]).missing == [4]
    assert learner.classes == ["b"]


def test_a_sample_asked_again_is_the_newest():
    learner = make("cope", waiting=2)
    first, again = torch.zeros(1, 6), torch.ones(1, 6)
    learner.ask(["x"], first)
    learner.ask(["y"], first)
    learner.ask(["x"], again)
    learner.ask(["z"], first)
    assert learner.tell(["y"], ["a"]).missing == ["y"]
    learner.tell(["x"], ["a"])
    assert torch.equal(learner.memory.samples()[0], again)


@pytest.mark.parametrize("started", [False, True])
def test_samples_without_labels_are_saved_with_the_learner(started, tmp_path):
    learner = taught("cope") if started else make("cope")
    ids = ["word", 7, 2.5, None, b"bytes", (1, "pair")]
    learner.ask(ids, torch.randn(6, 6))
    learner.save(tmp_path / "state")
    other = load(tmp_path / "state", device="cpu")
    for each in (learner, other):
        assert each.tell(ids[::-1], [0, 1, 2, 0, 1, 2]) == (ids[::-1], [])
    assert same_state(learner.state_dict(), other.state_dict())


def test_samples_without_labels_are_bounded_and_counted_in_the_footprint():
    learner = make("cope", waiting=50)
    for i in range(30):
        learner.ask(range(10 * i, 10 * i + 10), torch.randn(10, 6))
    assert len(learner.waiting) == 50
    assert learner.footprint()["asked"] == 50 * 6 * 4
    learner.tell(range(250, 300), [0] * 50)
    assert "asked" not in learner.footprint()


BAD = {
    "ask got 2 samples but 1 ids": lambda learner: learner.ask([1], torch.zeros(2, 6)),
    "ask got the id 1 twice": lambda learner: learner.ask([1, 1], torch.zeros(2, 6)),
    "ask takes a sequence of ids": lambda learner: learner.ask([[1]], torch.zeros(1, 6)),
    "of shape [1, 5] but the network takes [*, 6]": lambda learner: learner.ask([1], torch.zeros(1, 5)),
    "tell got 1 ids but 2 labels": lambda learner: learner.tell(["w"], ["a", "b"]),
    "a label is a str": lambda learner: learner.tell(["w"], [object()]),
    "tell got the id 'w' twice": lambda learner: learner.tell(["w", "w"], ["a", "b"]),
}


@pytest.mark.parametrize("sentence", BAD)
def test_an_invalid_call_raises_a_clear_error_and_changes_nothing(sentence):
    learner = taught("cope")
    learner.ask(["w"], torch.zeros(1, 6))
    before = learner.state_dict()
    with pytest.raises(ValueError) as caught:
        BAD[sentence](learner)
    assert sentence in str(caught.value)
    assert same_state(before, learner.state_dict())


def test_samples_asked_before_the_first_label_must_have_the_same_shape():
    learner = make("cope")
    learner.ask(["x"], torch.zeros(1, 6))
    with pytest.raises(ValueError, match=r"ask got samples of shape \[7\]"):
        learner.ask(["y"], torch.zeros(1, 7))


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [(["a", "a"], "got the id 'a' twice"), (["a", {"float": "nan"}], "takes a sequence of ids")],
)
def test_a_state_with_ids_that_ask_refuses_is_refused(ids, sentence):
    learner = make("cope")
    learner.ask(["a", "b"], torch.randn(2, 6))
    forged = learner.state_dict() | {
        "asked.ids": torch.frombuffer(bytearray(json.dumps(ids).encode()), dtype=torch.uint8)
    }
    with pytest.raises(CheckpointError, match=sentence):
        make("cope").load_state_dict(forged)
