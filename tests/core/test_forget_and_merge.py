"""Forgetting a class, merging two learners, and rejecting unknown samples, for every learner that can."""

import numpy as np
import pytest
import torch
from small_learners import FORGETFUL, NAMES, batches, every_learner, make, same_state, taught, teach

from everlearn import UNKNOWN, Evaluator, learner, load, run, stream
from everlearn.core.learner import NotLearntYet
from everlearn.core.prediction import scored
from everlearn.core.rejection import known_region
from everlearn.learners import registry

WITH_MEMORY = [name for name, kind in registry().items() if hasattr(kind.Settings(), "memory_size")]
with_memory = pytest.mark.parametrize("name", WITH_MEMORY)
who_can_forget = pytest.mark.parametrize("name", FORGETFUL)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(FORGETFUL)))
def test_a_learner_without_separate_class_memory_refuses_to_forget(name):
    learner = taught(name)
    before = learner.state_dict()
    with pytest.raises(ValueError, match="can't forget"):
        learner.forget("b")
    assert same_state(before, learner.state_dict())


@who_can_forget
def test_a_forgotten_class_is_removed_from_classes_exemplars_and_predictions(name):
    learner = taught(name)
    learner.end_horizon()
    learner.forget("b")
    assert learner.classes == ["a", "c"]
    assert "b" not in learner.exemplars()
    assert "b" not in getattr(learner, "prototypes", {})
    assert set(learner.predict(torch.randn(40, 6))) <= {"a", "c"}
    assert learner.predict_proba(torch.randn(4, 6)).shape == (4, 2)
    if learner.memory is not None:
        assert "b" not in learner.memory.samples()[1]


@who_can_forget
def test_forgetting_a_class_does_not_change_the_scores_of_the_others(name):
    learner = taught(name, labels=("a", "b", "c", "d"))
    x = torch.randn(30, 6)
    before = scored(learner, x)
    learner.forget("b")
    after = scored(learner, x)
    # icarl's distances are between logits, of which one is gone; gdumb learns again, without the class; knn has
    # other neighbours
    if name in ("icarl", "gdumb", "knn"):
        return
    torch.testing.assert_close(after, before[:, [0, 2, 3]])


