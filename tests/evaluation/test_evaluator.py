"""The evaluator: when it measures, on which samples, and what it records."""

import numpy as np
import pytest
import torch

from everlearn import CoPE, Evaluator, Finetune, run, stream

ENDS = [29, 58, 88, 117, 146]  # of the tasks of split-digits, in batches


class Given(Finetune):
    """Uses a sample as the scores of the classes, in the order first seen, so that its predictions are known."""

    name = "given"

    def scores(self, x):
        return x[:, : len(self.labels)]


def given(*classes):
    student = Given("mlp", hidden=2, device="cpu", missing_labels="class")
    for label in classes:
        student.observe(torch.zeros(1, 4), [label])
    return student


def digits(scenario="split", **options):
    return stream("split-digits", scenario=scenario, **options)


def history(source, evaluator, **options):
    return run(Finetune("mlp", hidden=16, device="cpu"), source, evaluator, **options).history


# By hand: classes a, b of task 0 and c, d of task 1, and the scores of a, b, c, d for each sample.
TASKS = [
    (torch.tensor([[5.0, 1, 0, 0], [3, 0, 4, 0], [0, 2, 0, 9], [4, 3, 0, 0]]), ["a", "a", "b", "b"]),
    (torch.tensor([[0.0, 0, 5, 1], [7, 0, 2, 3]]), ["c", "c"]),
]


def test_accuracy_and_confusion_by_hand():
    seen = Evaluator().evaluate(given("a", "b", "c", "d"), TASKS)
    # Task 0: a, then c for a, d for b, a for b. Task 1: c, then a for c.
    assert seen.accuracies == {0: 0.25, 1: 0.5}
    assert seen.labels == ("a", "b", "c", "d")
    assert seen.confusion.tolist() == [[1, 0, 1, 0], [1, 0, 0, 1], [1, 0, 1, 0], [0, 0, 0, 0]]


def test_predictions_confined_to_the_classes_of_each_task_by_hand():
    seen = Evaluator(confined=True).evaluate(given("a", "b", "c", "d"), TASKS)
    # Task 0: a, a, b, and still a for b. Task 1 has held-out samples of c alone: c, c.
    assert seen.accuracies == {0: 0.75, 1: 1.0}
    assert seen.confusion.tolist() == [[2, 0, 0, 0], [1, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]


def test_confined_predictions_know_no_class_that_was_not_seen():
    seen = Evaluator(confined=True, horizon="all").evaluate(given("a", "c"), TASKS)
    # Scores are of a and c now. Task 0 is confined to a, of which it has two; task 1 to c.
    assert seen.accuracies == {0: 0.5, 1: 1.0}


def test_labels_never_seen_are_left_out_where_the_horizon_is_what_was_seen():
    seen = Evaluator().evaluate(given("a"), TASKS)
    assert seen.accuracies == {0: 1.0}
    assert seen.confusion.sum() == 2


def test_labels_never_seen_count_as_mistakes_where_the_horizon_is_everything():
    everything = Evaluator(horizon="all").evaluate(given("a"), TASKS)
    assert everything.accuracies == {0: 0.5, 1: 0.0}
    assert everything.seen == (0,)
    assert everything.accuracy == 0.5
    assert everything.confusion[:, 0].tolist() == [2, 2, 2]  # a, b and c, all taken for a


def test_labels_that_no_held_out_sample_has_are_in_the_confusion_too():
    seen = Evaluator().evaluate(given("a", "b", "c", "d", "never tested"), TASKS)
    assert seen.labels == ("a", "b", "c", "d", "never tested")


def test_held_out_samples_may_be_tensors_arrays_or_lists():
    student = given("a", "b", "c")
    wanted = Evaluator().evaluate(student, TASKS).accuracies
    assert Evaluator().evaluate(student, [(x.numpy(), np.array(y)) for x, y in TASKS]).accuracies == wanted
    assert Evaluator().evaluate(student, [(x.tolist(), tuple(y)) for x, y in TASKS]).accuracies == wanted


def test_labels_of_several_kinds_have_an_order():
    x = torch.zeros(5, 4)
    seen = Evaluator().evaluate(given(2, "b", 1.5, None), [(x, [2, "b", 1.5, None, ("x", 1)])])
    assert seen.labels == (1.5, 2, None, "b", ("x", 1))


# On demand


def test_on_demand_a_learner_and_its_snapshot_look_the_same_and_stay_as_they_are():
    source, student = digits(), CoPE(hidden=16, memory_size=20, device="cpu")
    for x, y, t in list(source)[:40]:
        student.observe(x, y, t)
    before = student.state_dict()
    one, other = (
        Evaluator(representation=True).evaluate(who, source.tests) for who in (student, student.snapshot())
    )
    assert (one.batches, one.samples) == (other.batches, other.samples) == (40, student.samples)
    assert one.accuracies == other.accuracies
    assert one.prototype_truth == other.prototype_truth
    assert (one.confusion == other.confusion).all()
    after = student.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before if name != "meta")


