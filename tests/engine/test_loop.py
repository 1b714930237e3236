"""The loop: a user's own stream, bad streams and their errors, drift, and memory that does not grow."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from everlearn import CoPE, Evaluator, Finetune, as_stream, learner, run, split, stream
from everlearn.engine.loop import StreamError


def weather(seed=0):
    """A stream with no end: measurements labelled with one of two kinds of weather."""
    generator = np.random.default_rng(seed)
    while True:
        storm = generator.random(10) < 0.5
        yield generator.normal(storm[:, None] * 4, 1, (10, 3)), np.where(storm, "storm", "calm")


def first(batches, count):
    return list(itertools.islice(batches, count))


def small(kind=CoPE, **settings):
    memory = {"memory_size": 20} if kind is CoPE else {}
    return kind("mlp", hidden=16, device="cpu", **memory, **settings)


def same_state(one, other):
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(
        name == twin and (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)
        for (name, a), (twin, b) in pairs
    )


# A user's own stream


def test_a_generator_with_no_end_is_learnt_up_to_so_many_samples():
    student = small()
    result = run(student, weather(), samples=995)
    assert result.samples == student.samples == 1000  # whole batches
    assert sorted(student.classes) == ["calm", "storm"]


def test_names_in_place_of_a_learner_and_a_stream_get_a_sentence():
    with pytest.raises(ValueError, match=r"run takes a learner, such as CoPE\(\) or .*, not 'cope' itself"):
        run("cope", stream("split-digits"))
    with pytest.raises(
        ValueError, match=r"run takes a stream, such as stream\('split-digits'\), not its name"
    ):
        run(CoPE(), "split-digits")
    with pytest.raises(ValueError, match=r"stream is the stream itself, such as stream\('split-digits'\)"):
        learner("mir", stream="split-digits")
    with pytest.raises(ValueError, match="every is a number of batches of at least 1, or None, not 'x'"):
        Evaluator(every="x")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"evaluator": 50}, r"evaluator is a value such as Evaluator\(every=50\), not 50"),
        ({"evaluator": Evaluator}, "evaluator is a value such as .*, not <class"),
        ({"horizon": "task"}, r"horizon is a value such as Horizon\(\"task\", epochs=5\), not 'task'"),
        ({"clock": 2.5}, r"clock is a value such as Clock\(cost=2.5\), not 2.5"),
        ({"samples": "5"}, "samples must be at least 1, or None for the whole stream, not '5'"),
    ],
)
def test_an_option_of_another_kind_is_refused_before_anything_is_learnt(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(CoPE(), stream("split-digits"), **options)


def test_a_run_is_what_observing_each_batch_would_be():
    by_hand, by_run = small(), small()
    for x, y in first(weather(), 30):
        by_hand.observe(x, y)
    run(by_run, weather(), Evaluator(prequential=True), samples=300)
    assert same_state(by_hand, by_run)


def test_words_as_labels_reach_every_part_of_the_result():
    x, y = next(weather(seed=1))
    source = as_stream(weather(), name="weather", tests=(x, y))
    learner = small(renormalise=True)
    result = run(learner, source, Evaluator(every=10, prequential=True, representation=True), samples=400)
    last = result.history[-1]
    assert (result.learner, result.stream, result.samples) == ("cope", "weather", 400)
    assert result.accuracy == 1.0
    assert last.labels == ("calm", "storm")
    assert result.confusion.tolist() == [[(y == "calm").sum(), 0], [0, (y == "storm").sum()]]
    assert set(last.exemplars) == set(last.prototype_truth) == {"calm", "storm"}
    assert set(last.prototype_shift) == {"calm", "storm"}
    assert result.prequential_accuracy > 0.9
    assert set(result.embedding.labels) == {"calm", "storm"}


def test_without_held_out_samples_there_is_no_accuracy_and_all_else_is_there():
    result = run(small(), weather(), Evaluator(every=1, prequential=True, representation=True), samples=300)
    for number in (
        result.accuracy,
        result.anytime_accuracy,
        result.worst_case_accuracy,
        result.forgetting,
    ):
        assert math.isnan(number)
    assert (result.history, result.confusion.shape, result.embedding) == ([], (0, 0), None)
    assert result.samples == sum(result.sizes) == 300
    assert result.prequential_accuracy > 0.8
    assert result.samples_per_second > 0
    assert result.memory_bytes > 0


def test_the_evaluator_may_bring_held_out_samples_of_its_own():
    held_out = next(weather(seed=1))
    result = run(small(), weather(), Evaluator(every=10, tests=held_out), samples=300)
    assert [list(evaluation.accuracies) for evaluation in result.history] == [[0]] * 3
    assert result.accuracy > 0.5


def test_arrays_a_list_and_a_loader_are_streams_as_well():
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10)
    runs = [small() for _ in range(3)]
    for student, source in zip(runs, [(x, y), [(x[:10], y[:10]), (x[10:], y[10:])], loader], strict=True):
        assert run(student, source).samples == 20
    assert same_state(runs[0], runs[1])
    assert same_state(runs[0], runs[2])


def test_a_picture_of_the_embedding_has_samples_from_all_over_a_concept():
    """Held-out samples of a domain lie class by class."""
    x = torch.randn(5000, 3)
    y = [n // 500 for n in range(5000)]
    source = as_stream((x[::100], y[::100]), tests=[(x, y), (x, y)])
    result = run(small(), source, Evaluator(representation=True))
    assert len(result.embedding.labels) == len(result.embedding.features) == 1000
    assert set(result.embedding.labels) == set(range(10))


# Prequential accuracy


class Echo(Finetune):
    """Predicts the label that it observed last."""

    def predict(self, x):
        return [self.last] * len(x)

    def observe(self, x, y, t=None):
        super().observe(x, y, t)
        self.last = y[-1]


def test_prequential_accuracy_is_of_each_batch_before_it_is_learnt():
    labels = [["a", "a", "b"], ["b", "b"], ["a", "b", "b", "b"], ["b"]]
    result = run(small(Echo), [(torch.randn(len(y), 2), y) for y in labels], Evaluator(prequential=True))
    assert result.correct == [0, 2, 3, 1]  # nothing before the first label; then b, b and b were predicted
    assert result.sizes == [3, 2, 4, 1]
    assert result.prequential_accuracy == 6 / 10


def test_before_the_first_label_no_prediction_is_right_whatever_the_label():
    result = run(
        small(Echo, missing_labels="class"),
        [(torch.randn(2, 2), [None, None])] * 2,
        Evaluator(prequential=True),
    )
    assert result.correct == [0, 2]


def test_without_being_asked_nothing_is_predicted():
    result = run(small(), weather(), samples=50)
    assert (result.correct, result.sizes) == ([], [])
    assert math.isnan(result.prequential_accuracy)


# Bad streams


@pytest.mark.parametrize("nothing", [[], iter(()), (np.zeros((0, 2)), [])])
def test_a_stream_that_ends_at_once_is_an_error(nothing):
    with pytest.raises(StreamError, match="the stream 'own' ended before its first batch"):
        run(small(), nothing)


@pytest.mark.parametrize("prequential", [False, True])
@pytest.mark.parametrize("taught_before", [False, True])
def test_samples_that_change_shape_midway_name_the_batch_and_change_nothing(prequential, taught_before):
    good = first(weather(), 3)
    student, twin = small(), small()
    for _ in range(1 + taught_before):
        for x, y in good:
            twin.observe(x, y)
    if taught_before:
        run(student, good)
    with pytest.raises(ValueError) as caught:
        run(student, [*good, (np.zeros((10, 4)), ["calm"] * 10)], Evaluator(prequential=prequential))
    assert str(caught.value).startswith("batch 4 of the stream 'own': CoPE.")
    assert "got x of shape [10, 4] but the network takes [*, 3]" in str(caught.value)
    assert same_state(student, twin)


@pytest.mark.parametrize("before", [0, 1, 5])
def test_a_stream_that_raises_midway_names_the_batch_and_the_learner_keeps_what_came_before(before):
    good = first(weather(), before)

    def failing():
        yield from good
        raise OSError("the cable was pulled")

    student, twin = small(), small()
    for x, y in good:
        twin.observe(x, y)
    sentence = f"the stream 'own' failed at batch {before + 1}: the cable was pulled"
    with pytest.raises(StreamError, match=sentence) as caught:
        run(student, failing())
    assert isinstance(caught.value.__cause__, OSError)
    assert same_state(student, twin)


@pytest.mark.parametrize("item", [5, (1, 2, 3, 4), "ab", (3.0, ["a"])])
def test_what_is_no_batch_names_itself(item):
    student = small()
    with pytest.raises((StreamError, ValueError), match="batch 2"):
        run(student, [next(weather()), item])
    assert student.batches == 1


def test_a_label_that_is_none_names_the_batch():
    with pytest.raises(ValueError, match="batch 2 of the stream 'own': a label is a str"):
        run(small(), [next(weather()), (np.zeros((1, 3)), [object()])], Evaluator(prequential=True))


def test_a_generator_that_was_spent_is_refused():
    source = as_stream(iter(first(weather(), 2)))
    run(small(), source)
    with pytest.raises(ValueError, match="can be iterated only once"):
        run(small(), source)


def test_a_limit_of_no_samples_is_refused():
    with pytest.raises(ValueError, match="samples must be at least 1, or None for the whole stream, not 0"):
        run(small(), weather(), samples=0)


# Drift


def test_adwin_finds_an_abrupt_drift_near_where_it_happens():
    pytest.importorskip("river")
    source = stream("split-digits", scenario="abrupt-drift")
    result = run(Finetune(device="cpu"), source, detector="adwin")
    middle = source.samples // 2
    assert any(middle < change < middle + 100 for change in result.changes)


def test_adwin_finds_nothing_where_errors_stay_as_they_are():
    pytest.importorskip("river")
    result = run(small(Echo), [(torch.randn(10, 2), ["a"] * 10)] * 100, detector="adwin")
    assert all(change <= 100 for change in result.changes)  # from all wrong to all right, at the start


def test_any_detector_with_river_s_words_will_do():
    class After30:
        seen, drift_detected = 0, False

        def update(self, error):
            assert error in (0, 1)
            self.seen += 1
            self.drift_detected = self.seen == 31

    assert run(small(), weather(), samples=50, detector=After30()).changes == [31]


def test_without_river_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    with pytest.raises(ImportError, match=r"ADWIN comes with River: pip install 'everlearn\[river\]'"):
        run(small(), weather(), samples=50, detector="adwin")


def test_what_is_no_detector_is_refused():
    with pytest.raises(
        ValueError, match="detector is \"adwin\" or one of River's drift detectors, not 'adwn'"
    ):
        run(small(), weather(), samples=50, detector="adwn")


def test_how_far_each_prototype_moved_is_told_with_every_evaluation():
    source = stream("split-digits")
    seen = []

    class Watched(CoPE):
        name = "watched"

        def observe(self, x, y, t=None):
            super().observe(x, y, t)
            if self.batches % 40 == 0:
                seen.append(self.prototypes)

    result = run(small(Watched, memory_size=50), source, Evaluator(every=40, transitions=False))
    moved = result.history[1].prototype_shift
    assert moved.keys() == seen[0].keys()
    assert all(moved[c] == pytest.approx(float((seen[1][c] - seen[0][c]).norm())) for c in moved)


# Memory


ENDLESS = """
import os, sys
import torch
from everlearn import CoPE, Evaluator, as_stream, run

