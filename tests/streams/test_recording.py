"""Recorded streams: played back exactly, safe against crashes, and clear about damage."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import everlearn
from everlearn.streams import as_stream, stream
from everlearn.streams.playback import playback
from everlearn.streams.recording import RecordingError, record, recording
from everlearn.streams.scenarios import SCENARIOS

labels = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda parts: st.lists(parts, max_size=3).map(tuple),
    max_leaves=4,
)
numbers = arrays.arrays(
    arrays.boolean_dtypes() | arrays.integer_dtypes() | arrays.floating_dtypes(),
    arrays.array_shapes(max_dims=3, max_side=4, min_side=0),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.stream"


def alike(one: Any, other: Any) -> bool:
    """Whether two arrays, tensors or lists are the same in kind, type, shape and every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return repr(one) == repr(other)


def assert_same_batches(one: Any, other: Any) -> None:
    for a, b in zip(one, other, strict=True):
        assert all(alike(*parts) for parts in zip(a, b, strict=True))


# Exactly


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_played_back_exactly(scenario: str, path: Path) -> None:
    s = stream("split-digits", scenario=scenario, seed=3, batch_size=50)
    again = record(s, path)
    assert_same_batches(s, again)
    assert_same_batches(s, playback(path))
    assert_same_batches(s.tests, again.tests)
    for fact in ("name", "seed", "samples", "batch_size", "imbalance", "tells", "tasks", "classes"):
        assert getattr(again, fact) == getattr(s, fact), fact
    assert len(again) == len(s)


def test_a_recording_can_be_played_back_several_times_at_once(path: Path) -> None:
    again = record(stream("split-digits"), path)
    readers = [iter(again), iter(again), iter(playback(path))]
    for one, other, third in zip(*readers, strict=True):
        assert_same_batches([one, one], [other, third])


@given(x=numbers, y=st.lists(labels, max_size=5), t=st.none() | st.integers(-5, 2**40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_comes_back_as_it_was(x: Any, y: list[Any], t: int | None, tmp_path: Path) -> None:
    path = tmp_path / "one.stream"
    path.unlink(missing_ok=True)
    ((x_again, y_again, t_again),) = record([(x, y, t)], path)
    assert alike(x, x_again)
    assert alike(y, y_again)
    assert t == t_again


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64],
)
def test_tensors_of_any_type_come_back_as_they_were(dtype: torch.dtype, path: Path) -> None:
    x = torch.randint(0, 2, (5, 3, 2)).to(dtype)
    for sent in (x, x.transpose(1, 2), x[:0]):
        path.unlink(missing_ok=True)
        ((x_again, y_again, _),) = record([(sent, torch.arange(len(sent)))], path)
        assert alike(sent, x_again)
        assert alike(torch.arange(len(sent)), y_again)


def test_labels_in_arrays_of_words_come_back_as_they_were(path: Path) -> None:
    words, mixed = np.array(["cat", "a dog"]), np.array(["cat", 1], dtype=object)
    (one, other) = record([(np.zeros((2, 3)), words), (np.zeros((2, 3)), mixed)], path)
    assert alike(one.y, words)
    assert other.y == ["cat", 1]


def test_arrays_of_a_playback_are_writable(path: Path) -> None:
    for x, _, _ in record([(np.zeros((2, 3)), ["a", "b"]), (torch.zeros(2, 3), ["a", "b"])], path):
        x += 1


def test_the_labels_and_tests_of_a_users_own_stream_are_kept(path: Path) -> None:
    own = as_stream(
        [(np.eye(2), ["a", None])], name="own", tests=(np.eye(2), ["a", None]), classes=["a", None]
    )
    again = record(own, path)
    assert (again.name, again.classes, again.tells) == ("own", ["a", None], {"classes"})
    assert alike(again.tests[0][1], ["a", None])


# Live


def test_a_batch_is_on_file_before_it_is_handed_on(path: Path) -> None:
    for number, batch in enumerate(recording(stream("split-digits"), path, samples=50), 1):
        *_, last = playback(path)
        assert len(playback(path)) == number
        assert torch.equal(last.x, batch.x)


def test_recording_hands_on_the_batches_themselves(path: Path) -> None:
    batches = [(np.eye(2), ["a", "b"]), (np.eye(2), ["c", "d"])]
    assert all(out.x is x for out, (x, _) in zip(recording(batches, path), batches, strict=True))


def test_a_source_with_no_end_is_asked_for_no_more_than_is_recorded(path: Path) -> None:
    pulled = itertools.count()
    endless = ((np.zeros((4, 2)), [next(pulled)] * 4) for _ in itertools.count())
    again = record(endless, path, samples=10)
    assert (len(again), again.samples, next(pulled)) == (3, 12, 3)


def test_an_error_midway_comes_through_and_what_came_before_is_kept(path: Path) -> None:
    def sensor() -> Iterator[Any]:
        yield np.zeros((1, 2)), ["a"]
        raise KeyError("unplugged")

    with pytest.raises(KeyError, match="unplugged"):
        record(sensor(), path)
    assert [y for _, y, _ in playback(path)] == [["a"]]


def test_an_empty_stream_is_an_empty_recording(path: Path) -> None:
    again = record([], path)
    assert (list(again), len(again), again.samples) == ([], 0, 0)