@who_can_forget
def test_a_forgotten_class_can_be_learnt_again(name):
    learner = taught(name)
    learner.forget("a")
    for i, (x, y) in enumerate(batches(seed=3)):
        teach(learner, x, y, i // 2)
    assert sorted(learner.classes) == ["a", "b", "c"]
    assert learner.classes[-1] == "a"
    assert set(learner.predict(torch.randn(40, 6))) <= {"a", "b", "c"}


@who_can_forget
@pytest.mark.parametrize("gone", [["b"], ["c", "a"], ["a", "b", "c"]])
def test_a_run_resumed_after_a_class_was_forgotten_is_bit_identical(name, gone, tmp_path):
    first = taught(name)
    first.end_horizon()
    for label in gone:
        first.forget(label)
    first.save(tmp_path / "state")
    second = load(tmp_path / "state", device="cpu")
    assert same_state(first.state_dict(), second.state_dict())
    for i, (x, y) in enumerate(batches(seed=3)):
        teach(first, x, y, i // 2)
        teach(second, x, y, i // 2)
    assert same_state(first.state_dict(), second.state_dict())
    assert first.footprint() == second.footprint()


@who_can_forget
def test_capacity_that_had_doubled_shrinks_after_forget_and_resumes(name, tmp_path):
    learner = make(name, memory_size=100)
    for start in range(0, 20, 4):
        teach(learner, torch.randn(4, 6), list(range(start, start + 4)))
    for label in range(0, 10):
        learner.forget(label)
    assert learner.classes == list(range(10, 20))
    learner.save(tmp_path / "state")
    assert same_state(learner.state_dict(), load(tmp_path / "state", device="cpu").state_dict())


@who_can_forget
def test_after_forgetting_the_last_class_predict_raises_not_learnt_yet(name):
    learner = taught(name, labels=("a",))
    learner.forget("a")
    with pytest.raises(NotLearntYet):
        learner.predict(torch.randn(2, 6))
    teach(learner, torch.randn(3, 6), ["x", "y", "x"])
    assert learner.classes == ["x", "y"]


@every_learner
def test_a_label_that_was_never_seen_can_not_be_forgotten(name):
    learner = taught(name)
    before = learner.state_dict()
    with pytest.raises(ValueError, match="forget got the label 'z', which was never observed"):
        learner.forget("z")
    assert same_state(before, learner.state_dict())


# Merging.


def two(name):
    first, second = taught(name), make(name, seed=1)
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=7)):
        teach(second, x, y, i // 2)
    for each in (first, second):
        each.end_horizon()
    return first, second


def _body(learner):
    """The network without the last layer, which grows with the classes."""
    return learner.network.body if learner.has_head else learner.network


@with_memory
def test_merged_learners_know_the_classes_and_exemplars_of_both(name):
    first, second = two(name)
    theirs = second.state_dict()
    weights = [part.clone() for part in _body(first).parameters()]
    first.merge(second)
    assert first.classes == ["a", "b", "c", "d"]
    assert set(second.exemplars()) >= {"c", "d"} and first.exemplars()["d"] > 0
    if name != "gem":  # which keeps the most recent of each task, of whatever class
        assert all(count > 0 for count in first.exemplars().values())
    assert (first.batches, first.samples) == (12, 60)
    assert same_state(theirs, second.state_dict())
    for before, after in zip(weights, _body(first).parameters(), strict=True):
        assert torch.equal(before, after)
    teach(first, torch.randn(3, 6), ["d", "e", "a"], 0)
    assert set(first.predict(torch.randn(9, 6))) <= set("abcde")


def test_merged_prototypes_are_the_means_of_the_exemplars():
    first, second = two("cope")
    first.merge(second)
    x, labels = first.memory.samples()
    features = first.embed(x)
    for label, prototype in first.prototypes.items():
        mean = features[[own == label for own in labels]].mean(0)
        torch.testing.assert_close(prototype, mean / mean.norm())  # of rows, which are renormalised


@with_memory
def test_an_invalid_merge_raises_an_error_and_changes_neither_learner(name):
    learner = taught(name)
    before = learner.state_dict()
    other = next(each for each in WITH_MEMORY if each != name)
    wider = make(name)
    teach(wider, torch.randn(3, 7), ["a", "b", "a"])
    many = make(name, seed=1)
    for start in range(0, 30, 10):
        teach(many, torch.randn(10, 6), list(range(start, start + 10)))
    slower = make(name, learning_rate=0.001)
    teach(slower, torch.randn(3, 6), ["a", "b", "a"])
    bad = {
        "takes another": taught(other),
        "not itself": learner,
        "with the same settings": slower,
        "that have both observed a batch": make(name),
        r"of the same samples: \[6\] .* here, \[7\]": wider,
        "no room for an exemplar of each of 33 classes": many,
    }
    for sentence, each in bad.items():
        with pytest.raises(ValueError, match=sentence):
            learner.merge(each)
        assert same_state(before, learner.state_dict())


def test_a_learner_without_memory_can_not_be_merged():
    with pytest.raises(ValueError, match="finetune has no memory, so there is nothing to merge"):
        taught("finetune").merge(taught("finetune"))


def test_gem_refuses_a_merge_with_more_tasks_than_its_setting():
    first, second = (make("gem", tasks=2) for _ in range(2))
    for each, tasks in ((first, (0, 1)), (second, (1, 2))):
        for t in tasks:
            each.observe(torch.randn(4, 6), ["a", "b", "a", "b"], t)
    with pytest.raises(ValueError, match=r"3 tasks, \[0, 1, 2\], but it was created with tasks=2"):
        first.merge(second)


# Rejecting unknown samples.


def blobs(centres, count=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = [label for label in centres for _ in range(count)]
    directions = torch.eye(6)[[centres[label] for label in y]]
    return 5 * directions + torch.randn(len(y), 6, generator=generator), y


def test_digits_of_unseen_classes_are_mostly_rejected():
    source = stream("split-digits")
    cope = learner("cope", source, unknown=0.05, device="cpu")
    for x, y, t in source:
        if t < 3:
            cope.observe(x, y)
    withheld = [np.mean([answer is UNKNOWN for answer in cope.predict(x)]) for x, _ in source.tests]
    assert np.mean(withheld[:3]) < 0.2
    assert np.mean(withheld[3:]) > 0.8


@pytest.mark.parametrize("name", [name for name in WITH_MEMORY if name != "icarl"])
def test_every_learner_with_a_sampled_memory_can_answer_unknown(name):
    learner = make(name, unknown=0.05, memory_size=60)
    x, y = blobs({"a": 0, "b": 1})
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    for part in order.split(10):
        teach(learner, x[part], [y[i] for i in part])
    own = learner.predict(blobs({"a": 0, "b": 1}, seed=1)[0])
    assert 0 < np.mean([answer is UNKNOWN for answer in own]) < 0.25


def lost_among_others(learner):
    """How many exemplars would be rejected if each were compared with all others."""
    known = known_region(learner)
    similar = known.exemplars @ known.exemplars.T
    similar.fill_diagonal_(-1)
    return int((similar.topk(5, 1).values.mean(1) < known.least).sum())


def test_the_share_of_rejected_exemplars_equals_the_setting_if_each_is_compared_with_all_others():
    learner = make("cope", unknown=0.1, memory_size=60)
    x, y = blobs({"a": 0, "b": 1, "c": 2})
    learner.observe(x, y)
    kept, _ = learner.memory.samples()
    assert lost_among_others(learner) == 6
    answers = learner.predict(kept)  # each is among its own nearest exemplars
    assert 0 < sum(answer is UNKNOWN for answer in answers) <= 6
    assert learner.snapshot().predict(kept) == answers
    before = learner.predict_proba(kept)
    assert before.shape == (60, 3)


def test_the_threshold_follows_the_network():
    learner = make("cope", unknown=0.1, memory_size=60)
    x, y = blobs({"a": 0, "b": 1, "c": 2})
    for _ in range(3):
        learner.observe(x, y)
        assert lost_among_others(learner) == 6


def test_without_exemplars_nothing_is_rejected():
    learner = make("gem", unknown=0.5, memory_size=2, tasks=1)
    learner.observe(torch.randn(3, 6), ["a", "b", "b"], 0)
    learner.forget("b")
    assert learner.exemplars() == {"a": 0}
    assert learner.predict(torch.randn(5, 6)) == ["a"] * 5


def test_a_learner_without_memory_can_not_calibrate_unknown():
    with pytest.raises(ValueError, match="Finetune has no memory to calibrate unknown on"):
        make("finetune", unknown=0.1)
    with pytest.raises(ValueError, match="herded exemplars are too typical"):
        make("icarl", unknown=0.1)
    with pytest.raises(ValueError, match="unknown must be None, or at least 0 and below 1, not 1.5"):
        make("cope", unknown=1.5)


def test_unknown_can_not_be_observed_as_a_label_and_can_be_pickled():
    import pickle

    with pytest.raises(ValueError, match="a label is a str, int.* not UNKNOWN"):
        make("cope").observe(torch.randn(1, 6), [UNKNOWN])
    assert pickle.loads(pickle.dumps(UNKNOWN)) is UNKNOWN


def test_an_evaluator_counts_unknown_as_wrong_in_a_column_of_its_own():
    source = stream("split-digits")
    result = run(learner("cope", source, unknown=0.2), source, Evaluator(transitions=False))
    labels = result.history[-1].labels
    assert labels[-1] is UNKNOWN
    assert result.confusion[:, -1].sum() > 0
    assert result.confusion[-1].sum() == 0
