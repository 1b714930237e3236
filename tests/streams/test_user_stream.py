"""A user's own stream: from any source, read lazily, with clear errors."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from everlearn import CoPE, Evaluator, run
from everlearn.streams import as_stream, stream
from everlearn.streams.base import Batch, native
from everlearn.streams.recording import record

X = np.arange(12.0).reshape(6, 2)
Y = ["a", "b", "a", "c", "b", "a"]


class Pulled:
    """An endless source that counts the batches taken from it."""

    def __init__(self, *more: Any) -> None:
        self.count = 0
        self.more = more

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.count += 1
            yield (np.full((2, 3), self.count), [self.count, self.count], *self.more)


def test_a_stream_stays_as_it_is() -> None:
    s = stream("split-digits")
    assert as_stream(s) is s


def test_batches_from_a_list_come_as_they_are_and_as_often_as_asked() -> None:
    s = as_stream([(X, Y), (X + 1, Y)])
    for _ in range(2):
        (one, other) = s
        assert one.x is X
        assert (one.y, one.t) == (Y, None)
        assert np.array_equal(other.x, X + 1)
    assert len(s) == 2


def test_a_third_item_is_the_task() -> None:
    s = as_stream([(X, Y, 0), (X, Y, torch.tensor(1)), (X, Y, np.full(6, 2)), (X, Y, [3] * 6)])
    assert [t for _, _, t in s] == [0, 1, 2, 3]
    assert s.tells == {"t"}


def test_a_stream_tells_what_it_was_given_and_no_more() -> None:
    assert as_stream([(X, Y)]).tells == frozenset()
    s = as_stream([(X, Y, 0)], tasks=2, classes=["a", "b", "c"])
    assert (s.tells, s.tasks, s.classes) == ({"t", "tasks", "classes"}, 2, ["a", "b", "c"])


@given(samples=st.integers(0, 40), batch_size=st.integers(1, 15))
@settings(deadline=None)
def test_arrays_are_cut_into_batches_in_their_order(samples: int, batch_size: int) -> None:
    x, y = torch.arange(samples * 3).reshape(samples, 3), torch.arange(samples)
    s = as_stream((x, y), batch_size=batch_size)
    batches = list(s)
    assert len(batches) == len(s) == -(-samples // batch_size)
    assert all(len(batch.x) == batch_size for batch in batches[:-1])
    assert s.samples == samples
    assert torch.equal(torch.cat([batch.x for batch in batches] or [x]), x)
    assert torch.equal(torch.cat([batch.y for batch in batches] or [y]), y)


def test_arrays_of_any_kind_and_lists_of_labels_are_taken() -> None:
    assert [y for _, y, _ in as_stream((X, Y), batch_size=4)] == [Y[:4], Y[4:]]
    assert [y.tolist() for _, y, _ in as_stream([X, np.array(Y)], batch_size=4)] == [Y[:4], Y[4:]]


def test_a_data_loader_is_a_stream() -> None:
    loader = DataLoader(TensorDataset(torch.from_numpy(X), torch.arange(6)), batch_size=4)
    s = as_stream(loader)
    assert [y.tolist() for _, y, _ in s] == [[0, 1, 2, 3], [4, 5]] == [y.tolist() for _, y, _ in s]
    assert len(s) == 2


def test_a_torch_dataset_is_cut_into_batches() -> None:
    s = as_stream(TensorDataset(torch.from_numpy(X), torch.arange(6)), batch_size=4)
    assert [y.tolist() for _, y, _ in s] == [[0, 1, 2, 3], [4, 5]]
    assert (s.samples, s.batch_size, len(s)) == (6, 4, 2)


def test_a_torch_dataset_without_a_length_is_cut_into_batches_too() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return ((torch.zeros(3), i) for i in itertools.count())

    s = as_stream(Endless(), batch_size=2)
    assert next(iter(s)).y.tolist() == [0, 1]
    assert s.samples is None


def test_tests_are_one_pair_or_one_for_each_concept() -> None:
    assert as_stream([(X, Y)]).tests == ()
    assert as_stream([(X, Y)], tests=(X, Y)).tests == ((X, Y),)
    s = as_stream([(X, Y)], tests=[(X, Y), (X, Y)])
    assert len(s.tests) == 2
    assert s.tests_at(10) == s.tests
    assert s.current(10) == (0, 1)


# Lazily


def test_a_source_with_no_end_is_asked_for_one_batch_at_a_time() -> None:
    source = Pulled()
    batches = iter(as_stream(source))
    assert source.count == 0
    for expected in range(1, 100):
        next(batches)
        assert source.count == expected


def test_asking_what_is_told_fetches_one_batch_which_is_sent_first() -> None:
    source = Pulled(7)
    s = as_stream(source)
    assert s.tells == s.tells == {"t"}
    assert source.count == 1
    assert [y[0] for _, y, _ in itertools.islice(s, 3)] == [1, 2, 3]
    assert source.count == 3


def test_what_is_told_is_known_also_after_a_generator_has_ended() -> None:
    for items in ([], [(X, Y)], [(X, Y, 0)]):
        s = as_stream(item for item in items)
        list(s)
        assert s.tells == ({"t"} if items and len(items[0]) == 3 else frozenset())


def test_no_batch_is_kept() -> None:
    s = as_stream(Pulled())
    assert s.tells == frozenset()
    sent = [weakref.ref(batch.x) for batch in itertools.islice(s, 20)]
    assert not any(ref() is not None for ref in sent[:-1])


def test_a_generator_can_be_iterated_once_and_says_so() -> None:
    s = as_stream(((X, Y) for _ in range(3)), name="sensor")
    assert len(list(s)) == 3
    with pytest.raises(ValueError, match="'sensor' comes from a generator, which can be iterated only once"):
        iter(s)


def test_a_generator_that_was_left_midway_can_not_be_begun_again() -> None:
    s = as_stream((X, Y) for _ in itertools.count())
    next(iter(s))
    with pytest.raises(ValueError, match="it has been; create it again"):
        list(s)


def test_an_empty_source_is_an_empty_stream() -> None:
    s = as_stream([])
    assert s.tells == frozenset()
    assert list(s) == []


# Mistakes


def test_an_error_of_the_users_generator_comes_through_untouched() -> None:
    class UnpluggedError(Exception):
        pass

    def sensor() -> Iterator[Any]:
        yield X, Y
        raise UnpluggedError("the cable")

    batches = iter(as_stream(sensor()))
    assert isinstance(next(batches), Batch)
    with pytest.raises(UnpluggedError, match=r"^the cable$"):
        next(batches)


@pytest.mark.parametrize(
    ("item", "kind"),
    [({"x": X}, "a dict"), (X, "a ndarray"), ((X,), "a tuple of 1"), ((X, Y, 0, 0), "a tuple of 4")],
)
def test_an_item_that_is_no_batch_is_named_by_its_number(item: Any, kind: str) -> None:
    s = as_stream([(X, Y), item])
    sentence = rf"batch 2 of the stream 'own' is {kind}, but a tuple \(x, y\) or \(x, y, t\) was expected"
    with pytest.raises(ValueError, match=sentence):
        list(s)


@pytest.mark.parametrize(
    ("t", "shown"), [([0, 1, 1], "0, 1"), ("monday", "'monday'"), (0.5, "0.5"), (True, "True")]
)
def test_a_batch_belongs_to_one_task(t: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=f"batch 1 of the stream 'own' has t = {shown}, but one integer"):
        list(as_stream([(X, Y, t)]))


def test_arrays_of_different_lengths_are_no_stream() -> None:
    with pytest.raises(ValueError, match="x has 6 samples but y has 2 labels"):
        as_stream((X, Y[:2]))


def test_a_number_is_no_stream() -> None:
    with pytest.raises(ValueError, match="not from an int; pass an iterable of"):
        as_stream(3)


def test_a_name_or_a_dict_is_no_stream() -> None:
    for source, kind in (("split-digits", "a str"), ({"x": X, "y": Y}, "a dict")):
        with pytest.raises(ValueError, match=f"not from {kind}"):
            as_stream(source)


def test_tests_that_are_no_pairs_are_refused() -> None:
    for tests in ([X], [(X, Y, 0)], [(X, Y[:3])]):
        with pytest.raises(ValueError, match="tests must be held-out samples and labels"):
            as_stream([(X, Y)], tests=tests)


def test_a_batch_of_no_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, not 0"):
        as_stream((X, Y), batch_size=0)


@pytest.mark.parametrize("batch_size", [2.5, "10", None])
def test_a_batch_size_is_a_whole_number(batch_size: Any) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1, not .*; give a whole number"):
        as_stream((X, Y), batch_size=batch_size)


STRANGE = {
    "backwards": lambda x: x[::-1],
    "columns backwards": lambda x: x[:, ::-1],
    "another byte order": lambda x: x.astype(">f4"),
    "big-endian integers": lambda x: np.rint(10 * x).astype(">i2"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_run_takes_arrays_in_another_byte_order_or_read_backwards(kind, tmp_path) -> None:
    """Also where it is kept on disk, which takes the fingerprint of a batch."""
    x = STRANGE[kind](np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32))
    y = np.arange(40) % 2

    def accuracy(x, y, **options) -> float:
        source = as_stream((x, y), tests=(x, y))
        learner = CoPE(hidden=8, memory_size=20, device="cpu")
        return run(learner, source, Evaluator(every=2), **options).accuracy

    plain = np.array(x.tolist(), np.float32)
    expected = accuracy(plain, y)
    assert accuracy(x, y.astype(">i8")[::-1][::-1], checkpoint=tmp_path / "run") == expected
    recorded = record(as_stream((x, y), tests=(x, y)), tmp_path / "a.stream")
    learner = CoPE(hidden=8, memory_size=20, device="cpu")
    assert run(learner, recorded, Evaluator(every=2)).accuracy == expected


def test_an_array_that_torch_takes_is_handed_on_itself() -> None:
    for x in (np.eye(3), np.eye(3).T, torch.eye(3), [1.0], None):
        assert native(x) is x


def test_a_stream_shows_its_sizes_in_a_notebook():
    shown = stream("split-digits", seed=3)._repr_html_()
    assert "stream split-digits" in shown
    assert "1442" in shown and "imbalance" not in shown
