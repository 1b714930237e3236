"""A task identifier inferred from the stream: from new labels, or from errors that stay higher."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn import Finetune, run, stream
from everlearn.engine.task_inference import Novelty


def identified(batches, errors=None, **settings):
    """The t of each batch of one label; `errors` says which share of ten samples was predicted wrongly."""
    novelty = Novelty(**settings)
    right = [None if errors is None else [i >= 10 * error for i in range(10)] for error in errors or batches]
    return [novelty.identify([label], part) for label, part in zip(batches, right, strict=True)]


def test_new_labels_begin_a_new_t():
    assert identified("aaabbbcc", patience=1) == [0, 0, 0, 1, 1, 1, 2, 2]


def test_new_labels_that_follow_each_other_closely_belong_together():
    assert identified("abcaaaade", patience=3) == [0, 0, 0, 0, 0, 0, 0, 1, 1]


def test_labels_that_come_back_are_not_new():
    assert identified("aaabbbaaabbb", patience=1) == [0, 0, 0] + [1] * 9


def test_an_error_that_rises_for_good_begins_a_new_t():
    found = identified("a" * 60, [0.0] * 30 + [1.0] * 30)
    assert found[:30] == [0] * 30
    assert found[-1] == 1
    assert found.index(1) < 40


def test_an_error_that_falls_or_stays_or_leaps_once_begins_nothing():
    assert set(identified("a" * 60, [1.0] * 10 + [0.5] * 10 + [0.1] * 40)) == {0}
    assert set(identified("a" * 60, [0.3] * 60)) == {0}
    assert set(identified("a" * 60, [0.0] * 30 + [1.0] + [0.0] * 29)) == {0}


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 1)), max_size=80), st.integers(1, 12))
def test_t_counts_up_one_by_one(batches, patience):
    labels, errors = [label for label, _ in batches], [error for _, error in batches]
    found = [0, *identified(labels, errors, patience=patience, threshold=0.5)]
    assert all(after - before in (0, 1) for before, after in pairwise(found))


class RecordsTasks(Finetune):
    """Finetuning that needs t, and records it."""

    name = "records-tasks"
    needs = frozenset({"t"})

    def __init__(self):
        super().__init__("mlp", device="cpu")
        self.tasks_seen = []

    def observe(self, x, y, t=None):
        self.tasks_seen.append(t)
        super().observe(x, y, t)


def test_on_a_split_stream_it_finds_the_tasks():
    student, source = RecordsTasks(), stream("split-digits")
    run(student, source, paradigm="data-incremental", infer="novelty")
    assert student.tasks_seen == [t for _, _, t in source]


def test_on_a_stream_that_changes_abruptly_it_finds_the_change():
    student, source = RecordsTasks(), stream("split-digits", scenario="abrupt-drift")
    run(student, source, infer="novelty")
    middle = len(student.tasks_seen) // 2
    assert student.tasks_seen[-1] == 1
    assert middle < student.tasks_seen.index(1) < middle + 15


def test_the_evaluator_goes_by_the_stream_and_not_by_what_is_inferred():
    source = stream("split-digits", scenario="recurring")
    student = RecordsTasks()
    result = run(student, source, paradigm="data-incremental", infer="novelty")
    assert max(student.tasks_seen) == 4  # classes that come back are not new
    assert [evaluation.task for evaluation in result.history] == [0, 1, 2, 3, 4] * 2


def test_only_novelty_can_be_asked_for():
    with pytest.raises(ValueError, match="infer is \"novelty\" or None, not 'magic'"):
        run(RecordsTasks(), stream("split-digits"), infer="magic")