def test_on_demand_the_evaluator_s_own_held_out_samples_are_the_default():
    student = given("a", "b", "c", "d")
    assert Evaluator(tests=TASKS).evaluate(student).accuracies == {0: 0.25, 1: 0.5}
    assert Evaluator(tests=TASKS[0]).evaluate(student).accuracies == {0: 0.25}
    with pytest.raises(ValueError, match="nothing to evaluate on: pass tests here or to the Evaluator"):
        Evaluator().evaluate(student)


def test_before_anything_is_seen_there_is_nothing_to_measure():
    assert Evaluator().evaluate(given(), TASKS).accuracies == {}


@pytest.mark.parametrize("kind", [CoPE, Finetune])
def test_a_snapshot_stays_as_it_was_while_the_learner_goes_on(kind):
    source = digits()
    batches = list(source)
    student = kind("mlp", hidden=16, device="cpu")
    for x, y, t in batches[:35]:
        student.observe(x, y, t)
    snapshot = student.snapshot()
    x, _ = source.tests[0]
    before = snapshot.predict(x), snapshot.predict_proba(x), snapshot.embed(x), snapshot.exemplars()
    prototypes, classes = snapshot.prototypes, list(student.classes)
    for x_, y, t in batches[35:100]:
        student.observe(x_, y, t)
    assert (snapshot.batches, snapshot.classes) == (35, classes)
    assert len(student.classes) > len(classes)
    assert snapshot.predict(x) == before[0]
    assert np.array_equal(snapshot.predict_proba(x), before[1])
    assert torch.equal(snapshot.embed(x), before[2])
    assert snapshot.exemplars() == before[3]
    assert all(torch.equal(vector, snapshot.prototypes[label]) for label, vector in prototypes.items())
    assert not torch.equal(student.embed(x), before[2])


# When


def test_by_default_it_evaluations_at_each_transition_and_at_the_end():
    seen = history(digits(), Evaluator())
    assert [(e.batches, e.task) for e in seen] == list(zip(ENDS, range(5), strict=True))
    assert [e.seen for e in seen] == [(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4)]


def test_every_rho_batches_and_at_the_end():
    seen = history(digits(), Evaluator(every=60, transitions=False))
    assert [(e.batches, e.task) for e in seen] == [(60, 2), (120, 4), (146, 4)]


def test_where_rho_and_a_transition_coincide_it_evaluations_once():
    assert [e.batches for e in history(digits(), Evaluator(every=58))] == [29, 58, 88, 116, 117, 146]


def test_at_the_end_alone():
    assert [e.batches for e in history(digits(), Evaluator(transitions=False))] == [146]


def test_a_stream_without_tasks_has_no_transitions():
    assert len(history(digits("abrupt-drift"), Evaluator())) == 1


def test_a_task_that_comes_back_is_a_transition_too():
    assert [e.task for e in history(digits("recurring"), Evaluator())] == [0, 1, 2, 3, 4] * 2


