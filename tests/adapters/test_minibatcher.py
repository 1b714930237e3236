"""Single records are collected into batches, and features may appear and disappear."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everlearn import learners
from everlearn.adapters.common import deserialize, serialize
from everlearn.adapters.feature_columns import CACHED_FEATURE_SETS, FeatureColumns
from everlearn.adapters.grow_inputs import grow_inputs
from everlearn.adapters.minibatcher import MiniBatcher
from everlearn.core.learner import Learner
from everlearn.core.setup import add_classes
from everlearn.training.passes import NotFinite

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
    batcher, oracle = MiniBatcher(learner(name), 5), learner(name)
    records = stream(30)
    for start in range(0, 30, 5):
        batch = records[start : start + 5]
        for record, label in batch:
            batcher.learn_one(record, label)
            if label not in oracle.classes:
                add_classes(oracle, np.zeros((2, 4)), [label, label])
        oracle.observe([list(record.values()) for record, _ in batch], [label for _, label in batch])
    assert same(batcher.learner, oracle)


@pytest.mark.parametrize("name", ONLINE)
def test_a_pickle_at_any_moment_goes_on_bit_for_bit(name):
    records = stream(23)
    whole = MiniBatcher(learner(name), 5)
    for record, label in records:
        whole.learn_one(record, label)
    for stop in (0, 1, 5, 13):
        part = MiniBatcher(learner(name), 5)
        for record, label in records[:stop]:
            part.learn_one(record, label)
        part = pickle.loads(pickle.dumps(part))
        assert len(part) == stop % 5
        for record, label in records[stop:]:
            part.learn_one(record, label)
        assert pickle.dumps(part) == pickle.dumps(whole)


def test_a_pickle_holds_features_that_came_later():
    def learnt(batcher: MiniBatcher, moments: range) -> MiniBatcher:
        for moment in moments:
            batcher.learn_one({f"feature {moment // 3}": 1.0, "always": -1.0}, moment % 2)
        return batcher

    whole = learnt(MiniBatcher(learner(), 4), range(40))
    part = learnt(pickle.loads(pickle.dumps(learnt(MiniBatcher(learner(), 4), range(22)))), range(22, 40))
    assert pickle.dumps(part) == pickle.dumps(whole)


def test_a_pickle_of_an_older_version_without_arguments_goes_on():
    trained = learner()
    trained.observe(np.eye(4), [0, 1, 0, 1])
    assert same(deserialize(serialize(trained)[:4], "cpu"), trained)


def test_a_label_is_a_class_at_once_before_its_batch_is_full():
    batcher = MiniBatcher(learner(), 10)
    batcher.learn_one({"a": 1.0}, "first")
    assert batcher.learner.classes == ["first"] and batcher.learner.samples == 0
    batcher.learn_one({"a": 2.0}, "second")
    probabilities = batcher.learner.predict_proba(batcher.row({"a": 1.0}))
    assert probabilities.shape == (1, 2) and (probabilities > 0).all()


def test_waiting_records_can_be_learnt_at_once():
    batcher = MiniBatcher(learner(), 10)
    batcher.learn_one({"a": 1.0}, "x")
    batcher.learn_waiting()
    batcher.learn_waiting()
    assert (len(batcher), batcher.learner.samples, batcher.learner.batches) == (0, 1, 1)


# Features.

records = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(-5, 5, width=32), min_size=1),
    min_size=1,
    max_size=12,
)


@given(records, st.randoms())
@settings(max_examples=25)
def test_what_is_kept_is_each_record_with_zeros_for_missing_features(all_records, random):
    """The oracle: a dict for each record; the memory is large enough to keep all of them."""
    batcher = MiniBatcher(learner(), 1)
    for record in all_records:
        shuffled = random.sample(sorted(record), len(record))
        batcher.learn_one({name: record[name] for name in shuffled}, "y")
    names = batcher.columns.names
    kept = sorted(row[: len(names)] for row in batcher.learner.memory.samples()[0].tolist())
    assert kept == sorted([record.get(name, 0.0) for name in names] for record in all_records)
    assert {*names} == {name for record in all_records for name in record}


def test_the_order_of_features_in_a_record_makes_no_difference():
    one, other = MiniBatcher(learner(), 3), MiniBatcher(learner(), 3)
    for record, label in stream(9):
        one.learn_one(record, label)
        other.learn_one(dict(reversed(record.items())), label)
    assert pickle.dumps(one) == pickle.dumps(other)


@pytest.mark.parametrize("name", GROWING)
def test_new_features_change_no_prediction_until_they_are_learnt(name):
    batcher = MiniBatcher(learner(name), 5)
    records = stream(40)
    for record, label in records:
        batcher.learn_one(record, label)
    ask = records[3][0]
    before = batcher.learner.predict_proba(batcher.row(ask))
    exemplars = batcher.learner.exemplars()
    batcher.learn_one({**ask, "new": 3.0}, records[3][1])
    assert batcher.learner.sample_shape == (8,)  # twice the width
    assert batcher.learner.exemplars() == exemplars
    now = batcher.learner.predict_proba(batcher.row({**ask, "new": 3.0}))
    np.testing.assert_allclose(now, before, atol=1e-6)


@pytest.mark.parametrize("name", GROWING)
def test_new_features_are_learnt(name):
    batcher = MiniBatcher(learner(name, learning_rate=0.05, hidden=32), 5)
    random = np.random.default_rng(0)
    for moment in range(400):
        sign = random.choice([-1.0, 1.0])
        noise = {"noise": random.normal()}
        batcher.learn_one(noise if moment < 50 else {**noise, "telling": sign}, bool(sign > 0))
    rows = [batcher.row({"telling": value}) for value in (-1.0, 1.0)]
    assert batcher.learner.predict(np.concatenate(rows)) == [False, True]


def test_the_input_doubles():
    batcher = MiniBatcher(learner(), 2)
    widths = []
    for feature in range(9):
        batcher.learn_one({feature: 1.0}, 0)
        widths.append(batcher.learner.sample_shape[0])
    assert widths == [1, 2, 4, 4, 8, 8, 8, 8, 16]


def test_a_feature_that_was_never_learnt_is_ignored_in_a_prediction():
    batcher = MiniBatcher(learner(), 2)
    batcher.learn_one({"a": 1.0, "b": 2.0}, 0)
    assert batcher.row({"b": 5.0, "unheard": 7.0}).tolist() == [[0.0, 5.0]]
    assert batcher.rows(["unheard", "b"], np.array([[7.0, 5.0], [7.0, np.nan]])).tolist() == [
        [0, 5],
        [0, 0],
    ]
    assert batcher.columns.names == ["a", "b"]


def test_remembered_sets_of_features_stay_few():
    columns = FeatureColumns(range(3000))
    for name in range(3000):
        columns.indices((name,))
    assert len(columns._cache) <= CACHED_FEATURE_SETS


def test_a_network_of_ones_own_fills_up_to_its_width():
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    batcher = MiniBatcher(learners.find("cope")(network, memory_size=5, device="cpu"), 2)
    for name in "xyz":
        batcher.learn_one({name: 1.0}, name)
    with pytest.raises(ValueError, match="has 3 inputs, and the feature 'w' is one more.*mlp"):
        batcher.learn_one({"w": 1.0}, "x")
    assert batcher.columns.names == ["x", "y", "z"]
    batcher.learn_one({"z": 1.0}, "x")
    twin = copy.deepcopy(batcher)
    twin.learn_one({"z": -1.0}, "y")
    assert len(twin) == 1 and len(batcher) == 0


def test_a_column_without_values_takes_no_input_of_a_network_of_ones_own():
    batcher = MiniBatcher(learners.find("cope")(nn.Linear(2, 8), memory_size=5, device="cpu"), 2)
    batcher.learn_many(["x", "empty", "y"], np.array([[1.0, np.nan, 2.0], [2.0, np.nan, 1.0]]), [0, 1])
    assert batcher.columns.names == ["x", "y"] and batcher.learner.samples == 2


def test_a_learner_whose_state_does_not_go_by_features_is_not_widened(monkeypatch):
    odd = learner()
    odd.observe(np.zeros((2, 3)), [0, 1])
    monkeypatch.setattr(
        type(odd), "extra_state", lambda self: {"flat": torch.zeros(8 * self.sample_shape[0])}
    )
    with pytest.raises(ValueError, match="CoPE can't get new features, because its flat"):
        grow_inputs(odd, 5)


@pytest.mark.parametrize("count", [49, 64, 100])
def test_records_are_rows_whatever_the_number_of_their_features(count):
    batcher = MiniBatcher(learner(), 2)
    for moment in range(4):
        batcher.learn_one({feature: float(moment) for feature in range(count)}, moment % 2)
    assert batcher.learner.input_kind == "rows" and batcher.learner.standardisation is not None


@pytest.mark.parametrize("name", ["cope", "mir"])
@pytest.mark.parametrize(("before", "after"), [(32, 64), (24, 49)])
def test_the_input_grows_to_any_number_of_features(name, before, after):
    batcher = MiniBatcher(learner(name), 2)
    for count in (before, before, after, after):
        batcher.learn_one({feature: 1.0 + feature for feature in range(count)}, count)
    assert batcher.learner.sample_shape == (after,) and batcher.learner.batches == 2


def test_features_compared_as_they_are_get_new_ones():
    batcher = MiniBatcher(learners.find("cope")("identity", memory_size=12, device="cpu"), 2)
    for record, label in stream(10):
        batcher.learn_one(record, label)
    batcher.learn_one({"new": 1.0}, "class 0")
    assert batcher.learner.sample_shape == (8,)


# Refusals.

REFUSED = [
    ({"a": "red"}, 0, "the feature 'a' is 'red', but a feature must be a finite number"),
    ({"a": None}, 0, "the feature 'a' is None"),
    ({"a": float("nan")}, 0, "the feature 'a' is nan"),
    ({"a": 1e39}, 0, "the feature 'a' is 1e\\+39"),
    (
        {"a": 1e13},
        0,
        "the feature 'a' is 10000000000000.0, but a feature must be a finite number of at most 1e\\+12",
    ),
    ({"new": np.array([1.0]), "a": 2.0}, "new", "the feature 'new' is array"),
    ({"a": 1.0}, Decimal(1), "a label is a str, .* not Decimal"),  # which equals the label 1
    ({"new": float("inf")}, 0, "the feature 'new' is inf"),
    ([1.0], 0, "a record must be a dict of feature names and numbers, not list"),
    ({"a": 1.0}, [1], "a label is a str, int, float, bool, bytes, None or a tuple of these, not \\[1\\]"),
    ({"new": 1.0}, float("nan"), "learn_one got no label"),
    ({"new": 1.0}, "a thirteenth class", "a memory of 12 has no room"),
]


@pytest.mark.parametrize(("record", "label", "words"), REFUSED)
def test_what_is_refused_leaves_everything_as_it_was(record, label, words):
    batcher = MiniBatcher(learner(), 5)
    for each in range(12):
        batcher.learn_one({"a": float(each)}, each)
    before = pickle.dumps(batcher)
    with pytest.raises(ValueError, match=words):
        batcher.learn_one(record, label)
    assert pickle.dumps(batcher) == before


def test_many_records_are_refused_together():
    batcher = MiniBatcher(learner(), 5)
    batcher.learn_one({"a": 1.0}, 0)
    before = pickle.dumps(batcher)
    for values, labels, words in [
        ([[1.0], [np.inf]], [0, 0], "the feature 'a' is inf"),
        ([[1.0]] * 11 + [[1e13]], [0] * 12, "the feature 'a' is 10000000000000.0"),
        ([[1.0]] * 12, [0] * 11 + [Decimal(0)], "a label is a str, .* not Decimal"),
        ([[1.0]] * 12, [0] * 11 + [None], "learn_many got no label"),
        ([[1.0], [2.0]], [0], "2 records but 1 label$"),
        ([[1.0], [2.0]], [0, [1]], "a label is"),
        ([[float(each)] for each in range(13)], list(range(13)), "no room"),
    ]:
        with pytest.raises(ValueError, match=words):
            batcher.learn_many(["a"], np.array(values), labels)
    assert pickle.dumps(batcher) == before


def test_a_first_record_without_features_is_refused():
    with pytest.raises(ValueError, match="the first record has no features"):
        MiniBatcher(learner(), 5).learn_one({}, 0)


def test_a_batch_that_fails_leaves_the_others_waiting(monkeypatch):
    batcher = MiniBatcher(learner(), 2)
    batcher.learn_one({"a": 1.0}, 0)

    def fail(*arguments: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(batcher.learner, "observe", fail)
        with pytest.raises(MemoryError):
            batcher.learn_one({"a": 2.0}, 0)
    assert len(batcher) == 1
    batcher.learn_one({"a": 2.0}, 0)
    assert (len(batcher), batcher.learner.samples) == (0, 2)


def test_a_batch_that_the_learner_refuses_does_not_stop_later_records(monkeypatch):
    batcher = MiniBatcher(learner(), 2)
    batcher.learn_one({"a": 1.0}, 0)

    def refuse(*arguments: object) -> None:
        raise NotFinite

    with monkeypatch.context() as patched:
        patched.setattr(batcher.learner, "observe", refuse)
        with pytest.raises(ValueError, match=r"infinite or NaN, .* \(2 records are left out\)$"):
            batcher.learn_one({"a": 2.0}, 0)
    assert len(batcher) == 0
    for value in (3.0, 4.0):
        batcher.learn_one({"a": value}, 0)
    assert sorted(batcher.learner.memory.samples()[0].flatten().tolist()) == [3.0, 4.0]


def test_a_missing_label_is_skipped_where_the_learner_skips_them():
    batcher = MiniBatcher(learner(missing_labels="skip"), 2)
    for label in ("x", None, "x", float("nan")):
        batcher.learn_one({"a": 1.0}, label)
    assert (batcher.learner.samples, batcher.learner.unlabelled, batcher.learner.classes) == (2, 2, ["x"])


@pytest.mark.parametrize("name", ["gem", "icarl", "iid-offline"])
def test_a_learner_that_needs_tasks_is_refused(name):
    with pytest.raises(ValueError, match=f"the learner '{name}' needs to know where a task ends"):
        MiniBatcher(learners.find(name)("mlp"), 10)


def test_a_batch_holds_at_least_one_record():
    with pytest.raises(ValueError, match="batch_size must be a whole number, at least 1, not 0"):
        MiniBatcher(learner(), 0)
