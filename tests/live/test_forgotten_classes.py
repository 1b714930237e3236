"""What a live learner records of a forgotten class and of repeated samples."""

from collections import Counter

import pytest
import torch
from live_batches import batch, cope, copy_as_killed, ids, teach

from everlearn import open_live
from everlearn.live.sample_index import SampleIndex, digests


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(memory_size=60)) as opened:
        yield opened


def new_classes(live):
    return [event["label"] for event in live.history() if event["event"] == "new class"]


def other_than(answers):
    """Labels that make every answer wrong."""
    return ["b" if answer == "a" else "a" for answer in answers]


def test_nothing_is_recorded_of_a_forgotten_class_and_its_samples(live, tmp_path):
    teach(live, range(4))
    answers = live.ask(ids(9), batch(9)[0])
    live.tell(ids(9), other_than(answers))
    forgotten = other_than(answers)[0]
    kept = [
        key
        for number in range(4)
        for key, label in zip(ids(number), batch(number)[1], strict=True)
        if label != forgotten
    ]
    live.forget(forgotten)
    assert forgotten not in live.status()["learnt"]
    assert all(mistake.label != forgotten for mistake in live.mistakes())
    told = [key for key, label in zip(ids(9), other_than(answers), strict=True) if label != forgotten]
    assert live._model.index.ids() == {*kept, *told}
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        assert again.status()["learnt"] == live.status()["learnt"]
        assert again._model.index.ids() == live._model.index.ids()


def test_a_forgotten_class_that_returns_is_a_new_class(live):
    live.observe(torch.randn(4, 6), ["a", "a", "b", "b"])
    live.forget("a")
    live.observe(torch.randn(2, 6), ["a", "a"])
    assert new_classes(live) == ["a", "b", "a"]
    assert live.status()["learnt"] == {"b": 2, "a": 2}


def test_a_class_without_samples_after_a_deletion_is_a_new_class_when_it_returns(live):
    live.observe(torch.randn(4, 6), ["a", "a", "b", "b"], ids=[1, 2, 3, 4])
    assert live.delete([1, 2]).forgotten == ["a"]
    assert live.status()["learnt"] == {"b": 2}
    live.observe(torch.randn(1, 6), ["a"])
    assert new_classes(live) == ["a", "b", "a"]


def test_a_forgotten_class_can_be_rolled_back_to(live):
    live.observe(torch.randn(4, 6), ["a", "a", "b", "b"], ids=[1, 2, 3, 4])
    live.forget("a")
    live.rollback(1)
    assert live.classes == ["a", "b"] and live.status()["learnt"] == {"a": 2, "b": 2}
    assert live.delete([1]).exemplars == 1


# Repeated samples.


def test_the_index_is_bounded_where_samples_repeat(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.live.sample_index.LEAST", 50)
    rows = torch.eye(6)[:3]
    with open_live(tmp_path / "live", cope(memory_size=9)) as live:
        live._model.index._limit = 50
        for number in range(100):
            live.observe(rows, ["a", "b", "c"], ids=ids(number, 3))
        index = live._model.index
        assert len(index) <= 53
        index.keep_only(live.learner.memory.stored()[0])
        assert len(index) == sum(live.learner.exemplars().values()) == 9


def test_as_many_ids_as_copies_stay_and_these_are_the_newest():
    index, rows = SampleIndex(), torch.eye(3)
    index.add(["a", "b", "c", "d"], rows[[0, 0, 0, 1]], lambda: rows)
    stored = rows[[0, 2, 0]]
    index.keep_only(stored)
    assert index.ids() == {"b", "c"} and len(index) == 2
    assert index.find({"a", "b", "c"}, stored) == {0: "b", 2: "c"}
    index.keep_only(torch.zeros(0, 3))
    assert len(index) == 0


def test_an_index_has_no_more_ids_of_a_sample_than_copies_for_any_order():
    generator = torch.Generator().manual_seed(0)
    index, rows = SampleIndex(), torch.eye(4)
    index._limit = 5
    for number in range(40):
        drawn = torch.randint(4, (3,), generator=generator)
        stored = rows[torch.randint(4, (6,), generator=generator)]
        index.add([(number, i) for i in range(3)], rows[drawn], lambda stored=stored: stored)
        index.keep_only(stored)
        copies = Counter(digests(stored))
        assert all(len(held) <= copies[digest] for digest, held in index._ids.items())
