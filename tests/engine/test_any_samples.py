"""Runs over every kind of samples: held-out ones with classes not seen yet, horizons, and samples without a label."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from everlearn import Clock, CoPE, Evaluator, as_stream, run
from everlearn.streams.horizon import Horizon

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], 40)
X = (RNG.normal(size=(120, 3)) + 4 * np.eye(3)[Y]).astype(np.float32)
NAMES = ["a", "b", "c"]
WORDS = {0: "apple pear", 1: "train bus", 2: "red blue"}

KINDS = {
    "array": X,
    "big-endian": X.astype(">f4"),
    "tensor": torch.tensor(X),
    "lists": X.tolist(),
    "pandas": pd.DataFrame(X, columns=NAMES),
    "polars": pl.DataFrame(X, schema=NAMES),
    "dicts": [dict(zip(NAMES, row, strict=True)) for row in X.tolist()],
    "sparse": sparse.csr_matrix(X),
    "sparse, by place": sparse.coo_matrix(X),
}


def letters(texts):
    """How often some letters are in a text."""
    return [[float(text.count(letter)) for letter in "aeipru"] for text in texts]


def small(**settings):
    return CoPE(
        "mlp", **{"hidden": 16, "memory_size": 30, "learning_rate": 0.05, "device": "cpu", **settings}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_one_held_out_set_serves_while_classes_are_still_to_come(kind):
    x = KINDS[kind]
    result = run(small(), as_stream((x, Y), tests=(x, Y), batch_size=5), Evaluator(every=4))
    plain = run(small(), as_stream((X, Y), tests=(X, Y), batch_size=5), Evaluator(every=4))
    assert result.accuracy == plain.accuracy > 0.8
    assert [each.accuracies for each in result.history] == [each.accuracies for each in plain.history]


@pytest.mark.parametrize("kind", KINDS)
def test_a_horizon_revisits_every_kind_of_samples(kind):
    horizon = Horizon("window", samples=20, epochs=2)
    learner, plain = small(), small()
    run(learner, as_stream((KINDS[kind], Y)), horizon=horizon)
    run(plain, as_stream((X, Y)), horizon=horizon)
    assert learner.predict(KINDS[kind]) == plain.predict(X)
    assert torch.equal(learner.embed(KINDS[kind]), plain.embed(X))


@pytest.mark.parametrize("as_type", [list, lambda texts: np.array(texts, object), pd.Series])
def test_texts_are_held_out_and_revisited(as_type):
    texts = as_type([WORDS[y] for y in Y])
    learner = CoPE(encoder=letters, memory_size=30, device="cpu")
    horizon = Horizon("window", samples=20, epochs=2)
    result = run(learner, as_stream((texts, Y), tests=(texts, Y)), Evaluator(every=3), horizon=horizon)
    assert result.accuracy == 1.0


def test_a_pair_of_lists_is_samples_and_labels_and_two_batches_are_batches():
    rows, labels = [[1.0, 2.0], [3.0, 4.0]], ["a", "b"]
    assert [tuple(batch)[:2] for batch in as_stream((rows, labels))] == [(rows, labels)]
    batches = [(rows, labels), (rows, ["b", "a"])]
    assert [tuple(batch)[:2] for batch in as_stream(batches)] == batches
    assert as_stream((rows, labels), tests=(rows, labels)).tests == ((rows, labels),)
    assert as_stream(batches, tests=batches).tests == tuple(batches)
    tuples = [("left", 1), ("right", 2)]
    assert as_stream(batches, tests=[(rows, tuples)]).tests == ((rows, tuples),)


@pytest.mark.parametrize("tests", [[1, 2], (1, 2), [("a", 3)], "ab", [([1.0], [1, 2])]])
def test_tests_that_are_no_samples_and_labels_are_refused_in_one_sentence(tests):
    with pytest.raises(ValueError, match="tests must be held-out samples and labels"):
        as_stream((X, Y), tests=tests)


def test_batches_that_are_dicts_are_told_how_to_become_tuples():
    batches = [{"image": X[:5], "label": Y[:5]}]
    with pytest.raises(
        RuntimeError, match=r"\(\(batch\['image'\], batch\['label'\]\) for batch in batches\)"
    ):
        run(small(), as_stream(batches))


class Counts:
    """A drift detector that notes what it is told."""

    drift_detected = False

    def __init__(self):
        self.told = []

    def update(self, error):
        self.told.append(error)


def test_samples_without_a_label_count_neither_as_right_nor_as_wrong():
    missing = [None if place % 2 else int(y) for place, y in enumerate(Y)]
    evaluator, detector = Evaluator(prequential=True), Counts()
    skipped = run(small(missing_labels="skip"), as_stream((X, missing)), evaluator, detector=detector)
    labelled = run(small(), as_stream((X[::2], Y[::2]), batch_size=5), evaluator)
    assert sum(skipped.sizes) == len(detector.told) == 60
    assert skipped.correct == labelled.correct
    assert skipped.prequential_accuracy == labelled.prequential_accuracy
    as_a_class = run(small(missing_labels="class"), as_stream((X, missing)), evaluator)
    assert sum(as_a_class.sizes) == 120


def test_a_batch_without_any_label_changes_no_inferred_task():
    missing = [*Y[:60].tolist(), *[None] * 30, *Y[60:].tolist()]
    x = np.concatenate([X[:60], X[:30], X[60:]])
    learner = small(missing_labels="skip")
    result = run(learner, as_stream((x, missing)), infer="novelty")
    assert result.samples == 150
    assert learner.unlabelled == 30


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_over_every_kind_of_samples_resumes_from_its_checkpoint(kind, tmp_path):
    def stop(samples):
        arrived.append(samples)
        if sum(arrived) > 80:
            raise KeyboardInterrupt

    def go(**options):
        learner = small()
        run(learner, as_stream((KINDS[kind], Y)), Evaluator(every=3), **options)
        return learner

    arrived = []
    with pytest.raises(KeyboardInterrupt):
        go(checkpoint=tmp_path / "run", progress=stop)
    resumed, whole = go(checkpoint=tmp_path / "run"), go()
    assert torch.equal(resumed.embed(KINDS[kind]), whole.embed(KINDS[kind]))


def test_a_stream_of_sparse_rows_may_not_wait_for_the_learner():
    result = run(small(), as_stream((sparse.csr_matrix(X), Y)), clock=Clock(cost=2))
    assert (result.samples, result.missed) == (120, 60)


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_of_the_embedding_takes_every_kind_of_held_out_samples(kind):
    measured = Evaluator(representation=True)
    result = run(small(), as_stream((KINDS[kind], Y), tests=(KINDS[kind], Y)), measured)
    plain = run(small(), as_stream((X, Y), tests=(X, Y)), measured)
    assert torch.equal(result.embedding.features, plain.embedding.features)
    assert result.embedding.labels == plain.embedding.labels