def test_playback_holds_one_batch_in_memory(path: Path) -> None:
    megabyte = np.zeros((16, 1 << 16), np.uint8)
    again = record(((megabyte, [0] * 16) for _ in range(40)), path)
    tracemalloc.start()
    for _ in again:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20


# Damage


def cut(path: Path, size: int) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:size])


def test_wherever_a_crash_cuts_the_file_the_whole_batches_before_are_played_back(path: Path) -> None:
    ends = [path.stat().st_size for _ in recording([(np.eye(2), ["a", "b"])] * 3, path)]
    whole = path.read_bytes()
    for size in range(ends[0], ends[2]):
        path.write_bytes(whole[:size])
        if size in ends:
            assert len(list(playback(path))) == ends.index(size) + 1
            continue
        batches = 1 if size < ends[1] else 2
        with pytest.warns(
            UserWarning,
            match=f"cut off in the middle of batch {batches + 1}; only the complete batches before it",
        ):
            again = playback(path)
        assert len(list(again)) == batches


def test_a_file_cut_off_in_its_beginning_is_refused(path: Path) -> None:
    record([(np.eye(2), ["a", "b"])], path)
    whole = path.read_bytes()
    for size in range(60):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordingError, match=r"some\.stream is "):
            playback(path)


def test_a_changed_byte_is_always_detected(path: Path) -> None:
    record([(np.eye(2, dtype=np.uint8), ["a", "b"]), (np.eye(2), ["c", "d"])], path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        with pytest.raises(RecordingError, match=r"some\.stream is (damaged in|not a recorded stream)"):
            list(playback(path))


def test_damage_is_named_by_the_file_and_the_batch(path: Path) -> None:
    record([(np.zeros((2, 2)), ["a", "b"])] * 3, path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    batches = iter(playback(path))
    next(batches), next(batches)
    with pytest.raises(RecordingError, match=r"some\.stream is damaged in batch 3 \(its checksum differs\)"):
        next(batches)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", b"everlearn stream 2\n"])
def test_a_foreign_file_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(
        RecordingError, match=r"some\.stream is not a recorded stream; pass a file that `record` wrote"
    ):
        playback(path)


def test_a_missing_file_is_one_sentence(path: Path) -> None:
    with pytest.raises(RecordingError, match=r"some\.stream can't be read: No such file or directory$"):
        playback(path)


# Mistakes


def test_a_file_that_is_there_is_never_written_over(path: Path) -> None:
    path.write_text("yesterday")
    with pytest.raises(
        RecordingError, match=r"some\.stream already exists; delete it or choose another name"
    ):
        record(stream("split-digits"), path)
    assert path.read_text() == "yesterday"


def test_a_folder_that_is_not_there_is_one_sentence(path: Path) -> None:
    with pytest.raises(RecordingError, match=r"x\.stream can't be written: No such file or directory"):
        record([], path.parent / "nowhere" / "x.stream")


@pytest.mark.parametrize("label", [["a"], {"a": 1}, 1j, ("a", ["b"])])
def test_what_is_no_label_is_named_by_its_batch(label: Any, path: Path) -> None:
    batches = [(np.zeros((1, 2)), ["a"]), (np.zeros((1, 2)), [label])]
    with pytest.raises(RecordingError, match="batch 2 can't be recorded: a label is a str, int"):
        record(batches, path)
    assert len(playback(path)) == 1


def test_samples_without_plain_bytes_are_refused(path: Path) -> None:
    with pytest.raises(
        RecordingError, match="batch 1 can't be recorded: an array of object can't be stored as plain bytes"
    ):
        record([(np.array([[object()]]), ["a"])], path)


def test_no_samples_at_all_cannot_be_asked_for(path: Path) -> None:
    with pytest.raises(ValueError, match="samples must be at least 1, or None for the whole stream, not 0"):
        record([], path, samples=0)


# Older versions

RECORDED_BY_0_1 = Path(__file__).with_name("recorded_by_0.1.0.stream")


def small_stream() -> Any:
    batches = [
        (np.arange(6, dtype=np.uint8).reshape(3, 2), ["a", (1, b"x"), None], 0),
        (torch.tensor([[0.5, -1.0]]), torch.tensor([7]), 1),
        (np.ones((1, 2)), [2.5], 1),
    ]
    tests = [(np.eye(2), [1.5, True])]
    return as_stream(batches, name="sensor", tests=tests, tasks=2, classes=["a", 2.5])


def test_a_recording_of_version_0_1_plays_back() -> None:
    old, expected = playback(RECORDED_BY_0_1), small_stream()
    assert_same_batches(old, expected)
    assert_same_batches(old.tests, expected.tests)
    assert (old.name, old.tasks, old.classes, old.samples) == ("sensor", 2, ["a", 2.5], 5)


def test_the_file_format_is_that_of_version_0_1(path: Path) -> None:
    record(small_stream(), path)
    assert path.read_bytes() == RECORDED_BY_0_1.read_bytes()


def test_the_old_name_replay_still_works_with_a_deprecation_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"replay is deprecated .* use everlearn\.playback"):
        old = everlearn.replay(RECORDED_BY_0_1)
    assert_same_batches(old, everlearn.playback(RECORDED_BY_0_1))
