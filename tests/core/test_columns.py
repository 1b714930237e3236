"""DataFrames as samples: columns by name, categories encoded online, all of it part of the state."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_learners import every_learner, make, same_state

from everlearn import CoPE, load, open_live
from everlearn.checkpoint import CheckpointError
from everlearn.core.columns import INPUTS, Columns
from everlearn.core.table import Table


def rows(count=6, seed=0, cities=("Oslo", "Rome"), made=pd.DataFrame):
    """Rows of a size, a city and a flag; the city decides the label."""
    random = np.random.default_rng(seed)
    city = random.choice(list(cities), count).tolist()
    frame = made({"size": random.normal(50, 10, count), "city": city, "new": random.random(count) > 0.5})
    return frame, [f"like {name}" for name in city]


def small(memory_size=20):
    return CoPE(hidden=8, embedding=4, memory_size=memory_size, device="cpu")


def trained(made=pd.DataFrame, batches=4, **options):
    learner = small()
    for seed in range(batches):
        learner.observe(*rows(seed=seed, made=made, **options))
    return learner


@every_learner
def test_every_learner_takes_frames_of_pandas_and_polars_alike(name):
    learners = []
    for made in (pd.DataFrame, pl.DataFrame):
        learner = make(name, iterations=1, passes=1)
        for seed in range(2):
            learner.observe(*rows(seed=seed, made=made), 0 if "t" in learner.needs else None)
        learner.ask(["id"], rows(1, made=made)[0])
        learner.tell(["id"], ["like Oslo"], 0 if "t" in learner.needs else None)
        learners.append(learner)
    same_state(*(learner.state_dict() for learner in learners))
    frame = rows(20, 9)[0]
    assert learners[0].predict(frame) == learners[1].predict(pl.DataFrame(frame.to_dict("list")))


# What a row becomes, slowly: each number as it is, and a one for the category's input.


def slow_encoding(frames):
    """The rows of all frames, by a dict of each column that is filled in order of appearance."""
    seen: dict[str, list[str]] = {"city": [], "colour": []}
    encoded = []
    for frame in frames:
        for row in frame.to_dict("records"):
            numbers = []
            for column in frames[0].columns:
                if column not in seen:
                    numbers.append(float(row[column]))
                    continue
                if row[column] not in seen[column]:
                    seen[column].append(row[column])
                numbers += [float(seen[column].index(row[column]) == place) for place in range(INPUTS)]
            encoded.append(numbers)
    return torch.tensor(encoded)


@settings(max_examples=20, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-3, 3)), min_size=1), min_size=1
    ),
    order=st.permutations(["city", "size", "colour"]),
)
def test_rows_are_encoded_as_by_a_table_that_grows(batches, order):
    learner = small()
    frames = [
        pd.DataFrame(
            {
                "city": [c for c, _ in batch],
                "size": [n for _, n in batch],
                "colour": [c * 2 for c, _ in batch],
            }
        )
        for batch in batches
    ]
    encoded = []
    for number, frame in enumerate(frames):
        learner.ask([(number, row) for row in range(len(frame))], frame if number == 0 else frame[order])
        encoded.append(learner.encode(frame))
    assert torch.equal(torch.cat(encoded), slow_encoding(frames))


def test_a_category_that_is_new_at_a_prediction_changes_nothing_and_is_all_zeros():
    learner = trained()
    before = learner.state_dict()
    frame = rows(3)[0].assign(city="Lima")
    assert learner.encode(frame)[:, 1 : 1 + INPUTS].abs().sum() == 0
    learner.predict(frame)
    same_state(learner.state_dict(), before)
    learner.observe(*rows(3, cities=["Lima"]))
    assert learner.encode(frame)[:, 3].tolist() == [1, 1, 1]  # after Oslo and Rome


def test_more_categories_than_inputs_share_them():
    names = [f"city {number}" for number in range(100)]
    table = Table(["city"], [names])
    columns = Columns.of(table, "observe")
    encoded = columns.encode(table, "observe")
    assert encoded.shape == (100, INPUTS) and encoded.sum(1).tolist() == [1.0] * 100
    assert torch.equal(encoded[:INPUTS], torch.eye(INPUTS))
    assert len({int(row.argmax()) for row in encoded[INPUTS:]}) > INPUTS // 2
    assert columns.with_categories_of(table, "observe") is columns


def test_infinity_shares_an_input_as_any_category_does():
    learner = small()
    learner.observe([{"size": f"size {number}"} for number in range(INPUTS)], [0, 1] * (INPUTS // 2))
    assert learner.encode([{"size": float("inf")}]).sum() == 1


def test_declared_categories_get_an_input_each():
    names = [f"city {number}" for number in range(50)]
    declared = pd.DataFrame({"city": pd.Categorical(names[:2], categories=names)})
    assert Columns.of(Table(["city"], [names[:2]], [50]), "observe").width == 50
    for frame in (declared, pl.DataFrame({"city": pl.Series(names[:2], dtype=pl.Enum(names))})):
        learner = small()
        learner.observe(frame, [0, 1])
        assert learner.sample_shape == (50,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="size"), "lacks the column 'size'"),
        (lambda f: f.assign(more=1, other=2), "has the columns 'more', 'other' besides"),
        (
            lambda f: f.rename(columns={"size": "Size"}),
            "lacks the column 'size' and has the column 'Size' besides",
        ),
        (lambda f: f.assign(size="large"), "got 'large' in the column 'size', which held numbers"),
        (lambda f: f.assign(size=[1, 2, None, 3, 4, 5]), "got no value in the column 'size', row 2"),
        (lambda f: f.assign(size=[None] * 6), "got no value in the column 'size', row 0"),
        (lambda f: f.assign(size=np.inf), "got inf in the column 'size', row 0"),
        (
            lambda f: f.assign(size=[1, 2, 1e300, 3, 4, 5]),
            r"got 1e\+300 in the column 'size', row 2: scale it to",
        ),
        (lambda f: f.assign(size=1e13), "in the column 'size', row 0: scale it to at most 1e"),
        (
            lambda f: f.assign(size=pd.Series([10**400] * 6, dtype=object)),
            "got inf in the column 'size', row 0",
        ),
        (lambda f: f.assign(new=pd.Timestamp("2026-01-01")), "'new' is of datetime64"),
        (lambda f: f.assign(city=[["list"]] * 6), "the column 'city' has others"),
        (lambda f: f.iloc[:0], "got an empty batch"),
        (lambda f: pl.DataFrame(f.to_dict("list")).lazy(), "not a LazyFrame"),
        (lambda f: pd.concat([f, f[["city"]]], axis=1), "two columns named 'city'"),
        (lambda f: f.rename(columns={"size": np.nan}), r"takes columns named by text or numbers, not \[nan,"),
    ],
)
def test_a_wrong_frame_is_one_sentence_and_changes_nothing(change, message):
    learner = trained()
    before = learner.state_dict()
    frame, labels = rows(cities=["Oslo", "Lima"])
    for call in (lambda x: learner.observe(x, labels), learner.predict, lambda x: learner.ask(range(6), x)):
        with pytest.raises(ValueError, match=message):
            call(change(frame))
    same_state(learner.state_dict(), before)


def test_a_frame_after_rows_without_names_is_refused():
    learner = small()
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="the first batch had no names of columns"):
        learner.predict(rows(4)[0])


def test_a_first_batch_without_names_after_a_question_about_a_frame_is_saved_and_loaded(tmp_path):
    learner = small()
    learner.ask(["a", "b"], rows(2)[0])
    learner.observe(np.random.default_rng(0).normal(size=(4, 7)), [0, 1, 0, 1])
    learner.save(tmp_path / "state.safetensors")
    assert same_state(load(tmp_path / "state.safetensors").state_dict(), learner.state_dict())
    with pytest.raises(ValueError, match="the first batch had no names of columns"):
        learner.predict(rows(2)[0])


def test_a_frame_is_refused_where_an_encoder_takes_single_samples():
    learner = CoPE("identity", encoder=lambda samples: torch.zeros(len(samples), 3), device="cpu")
    with pytest.raises(
        ValueError, match="got a DataFrame, but the encoder takes single samples: give one column"
    ):
        learner.observe(*rows())
    learner.observe(rows()[0]["city"], rows()[1])
    assert learner.columns is None and learner.sample_shape == (3,)


def test_an_error_after_the_encoding_leaves_the_columns_as_they_were():
    learner = small()
    with pytest.raises(ValueError, match="6 samples but 2 labels"):
        learner.observe(rows()[0], [0, 1])
    assert learner.columns is None


def test_missing_categories_are_a_category_of_their_own():
    learner = small()
    learner.observe(pd.DataFrame({"city": ["Oslo", None, np.nan, pd.NA]}), [0, 1, 1, 1])
    assert learner.columns.categories == ({"Oslo": 0, None: 1},)


@pytest.mark.parametrize(
    "frame",
    [
        [{"age": None}] * 2,
        pd.DataFrame({"age": [None, pd.NA]}),
        pl.DataFrame({"age": [None, None]}),
    ],
)
def test_numbers_in_a_column_that_had_no_value_at_first_are_refused(frame):
    learner = small()
    learner.observe(frame, [0, 1])
    before = learner.state_dict()
    for method in (learner.predict, lambda x: learner.observe(x, [0])):
        with pytest.raises(ValueError, match="got numbers in the column 'age', which holds categories"):
            method([{"age": 41}])
    assert same_state(learner.state_dict(), before)


def test_a_table_of_an_older_journal_with_such_numbers_is_replayed():
    learner = small()
    learner.observe(Table(["age"], [[None, None]]), [0, 1])
    learner.observe(Table(["age"], [np.array([41.0])]), [0])
    assert learner.columns.categories == ({None: 0, 41.0: 1},)


def test_text_in_a_column_that_had_no_value_at_first_is_a_category():
    learner = small()
    learner.observe([{"city": None}] * 2, [0, 1])
    learner.observe([{"city": "Oslo"}], [0])
    assert learner.columns.categories == ({None: 0, "Oslo": 1},)


def test_frames_are_rows_never_images():
    learner = small()
    learner.observe(pd.DataFrame(np.eye(6, 49)), [0, 1, 0, 1, 0, 1])
    assert learner.input_kind == "rows"


# State, snapshots, merging, the live folder, export.


def test_a_resumed_learner_goes_on_with_the_same_columns(tmp_path):
    whole = trained(batches=5)
    first = trained(batches=3)
    first.save(tmp_path / "state")
    second = load(tmp_path / "state", device="cpu")
    for seed in (3, 4):
        second.observe(*rows(seed=seed))
    same_state(whole.state_dict(), second.state_dict())
    assert second.columns == whole.columns


def test_a_learner_that_has_only_been_asked_keeps_its_columns(tmp_path):
    learner = small()
    learner.ask([1, 2], rows(2)[0])
    learner.save(tmp_path / "state")
    resumed = load(tmp_path / "state", device="cpu")
    resumed.tell([1, 2], ["a", "b"])
    assert resumed.columns == learner.columns and resumed.predict(rows(2)[0])


FORGED = [3, [], [[1]], [["a", 0, None]], [["a", 2, None]], [["a", 2, ["x", "x"]]], [["a", 1, ["x", "y"]]]]


@pytest.mark.parametrize(
    "forged", [*FORGED, [["a", 34, ["x"]], ["a", 1, None]], [["a", 40, ["x"]]], [["a", 2**40, []]]]
)
def test_forged_columns_are_refused(forged):
    learner = trained()
    state = learner.state_dict()
    state["meta"] = json.dumps(json.loads(state["meta"]) | {"columns": forged})
    with pytest.raises(CheckpointError, match="columns"):
        learner.load_state_dict(state)


def test_a_snapshot_keeps_the_columns_it_was_taken_with():
    learner = trained()
    snapshot, frame = learner.snapshot(), rows(20, 9)[0]
    expected = snapshot.predict_proba(frame)
    learner.observe(*rows(6, cities=["Lima"]))
    np.testing.assert_array_equal(snapshot.predict_proba(frame), expected)


def test_learners_that_met_categories_in_another_order_merge_by_name():
    one, other = trained(cities=["Oslo", "Rome"]), trained(cities=["Lima", "Rome"])
    one.merge(other)
    places = one.columns.categories[1]
    assert set(places) == {"Oslo", "Rome", "Lima"}
    stored, labels = one.memory.samples()
    for city, place in places.items():
        of_city = stored[[label == f"like {city}" for label in labels]]
        assert len(of_city) and bool((of_city[:, 1 + place] == 1).all())
        assert bool((of_city[:, 1 : 1 + INPUTS].sum(1) == 1).all())
    there = [rows(seed=seed, cities=["Lima", "Rome"])[1].count("like Lima") for seed in range(4)]
    expected = sum(there) / 48  # of all samples that both have seen
    assert abs(float(one.standardisation.mean[1 + places["Lima"]]) - expected) < 1e-6


def test_learners_of_other_columns_do_not_merge():
    other = small()
    other.observe(pd.DataFrame(np.random.default_rng(0).normal(size=(4, 34))), [0, 1, 0, 1])
    learner = trained()
    with pytest.raises(ValueError, match="same columns"):
        learner.merge(other)


def test_a_live_learner_replays_frames_exactly(tmp_path):
    with open_live(tmp_path / "folder", small(100)) as live:
        live.observe(*rows(seed=0), ids=range(6))
        live.save()
        live.ask(["a", "b"], rows(2, seed=1, cities=["Lima", "Quito"])[0])
        live.tell(["a"], ["like Lima"])
        live.observe(*rows(seed=2, made=pl.DataFrame), sample_weight=[1, 2, 1, 1, 0, 1])
        live.observe(pd.DataFrame(rows(1)[0]), ["like Oslo"], ids=["gone"])
        deleted = live.delete(["gone"], rebuild=True)
        expected, answers = live.learner.state_dict(), live.predict(rows(20, 9)[0])
        live._storage.save = lambda model: None  # as if the process were killed here
    assert deleted.exemplars == 1
    with open_live(tmp_path / "folder") as live:
        same_state(live.learner.state_dict(), expected)
        assert live.predict(rows(20, 9)[0]) == answers


def test_a_live_folder_replays_a_frame_of_categories_alone(tmp_path):
    frame = pd.DataFrame({"city": ["Oslo", "Rome"]})
    with open_live(tmp_path / "folder", small()) as live:
        live.observe(frame, [0, 1])
        live._storage.save = lambda model: None
        expected = live.learner.state_dict()
    with open_live(tmp_path / "folder") as live:
        same_state(live.learner.state_dict(), expected)


def test_an_exported_file_takes_encoded_rows_and_names_the_columns(tmp_path):
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    learner, frame = trained(), rows(20, 9)[0]
    learner.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(["label"], {"x": learner.encode(frame).numpy()})
    assert found.tolist() == learner.predict(frame)
    about = {each.key: each.value for each in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert Columns.from_json(json.loads(about["columns"])) == learner.columns


# Dicts.


def dicts(frame):
    return frame.to_dict("records")


def test_dicts_are_learnt_as_the_same_frame():
    learner = small()
    for seed in range(4):
        frame, labels = rows(seed=seed)
        learner.observe(dicts(frame), labels)
    assert same_state(learner.state_dict(), trained().state_dict())


def test_a_dict_with_its_names_in_any_order_is_predicted_as_the_row_of_a_frame():
    learner, frame = trained(), rows(5, seed=9)[0]
    expected = learner.predict(frame)
    assert learner.predict(dicts(frame)) == expected
    assert [learner.predict([dict(reversed(row.items()))])[0] for row in dicts(frame)] == expected
    assert learner.ask(list(range(5)), dicts(frame)) == expected


def test_numbers_of_numpy_in_a_dict_count_as_numbers():
    learner = trained()
    row = {"size": np.float32(50), "city": np.str_("Oslo"), "new": np.bool_(True)}
    assert torch.equal(learner.encode([row]), learner.encode([{"size": 50, "city": "Oslo", "new": True}]))


def test_none_in_a_dict_is_a_missing_category():
    learner = trained()
    learner.observe([{"size": 1.0, "city": None, "new": True}], ["nowhere"])
    assert None in learner.columns.categories[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([{"size": 1.0, "city": "Oslo"}], "lacks the column 'new'"),
        ([{"size": None, "city": "Oslo", "new": True}], "got no value in the column 'size', row 0"),
        ([{"size": 1, "city": "Oslo", "new": 1}, {"size": 1, "city": "Oslo"}], "only some have 'new'"),
        ([{"size": 1, "city": "Oslo", "new": 1}, [1, 2, 3]], "got dicts, but row 1 is of type list"),
        ([{}], "got dicts without values"),
    ],
)
def test_wrong_dicts_are_one_sentence_and_change_nothing(wrong, message):
    learner = trained()
    before = learner.state_dict()
    with pytest.raises(ValueError) as caught:
        learner.observe(wrong, ["like Oslo"] * len(wrong))
    assert message in str(caught.value)
    assert same_state(learner.state_dict(), before)


def test_dicts_after_rows_without_names_are_refused():
    learner = small()
    learner.observe(np.zeros((2, 3)), [0, 1])
    with pytest.raises(ValueError, match="the first batch had no names of columns: give their numbers alone"):
        learner.predict([{"size": 1, "city": "Oslo", "new": 1}])


def test_an_encoder_of_ones_own_may_take_dicts():
    learner = CoPE(encoder=lambda orders: [[each["size"], 1.0] for each in orders], device="cpu")
    learner.observe([{"size": -1.0}, {"size": 1.0}], ["small", "large"])
    assert learner.predict([{"size": -2.0}]) == ["small"] and learner.columns is None


def test_a_live_learner_takes_dicts_and_replays_them(tmp_path):
    frame, labels = rows()
    with open_live(tmp_path / "live", small()) as live:
        live.observe(dicts(frame), labels)
        expected = live.predict(dicts(frame))
    with open_live(tmp_path / "live") as live:
        assert live.predict(dicts(frame)) == expected
