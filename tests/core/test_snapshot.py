"""Learning and predicting at once: snapshots in other threads are consistent, and never wait for learning."""

import copy
import copyreg
import pickle
import threading
import time

import pytest
import torch
from small_learners import batches, every_learner, make, same_state, taught, teach


def content(learner):
    """Everything that a prediction depends on."""
    weights = [part.clone() for part in learner.network.state_dict().values()]
    return weights + list(getattr(learner, "prototypes", {}).values())


@every_learner
def test_a_snapshot_does_not_change_while_the_learner_continues(name):
    learner = taught(name)
    learner.end_horizon()
    snapshot = learner.snapshot()
    x = torch.randn(40, 6)
    labels, rows, classes = snapshot.predict(x), snapshot.predict_proba(x), snapshot.classes
    prototypes = {label: vector.clone() for label, vector in snapshot.prototypes.items()}
    assert labels == learner.predict(x)
    for i, (more, y) in enumerate(batches(labels=("d", "e", "f"), seed=4)):
        teach(learner, more, y, 2 + i // 4)
    learner.end_horizon()
    if learner.can_forget:
        learner.forget("a")
    assert snapshot.predict(x) == labels
    assert (snapshot.predict_proba(x) == rows).all()
    assert (snapshot.classes, snapshot.batches) == (classes, 6)
    assert all(torch.equal(vector, prototypes[label]) for label, vector in snapshot.prototypes.items())


@pytest.mark.parametrize("name", ["cope", "reservoir", "icarl"])
def test_snapshots_taken_from_other_threads_while_learning_are_consistent(name):
    """Each must be, to the bit, the learner as it was between two batches."""
    torch.set_num_threads(1)
    learner = make(name, hidden=32, iterations=3)
    course = [(x, y, i // 10) for i, (x, y) in enumerate(batches(count=60))]
    states = {}
    teach(learner, *course[0])
    states[1] = content(learner)
    taken, errors, over = [], [], threading.Event()

    def ask():
        try:
            x = torch.randn(20, 6)
            while not over.is_set():
                snapshot = learner.snapshot()
                answers = snapshot.predict(x)
                assert snapshot.predict(x) == answers
                taken.append(snapshot)
        except Exception as error:  # a thread's own would be lost
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for x, y, t in course[1:]:
        teach(learner, x, y, t)
        states[learner.batches] = content(learner)
        time.sleep(0.0005)  # let others have a turn between two batches too
    over.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert len({snapshot.batches for snapshot in taken}) > 5
    for snapshot in taken:
        now = content(snapshot._frozen)
        assert all(torch.equal(a, b) for a, b in zip(now, states[snapshot.batches], strict=True))


def test_threads_that_use_a_snapshot_get_the_same_predictions_and_do_not_affect_learning():
    torch.set_num_threads(1)
    alone, watched = make("cope"), make("cope")
    course = list(batches(count=80))
    for learner in (alone, watched):
        teach(learner, *course[0])
    snapshot, x, wrong, over = watched.snapshot(), torch.randn(50, 6), [], threading.Event()
    expected = snapshot.predict(x)

    def ask():
        while not over.is_set():
            if snapshot.predict(x) != expected:
                wrong.append(True)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for learner in (alone, watched):
        for more, y in course[1:]:
            teach(learner, more, y)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert same_state(alone.state_dict(), watched.state_dict())


def test_a_prediction_does_not_wait_for_a_batch_in_progress():
    learner = taught("cope")
    snapshot = learner.snapshot()
    answers = []
    learner.lock.acquire()  # as `observe` holds it, here for as long as it takes
    try:
        thread = threading.Thread(target=lambda: answers.extend(snapshot.predict(torch.randn(3, 6))))
        thread.start()
        thread.join(timeout=20)
        assert len(answers) == 3
    finally:
        learner.lock.release()


@every_learner
def test_learners_and_snapshots_can_be_copied_and_pickled(name):
    learner = taught(name)
    x = torch.randn(9, 6)
    for twin in (copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert same_state(learner.state_dict(), twin.state_dict())
        assert twin.lock is not learner.lock
    assert pickle.loads(pickle.dumps(learner.snapshot())).predict(x) == learner.predict(x)


def copied(generator):
    """Stands in for a copy of a generator, whose memory torch does not free."""
    raise AssertionError("a generator was copied")


@every_learner
def test_no_generator_is_copied(name, monkeypatch):
    learner = taught(name)
    monkeypatch.setitem(copyreg.dispatch_table, torch.Generator, copied)
    learner.snapshot()
