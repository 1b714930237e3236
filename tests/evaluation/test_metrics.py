"""Every metric against a case worked by hand, and against a slow loop where it has a fast form."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn.evaluation import metrics, prequential, representation
from everlearn.evaluation.history import Evaluation, first_ends, from_matrix

OF_A_HISTORY = [
    metrics.accuracy,
    metrics.accuracy_per_class,
    metrics.accuracy_per_task,
    metrics.anytime_accuracy,
    metrics.area_under_accuracy,
    metrics.backward_transfer,
    metrics.confusion,
    metrics.forgetting,
    metrics.forward_transfer,
    metrics.min_accuracy,
    metrics.windowed_forgetting,
    metrics.windowed_plasticity,
    metrics.worst_case_accuracy,
]

# Three tasks, evaluated after each; right of the diagonal, tasks not yet seen.
R = [
    [0.90, 0.20, 0.10],
    [0.60, 0.80, 0.30],
    [0.70, 0.50, 0.95],
]


def at(samples, task, accuracies, **more):
    """An evaluation with these accuracies."""
    return Evaluation(samples // 10, samples, task, accuracies, (), np.zeros((0, 0), np.int64), **more)


@pytest.fixture
def history():
    return from_matrix(R, classes=10)


# Worked by hand


def test_final_accuracy_is_the_mean_over_tasks_at_the_end(history):
    assert metrics.accuracy(history) == pytest.approx((0.70 + 0.50 + 0.95) / 3)
    assert metrics.accuracy_per_task(history) == {0: 0.70, 1: 0.50, 2: 0.95}


def test_final_accuracy_weighs_tasks_alike_whatever_their_size():
    last = Evaluation(1, 10, 1, {0: 1.0, 1: 0.0}, (0, 1), np.array([[999, 0], [1, 0]]))
    assert metrics.accuracy([last]) == 0.5


def test_accuracy_per_class_is_the_diagonal_of_the_confusion_matrix_by_rows():
    confusion = np.array([[8, 2, 0], [0, 0, 0], [1, 0, 3]])
    last = Evaluation(1, 10, 0, {0: 0.8}, ("a", "never tested", None), confusion)
    assert metrics.accuracy_per_class([last]) == {"a": 0.8, None: 0.75}
    assert metrics.confusion([last]) is confusion


def test_anytime_accuracy_is_the_mean_over_evaluations_of_the_mean_over_tasks_seen(history):
    by_hand = (0.90 + (0.60 + 0.80) / 2 + (0.70 + 0.50 + 0.95) / 3) / 3
    assert metrics.anytime_accuracy(history) == pytest.approx(by_hand)


def test_area_under_accuracy_weighs_by_samples_where_anytime_accuracy_counts_evaluations():
    history = [at(100, 0, {0: 1.0}), at(200, 0, {0: 0.0}), at(1000, 0, {0: 0.5})]
    by_hand = (100 * 0.5 + 800 * 0.25) / 900
    assert metrics.area_under_accuracy(history) == pytest.approx(by_hand)
    assert metrics.anytime_accuracy(history) == pytest.approx(0.5)


def test_min_accuracy_takes_each_earlier_task_at_its_lowest_since_it_ended(history):
    # Task 0 was at 0.60 and 0.70 after it had ended, task 1 at 0.50.
    assert metrics.min_accuracy(history) == pytest.approx((0.60 + 0.50) / 2)


def test_worst_case_accuracy_adds_the_current_task_by_its_share(history):
    # k = 3: a third of the current task's 0.95, two thirds of min-ACC.
    assert metrics.worst_case_accuracy(history) == pytest.approx(0.95 / 3 + 2 / 3 * 0.55)


def test_a_low_moment_while_a_task_was_being_learnt_is_no_worst_case():
    history = [at(10, 0, {0: 0.1}), at(20, 0, {0: 0.9}), at(30, 1, {0: 0.8, 1: 0.6})]
    assert metrics.min_accuracy(history) == 0.8
    assert metrics.worst_case_accuracy(history) == pytest.approx((0.6 + 0.8) / 2)


def test_windowed_forgetting_is_the_largest_fall_inside_a_window():
    curve = [0.9, 0.8, 0.5, 0.6, 0.4]
    history = [at(10 * n, 0, {0: value}) for n, value in enumerate(curve)]
    assert metrics.windowed_forgetting(history, window=2) == pytest.approx(0.3)
    assert metrics.windowed_forgetting(history, window=3) == pytest.approx(0.4)
    assert metrics.windowed_forgetting(history, window=5) == pytest.approx(0.5)
    assert metrics.windowed_forgetting(history, window=500) == pytest.approx(0.5)


def test_windowed_plasticity_is_the_largest_rise_inside_a_window():
    curve = [0.1, 0.3, 0.2, 0.6, 0.7]
    history = [at(10 * n, 0, {0: value}) for n, value in enumerate(curve)]
    assert metrics.windowed_plasticity(history, window=2) == pytest.approx(0.4)
    assert metrics.windowed_plasticity(history, window=3) == pytest.approx(0.5)
    assert metrics.windowed_plasticity(history, window=5) == pytest.approx(0.6)


def test_windowed_metrics_are_means_over_tasks(history):
    # Falls between neighbours: 0.3 of task 0, 0.3 of task 1, none of task 2. Rises: 0.1, none, none.
    assert metrics.windowed_forgetting(history, window=2) == pytest.approx((0.3 + 0.3 + 0) / 3)
    assert metrics.windowed_plasticity(history, window=2) == pytest.approx(0.1 / 3)


def test_forgetting_is_how_far_earlier_tasks_ended_below_their_best(history):
    assert metrics.forgetting(history) == pytest.approx(((0.90 - 0.70) + (0.80 - 0.50)) / 2)


def test_forgetting_is_negative_where_earlier_tasks_end_above_their_best():
    assert metrics.forgetting(from_matrix([[0.5], [0.8, 0.9]])) == pytest.approx(-0.3)
    # Task 0 rose by 0.2 above its best, task 1 fell by 0.5.
    mixed = from_matrix([[0.6], [0.5, 0.9], [0.8, 0.4, 1.0]])
    assert metrics.forgetting(mixed) == pytest.approx((-0.2 + 0.5) / 2)


def test_a_task_measured_for_the_first_time_at_the_end_does_not_count_as_remembered():
    history = [at(10, 0, {0: 0.9}), at(20, 1, {0: 0.8}), at(30, 2, {0: 0.7, 1: 0.6, 2: 1.0})]
    assert metrics.forgetting(history) == pytest.approx(0.2)


def test_backward_transfer_compares_the_end_with_the_end_of_each_task(history):
    assert metrics.backward_transfer(history) == pytest.approx(((0.70 - 0.90) + (0.50 - 0.80)) / 2)


def test_backward_transfer_is_positive_where_later_tasks_help():
    assert metrics.backward_transfer(from_matrix([[0.5], [0.8, 0.9]])) == pytest.approx(0.3)


def test_forward_transfer_compares_each_task_before_it_began_with_chance(history):
    # Task 1 after task 0, task 2 after task 1, each less 1/10.
    assert metrics.forward_transfer(history) == pytest.approx(((0.20 - 0.1) + (0.30 - 0.1)) / 2)
    assert metrics.forward_transfer(history, chance=0.5) == pytest.approx(((0.20 - 0.5) + (0.30 - 0.5)) / 2)


def test_forward_transfer_subtracts_the_accuracies_at_initialisation_where_they_are_passed(history):
    assert metrics.forward_transfer(history, chance={1: 0.15, 2: 0.05}) == pytest.approx((0.05 + 0.25) / 2)
    assert metrics.forward_transfer(history, chance={2: 0.05}) == pytest.approx(0.25)
    assert math.isnan(metrics.forward_transfer(history, chance={}))


# Tasks that come back


@pytest.fixture
def recurring():
    """Tasks 0, 1, 0, 2."""
    return [
        at(10, 0, {0: 0.9}),
        at(20, 1, {0: 0.2, 1: 0.8}),
        at(30, 0, {0: 0.7, 1: 0.5}),
        at(40, 2, {0: 0.6, 1: 0.4, 2: 1.0}),
    ]


def test_a_task_that_comes_back_ended_when_it_first_ended(recurring):
    assert first_ends(recurring) == {0: 1, 1: 2}
    assert metrics.min_accuracy(recurring) == pytest.approx((0.2 + 0.4) / 2)
    assert metrics.backward_transfer(recurring) == pytest.approx(((0.6 - 0.9) + (0.4 - 0.8)) / 2)


def test_a_task_that_is_back_is_the_current_one(recurring):
    while_back = recurring[:3]
    assert metrics.min_accuracy(while_back) == 0.5
    assert metrics.worst_case_accuracy(while_back) == pytest.approx(0.7 / 2 + 0.5 / 2)
    assert metrics.forgetting(while_back) == pytest.approx(0.8 - 0.5)


def test_tasks_may_be_numbered_in_any_order():
    history = [at(10, 3, {3: 0.9}), at(20, 1, {3: 0.5, 1: 0.3}), at(30, 1, {3: 0.6, 1: 0.8})]
    assert first_ends(history) == {3: 1}
    assert metrics.worst_case_accuracy(history) == pytest.approx(0.8 / 2 + 0.5 / 2)


# Few evaluations


def test_one_evaluation_at_the_end_is_a_history():
    history = from_matrix(R, classes=10)[-1:]
    mean = (0.70 + 0.50 + 0.95) / 3
    assert metrics.accuracy(history) == pytest.approx(mean)
    assert metrics.anytime_accuracy(history) == pytest.approx(mean)
    assert metrics.area_under_accuracy(history) == pytest.approx(mean)
    assert metrics.min_accuracy(history) == pytest.approx((0.70 + 0.50) / 2)
    assert metrics.worst_case_accuracy(history) == pytest.approx(mean)
    assert math.isnan(metrics.forgetting(history))
    assert metrics.windowed_forgetting(history) == metrics.windowed_plasticity(history) == 0
    assert math.isnan(metrics.backward_transfer(history))
    assert math.isnan(metrics.forward_transfer(history))


def test_before_any_task_has_ended_the_worst_case_is_the_accuracy():
    first = from_matrix(R)[:1]
    assert metrics.worst_case_accuracy(first) == 0.90
    assert math.isnan(metrics.min_accuracy(first))
    assert metrics.forgetting(first) == 0


def test_an_iid_stream_has_one_task_that_never_ends_and_concepts_all_the_same():
    history = [at(10, 0, {0: 0.5, 1: 0.3}), at(20, 0, {0: 0.9, 1: 0.7})]
    assert first_ends(history) == {}
    assert metrics.accuracy(history) == metrics.worst_case_accuracy(history) == pytest.approx(0.8)


def test_forward_transfer_is_unknown_where_the_evaluator_looks_at_tasks_seen_alone():
    assert math.isnan(metrics.forward_transfer(from_matrix([[0.9], [0.7, 0.8]], classes=4)))


def test_where_the_current_task_is_not_measured_the_worst_case_is_min_accuracy():
    history = [at(10, 0, {0: 0.9}), at(20, 1, {0: 0.4}), at(30, 1, {0: 0.5})]
    assert metrics.worst_case_accuracy(history) == pytest.approx(0.4)


def test_where_only_the_current_task_is_measured_the_worst_case_is_its_accuracy():
    history = [at(10, 0, {0: 0.9}, seen=(0,)), at(20, 1, {1: 0.4}, seen=(0, 1))]
    assert metrics.worst_case_accuracy(history) == 0.4
    assert math.isnan(metrics.backward_transfer(history))


def test_moments_at_which_no_task_was_seen_count_for_nothing():
    nothing = at(0, 0, {0: 0.1}, seen=())
    history = [nothing, at(10, 0, {0: 0.6}), at(20, 0, {0: 0.8})]
    assert math.isnan(nothing.accuracy)
    assert metrics.anytime_accuracy(history) == pytest.approx(0.7)
    assert metrics.area_under_accuracy(history) == pytest.approx(0.7)
    assert math.isnan(metrics.anytime_accuracy([nothing]))
    assert math.isnan(metrics.area_under_accuracy([nothing]))
    assert math.isnan(metrics.windowed_forgetting([nothing]))


@pytest.mark.parametrize("metric", OF_A_HISTORY, ids=lambda metric: metric.__name__)
def test_an_empty_history_is_an_error_that_says_so(metric):
    with pytest.raises(ValueError, match="the history is empty"):
        metric([])


def test_a_window_of_one_evaluation_is_an_error():
    with pytest.raises(ValueError, match="at least 2 evaluations, not 1"):
        metrics.windowed_forgetting(from_matrix(R), window=1)
    with pytest.raises(ValueError, match="at least 2 evaluations, not 2.5"):
        metrics.windowed_plasticity(from_matrix(R), window=2.5)


# Against slow loops


@st.composite
def histories(draw):
    """Runs of up to four tasks in any order, evaluated at some batches; some also on tasks not yet seen."""
    fraction = st.floats(0, 1)
    history, seen = [], []
    for number in range(draw(st.integers(1, 12))):
        task = draw(st.integers(0, 3))
        seen = list(dict.fromkeys([*seen, task]))
        accuracies = draw(st.dictionaries(st.sampled_from(seen), fraction))
        history.append(at(10 * (number + 1), task, accuracies, seen=tuple(seen)))
    return history


@settings(deadline=None)
@given(histories(), st.integers(2, 15))
def test_windowed_metrics_agree_with_a_loop_over_all_pairs(history, window):
    falls, rises = {}, {}
    for n, later in enumerate(history):
        for task, value in later.seen_accuracies.items():
            falls.setdefault(task, 0.0)
            rises.setdefault(task, 0.0)
            for earlier in history[max(0, n - window + 1) : n]:
                if task in earlier.seen_accuracies:
                    falls[task] = max(falls[task], earlier.accuracies[task] - value)
                    rises[task] = max(rises[task], value - earlier.accuracies[task])
    for metric, slow in ((metrics.windowed_forgetting, falls), (metrics.windowed_plasticity, rises)):
        expected = sum(slow.values()) / len(slow) if slow else math.nan
        assert metric(history, window) == pytest.approx(expected, nan_ok=True)


@settings(deadline=None)
@given(histories())
def test_min_accuracy_agrees_with_a_loop_over_evaluations_after_the_first_end(history):
    current = history[-1].task
    lowest = {}
    for task in {evaluation.task for evaluation in history} - {current}:
        begun = ended = False
        for evaluation in history:
            begun = begun or evaluation.task == task
            ended = ended or (begun and evaluation.task != task)
            if ended and task in evaluation.accuracies:
                lowest[task] = min(lowest.get(task, 1.0), evaluation.accuracies[task])
    expected = sum(lowest.values()) / len(lowest) if lowest else math.nan
    assert metrics.min_accuracy(history) == pytest.approx(expected, nan_ok=True)


@settings(deadline=None)
@given(histories(), st.floats(0, 1))
def test_looking_ahead_changes_no_metric_but_forward_transfer(history, zero_shot):
    ahead = [dataclasses.replace(e, accuracies={9: zero_shot, **e.accuracies}, seen=e.seen) for e in history]
    for metric in set(OF_A_HISTORY) - {metrics.forward_transfer, metrics.confusion}:
        assert metric(ahead) == pytest.approx(metric(history), nan_ok=True)


@settings(deadline=None)
@given(histories())
def test_forgetting_agrees_with_a_loop_over_evaluations_before_the_last(history):
    *before, last = history
    tasks = dict.fromkeys(e.task for e in history if e.task != last.task)
    best = {}
    for evaluation in before:
        for task, value in evaluation.accuracies.items():
            best[task] = max(best.get(task, 0.0), value)
    losses = [best[i] - last.accuracies[i] for i in tasks if i in best and i in last.accuracies]
    expected = 0.0 if not tasks else sum(losses) / len(losses) if losses else math.nan
    assert metrics.forgetting(history) == pytest.approx(expected, nan_ok=True)


@settings(deadline=None)
@given(histories())
def test_accuracies_are_fractions(history):
    for metric in (metrics.anytime_accuracy, metrics.area_under_accuracy, metrics.worst_case_accuracy):
        assert math.isnan(metric(history)) or -1e-9 <= metric(history) <= 1 + 1e-9
    assert not abs(metrics.forgetting(history)) > 1 + 1e-9


# The page


def test_the_docs_define_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    public = [*metrics.__all__, *prequential.__all__, *representation.__all__]
    measures = [name for name in public if name.islower() and name != "project"]
    assert [name for name in measures if f"`{name}(" not in page] == []