sizes = []

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

def endless():
    generator = torch.Generator().manual_seed(0)
    for batch in range(sys.maxsize):
        y = torch.randint(0, 5, (100,), generator=generator)
        yield torch.randn(100, 20, generator=generator) + y[:, None], y
        if batch % 50 == 49:
            sizes.append(resident())

learner = CoPE("mlp", hidden=8, embedding=8, memory_size=10, device="cpu")
tests = next(endless())
run(learner, as_stream(endless(), tests=tests), Evaluator(every=100, prequential=True), samples=200_000)
settled = sizes[10:]  # after 50,000 samples
print(learner.samples, len(settled), max(settled) / min(settled))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the resident size is read from /proc")
def test_memory_does_not_grow_with_the_length_of_the_stream():
    words = subprocess.run([sys.executable, "-c", ENDLESS], check=True, capture_output=True, text=True).stdout
    samples, measured, ratio = words.split()
    assert (int(samples), int(measured)) == (200_000, 29)
    assert float(ratio) < 1.02


def test_a_memory_with_too_little_room_for_the_classes_of_a_stream_is_refused_before_anything_is_learnt():
    source = stream("split-digits", seed=0)
    small = learner("cope", stream=source, seed=0, memory_size=9)
    with pytest.raises(ValueError, match="^a memory of 9 has no room for an exemplar of each of 10 classes$"):
        run(small, source)
    assert small.classes == []
    assert run(small, source, samples=20).samples == 20  # of two classes


def test_samples_without_a_label_need_no_room_in_the_memory():
    x = torch.randn(80, 6, generator=torch.Generator().manual_seed(0))
    small = CoPE("mlp", hidden=8, memory_size=2, missing_labels="skip", seed=0)
    run(small, split(x, ["a", "b", None, "a"] * 20, tasks=1))
    assert sorted(small.classes) == ["a", "b"]