@pytest.mark.parametrize("every", [0, -1])
def test_a_rho_of_no_batches_is_refused(every):
    with pytest.raises(ValueError, match=f"every is a number of batches of at least 1, or None, not {every}"):
        Evaluator(every=every)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"horizon": "al"}, "horizon is one of seen, all, current, not 'al'"),
        ({"concepts": "dynamic"}, "concepts is one of static, evolving, not 'dynamic'"),
        ({"tests": [(1, 2, 3)]}, "tests must be held-out samples and labels"),
        ({"metrics": [len]}, "metrics is a dict of functions by names, not"),
    ],
)
def test_a_setting_that_is_none_is_refused(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        Evaluator(**words)


# On which samples: concepts that do not change


def by_batch(source, evaluator, **options):
    """Of each evaluation: after which batch, which concepts were measured, and which count as seen."""
    return [(e.batches, tuple(e.accuracies), e.seen) for e in history(source, evaluator, **options)]


def test_on_tasks_seen_is_what_has_come_and_all_is_zero_shot_too():
    assert by_batch(digits(), Evaluator(every=40, transitions=False), samples=800) == [
        (40, (0, 1), (0, 1)),
        (80, (0, 1, 2), (0, 1, 2)),
        (81, (0, 1, 2), (0, 1, 2)),
    ]
    zero_shot = history(digits(), Evaluator(every=40, horizon="all"), samples=400)[-1]
    assert list(zero_shot.accuracies) == [0, 1, 2, 3, 4]
    assert zero_shot.seen == (0, 1)
    assert [zero_shot.accuracies[i] for i in (2, 3, 4)] == [0, 0, 0]


def test_current_is_the_task_being_learnt_and_at_a_transition_the_one_that_ends():
    found = by_batch(digits(), Evaluator(every=40, horizon="current"))
    assert found == [
        (29, (0,), (0,)),
        (40, (1,), (1,)),
        (58, (1,), (1,)),
        (80, (2,), (2,)),
        (88, (2,), (2,)),
        (117, (3,), (3,)),
        (120, (4,), (4,)),
        (146, (4,), (4,)),
    ]


@pytest.mark.parametrize("concepts", ["static", "evolving"])
def test_on_domains_with_the_same_classes_only_domains_that_came_are_seen(concepts):
    def evaluations(horizon):
        evaluator = Evaluator(horizon=horizon, concepts=concepts)
        return [found[1:] for found in by_batch(digits("permuted", amount=3), evaluator)]

    assert evaluations("seen") == [((0,), (0,)), ((0, 1), (0, 1)), ((0, 1, 2), (0, 1, 2))]
    assert evaluations("all") == [((0, 1, 2), (0,)), ((0, 1, 2), (0, 1)), ((0, 1, 2), (0, 1, 2))]
    assert evaluations("current") == [((0,), (0,)), ((1,), (1,)), ((2,), (2,))]


def test_on_a_drift_static_concepts_are_before_and_after():
    def evaluations(horizon):
        return by_batch(digits("abrupt-drift"), Evaluator(every=73, horizon=horizon))

    # The stream changes with sample 722, in batch 73.
    assert by_batch(digits("abrupt-drift"), Evaluator(every=72, transitions=False)) == [
        (72, (0,), (0,)),
        (144, (0, 1), (0, 1)),
        (145, (0, 1), (0, 1)),
    ]
    assert evaluations("seen")[0] == (73, (0, 1), (0, 1))
    assert evaluations("current") == [(73, (1,), (1,)), (145, (1,), (1,))]


def test_on_blurry_tasks_both_are_current_while_they_mix():
    source = digits("blurry", amount=0.5)
    evaluations = by_batch(source, Evaluator(every=1, horizon="current", transitions=False))
    assert {concepts for _, concepts, _ in evaluations} >= {(0,), (0, 1), (1,), (1, 2)}
    for batches, concepts, _ in evaluations[:28]:
        assert set(concepts) <= set(source.current(10 * batches))


# On which samples: concepts that evolve


@pytest.mark.parametrize("scenario", ["abrupt-drift", "gradual-drift"])
def test_evolving_concepts_are_the_distribution_of_the_moment(scenario):
    source = digits(scenario)
    student = Finetune("mlp", hidden=16, device="cpu")
    wanted = []

    class Watched(Finetune):
        name = "watched"

        def observe(self, x, y, t=None):
            super().observe(x, y, t)
            if self.batches % 30 == 0:
                wanted.append(Evaluator().evaluate(self, source.tests_at(self.samples)).accuracies)

    student = Watched("mlp", hidden=16, device="cpu")
    found = run(student, source, Evaluator(every=30, concepts="evolving")).history
    assert [e.accuracies for e in found[:-1]] == wanted
    assert all(e.seen == (0,) for e in found)
    assert found[-1].accuracies == Evaluator().evaluate(student, [source.tests[1]]).accuracies


def test_evolving_falls_with_the_drift_where_static_remembers():
    evolving = history(digits("abrupt-drift"), Evaluator(every=1, concepts="evolving"))
    static = history(digits("abrupt-drift"), Evaluator(every=1))
    assert evolving[71].accuracies[0] == static[71].accuracies[0]
    assert evolving[72].accuracies[0] == static[72].accuracies[1]
    assert evolving[72].accuracy < evolving[71].accuracy


def test_tests_of_ones_own_are_concepts_of_their_own():
    held_out = digits().tests[0]
    found = by_batch(digits(), Evaluator(tests=held_out))
    assert [concepts for _, concepts, _ in found] == [(0,)] * 5
