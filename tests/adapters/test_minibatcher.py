"""Single records are gathered into batches, and features come and go."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everlearn import learners
from everlearn.adapters.columns import PATTERNS, Columns
from everlearn.adapters.grow_inputs import widen
from everlearn.adapters.minibatcher import Gathering
from everlearn.core.learner import Learner

ONLINE = [
    name
    for name, kind in learners.registry().items()
    if "t" not in kind.needs and kind.horizon.extent == "batch"
]
GROWING = ["cope", "cope-ce", "finetune", "gss", "mir", "reservoir"]


def learner(name: str = "cope", **given: object) -> Learner:
    small = {"hidden": 8, "seed": 0, "device": "cpu"}
    kind = learners.find(name)
    if hasattr(kind.Settings, "memory_size"):
        small["memory_size"] = 12
    return kind("mlp", **{**small, **given})


def stream(count: int, seed: int = 0, classes: int = 3) -> list[tuple[dict[str, float], str]]:
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=count)
    rows = random.normal(size=(count, 4)) + labels[:, None]
    return [
        (dict(zip("abcd", row.tolist(), strict=True)), f"class {label}")
        for row, label in zip(rows, labels, strict=True)
    ]


def same(one: Learner, other: Learner) -> bool:
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) if name != "meta" else a[name] == b[name] for name in a
    )


@pytest.mark.parametrize("name", ONLINE)
def test_it_learns_what_the_learner_learns_from_the_same_batches(name):
    gathering, oracle = Gathering(learner(name), 5), learner(name)
    records = stream(30)
    for start in range(0, 30, 5):
        batch = records[start : start + 5]
        for record, label in batch:
            gathering.tell(record, label)
            if label not in oracle.classes:
                oracle.welcome(np.zeros((2, 4)), [label, label])
        oracle.observe([list(record.values()) for record, _ in batch], [label for _, label in batch])
    assert same(gathering.learner, oracle)


@pytest.mark.parametrize("name", ONLINE)
def test_a_pickle_at_any_moment_goes_on_bit_for_bit(name):
    records = stream(23)
    whole = Gathering(learner(name), 5)
    for record, label in records:
        whole.tell(record, label)
    for stop in (0, 1, 5, 13):
        part = Gathering(learner(name), 5)
        for record, label in records[:stop]:
            part.tell(record, label)
        part = pickle.loads(pickle.dumps(part))
        assert len(part) == stop % 5
        for record, label in records[stop:]:
            part.tell(record, label)
        assert pickle.dumps(part) == pickle.dumps(whole)


def test_a_pickle_holds_features_that_came_later():
    def told(gathering: Gathering, moments: range) -> Gathering:
        for moment in moments:
            gathering.tell({f"feature {moment // 3}": 1.0, "always": -1.0}, moment % 2)
        return gathering

    whole = told(Gathering(learner(), 4), range(40))
    part = told(pickle.loads(pickle.dumps(told(Gathering(learner(), 4), range(22)))), range(22, 40))
    assert pickle.dumps(part) == pickle.dumps(whole)


def test_a_label_counts_from_the_moment_it_was_told():
    gathering = Gathering(learner(), 10)
    gathering.tell({"a": 1.0}, "first")
    assert gathering.learner.classes == ["first"] and gathering.learner.samples == 0
    gathering.tell({"a": 2.0}, "second")
    probabilities = gathering.learner.predict_proba(gathering.row({"a": 1.0}))
    assert probabilities.shape == (1, 2) and (probabilities > 0).all()


def test_what_waits_can_be_learnt_at_once():
    gathering = Gathering(learner(), 10)
    gathering.tell({"a": 1.0}, "x")
    gathering.learn_waiting()
    gathering.learn_waiting()
    assert (len(gathering), gathering.learner.samples, gathering.learner.batches) == (0, 1, 1)


# Features.

records = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5, width=32), min_size=1),
    min_size=1,
    max_size=12,
)


@given(records, st.randoms())
@settings(max_examples=25)
def test_what_is_kept_is_each_record_with_zeros_for_missing_features(told, random):
    """The oracle: a dict for each record; the memory is large enough to keep all of them."""
    gathering = Gathering(learner(), 1)
    for record in told:
        shuffled = random.sample(sorted(record), len(record))
        gathering.tell({name: record[name] for name in shuffled}, "y")
    names = gathering.columns.names
    kept = sorted(row[: len(names)] for row in gathering.learner.memory.samples()[0].tolist())
    assert kept == sorted([record.get(name, 0.0) for name in names] for record in told)
    assert {*names} == {name for record in told for name in record}


def test_the_order_of_features_in_a_record_makes_no_difference():
    one, other = Gathering(learner(), 3), Gathering(learner(), 3)
    for record, label in stream(9):
        one.tell(record, label)
        other.tell(dict(reversed(record.items())), label)
    assert pickle.dumps(one) == pickle.dumps(other)


@pytest.mark.parametrize("name", GROWING)
def test_new_features_change_no_prediction_until_they_are_learnt(name):
    gathering = Gathering(learner(name), 5)
    records = stream(40)
    for record, label in records:
        gathering.tell(record, label)
    ask = records[3][0]
    before = gathering.learner.predict_proba(gathering.row(ask))
    exemplars = gathering.learner.exemplars()
    gathering.tell({**ask, "new": 3.0}, records[3][1])
    assert gathering.learner.sample_shape == (8,)  # twice the room
    assert gathering.learner.exemplars() == exemplars
    now = gathering.learner.predict_proba(gathering.row({**ask, "new": 3.0}))
    np.testing.assert_allclose(now, before, atol=1e-6)


@pytest.mark.parametrize("name", GROWING)
def test_new_features_are_learnt(name):
    gathering = Gathering(learner(name, learning_rate=0.05, hidden=32), 5)
    random = np.random.default_rng(0)
    for moment in range(400):
        sign = random.choice([-1.0, 1.0])
        noise = {"noise": random.normal()}
        gathering.tell(noise if moment < 50 else {**noise, "telling": sign}, bool(sign > 0))
    rows = [gathering.row({"telling": value}) for value in (-1.0, 1.0)]
    assert gathering.learner.predict(np.concatenate(rows)) == [False, True]


def test_the_room_doubles():
    gathering = Gathering(learner(), 2)
    widths = []
    for feature in range(9):
        gathering.tell({feature: 1.0}, 0)
        widths.append(gathering.learner.sample_shape[0])
    assert widths == [1, 2, 4, 4, 8, 8, 8, 8, 16]


def test_a_feature_that_was_never_told_of_has_no_say_in_a_prediction():
    gathering = Gathering(learner(), 2)
    gathering.tell({"a": 1.0, "b": 2.0}, 0)
    assert gathering.row({"b": 5.0, "unheard": 7.0}).tolist() == [[0.0, 5.0]]
    assert gathering.rows(["unheard", "b"], np.array([[7.0, 5.0], [7.0, np.nan]])).tolist() == [
        [0, 5],
        [0, 0],
    ]
    assert gathering.columns.names == ["a", "b"]


def test_remembered_sets_of_features_stay_few():
    columns = Columns(range(3000))
    for name in range(3000):
        columns.places((name,))
    assert len(columns._places) <= PATTERNS


def test_a_network_of_ones_own_fills_up_to_its_width():
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    gathering = Gathering(learners.find("cope")(network, memory_size=5, device="cpu"), 2)
    for name in "xyz":
        gathering.tell({name: 1.0}, name)
    with pytest.raises(ValueError, match="takes 3 features, and 'w' is one more.*mlp"):
        gathering.tell({"w": 1.0}, "x")
    assert gathering.columns.names == ["x", "y", "z"]
    gathering.tell({"z": 1.0}, "x")
    twin = copy.deepcopy(gathering)
    twin.tell({"z": -1.0}, "y")
    assert len(twin) == 1 and len(gathering) == 0


def test_a_learner_whose_state_does_not_go_by_features_is_not_widened(monkeypatch):
    odd = learner()
    odd.observe(np.zeros((2, 3)), [0, 1])
    monkeypatch.setattr(type(odd), "_parts", lambda self: {"flat": torch.zeros(8 * self.sample_shape[0])})
    with pytest.raises(ValueError, match="CoPE can't take new features: its flat"):
        widen(odd, 5)


# Refusals.

REFUSED = [
    ({"a": "red"}, 0, "the feature 'a' is 'red', but a feature is a finite number"),
    ({"a": None}, 0, "the feature 'a' is None"),
    ({"a": float("nan")}, 0, "the feature 'a' is nan"),
    ({"a": 1e39}, 0, "the feature 'a' is 1e\\+39"),
    ({"new": float("inf")}, 0, "the feature 'new' is inf"),
    ([1.0], 0, "a record is a dict from the names of features to numbers, not list"),
    ({"a": 1.0}, [1], "a label is a str, int, float, bool, bytes, None or a tuple of these, not \\[1\\]"),
    ({"new": 1.0}, float("nan"), "NaN is no label"),
    ({"new": 1.0}, "a thirteenth class", "a memory of 12 has no room"),
]


@pytest.mark.parametrize(("record", "label", "words"), REFUSED)
def test_what_is_refused_leaves_everything_as_it_was(record, label, words):
    gathering = Gathering(learner(), 5)
    for each in range(12):
        gathering.tell({"a": float(each)}, each)
    before = pickle.dumps(gathering)
    with pytest.raises(ValueError, match=words):
        gathering.tell(record, label)
    assert pickle.dumps(gathering) == before


def test_many_records_are_refused_together():
    gathering = Gathering(learner(), 5)
    gathering.tell({"a": 1.0}, 0)
    before = pickle.dumps(gathering)
    for values, labels, words in [
        ([[1.0], [np.inf]], [0, 0], "the feature 'a' is inf"),
        ([[1.0], [2.0]], [0], "2 records but 1 labels"),
        ([[1.0], [2.0]], [0, [1]], "a label is"),
        ([[float(each)] for each in range(13)], list(range(13)), "no room"),
    ]:
        with pytest.raises(ValueError, match=words):
            gathering.tell_many(["a"], np.array(values), labels)
    assert pickle.dumps(gathering) == before


def test_a_first_record_without_features_is_refused():
    with pytest.raises(ValueError, match="the first record has no features"):
        Gathering(learner(), 5).tell({}, 0)


def test_a_batch_that_fails_leaves_the_others_waiting(monkeypatch):
    gathering = Gathering(learner(), 2)
    gathering.tell({"a": 1.0}, 0)

    def fail(*arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(gathering.learner, "observe", fail)
        with pytest.raises(MemoryError):
            gathering.tell({"a": 2.0}, 0)
    assert len(gathering) == 1
    gathering.tell({"a": 2.0}, 0)
    assert (len(gathering), gathering.learner.samples) == (0, 2)


@pytest.mark.parametrize("name", ["gem", "icarl", "iid-offline"])
def test_a_learner_that_must_be_told_tasks_is_refused(name):
    with pytest.raises(ValueError, match=f"the learner '{name}' must be told where a task ends"):
        Gathering(learners.find(name)("mlp"), 10)


def test_a_batch_holds_at_least_one_record():
    with pytest.raises(ValueError, match="batch_size must be a whole number, at least 1, not 0"):
        Gathering(learner(), 0)
