"""The horizon: which part of the stream is revisited, how often, and when it ends."""

from collections import Counter

import numpy as np
import pytest
import torch
from small_learners import first_digits

from everlearn import Evaluator, Finetune, Horizon, as_stream, learner, run, stream
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run, RunOptions
from everlearn.learners.finetune import IIDOffline
from everlearn.learners.reservoir import Reservoir


class Diary(Finetune):
    """Finetuning that records its calls; samples are identified by their number."""

    def __init__(self, **settings):
        super().__init__("mlp", hidden=4, device="cpu", **settings)
        self.pages = []

    def observe(self, x, y, t=None):
        self.pages.append(("observe", numbers(x), t))
        super().observe(x, y, t)

    def revisit(self, x, y, t=None):
        assert y == [label(number) for number in numbers(x)]
        self.pages.append(("revisit", numbers(x), t))
        super().revisit(x, y, t)

    def end_horizon(self):
        self.pages.append("end")

    def words(self):
        """The calls, in order."""
        return [page if page == "end" else page[0] for page in self.pages]

    def revisited(self, pages=None):
        """How often each sample was revisited."""
        pages = self.pages if pages is None else pages
        return Counter(number for page in pages if page[0] == "revisit" for number in page[1])


def numbers(x):
    return x[:, 0].int().tolist()


def label(number):
    return "even" if number % 2 == 0 else "odd"


def numbered(*tasks):
    """Batches of two numbered samples; `tasks` says how many batches each task has."""
    number = 0
    for t, batches in enumerate(tasks):
        for _ in range(batches):
            pair = [number, number + 1]
            yield torch.tensor([[float(n), 1.0] for n in pair]), [label(n) for n in pair], t
            number += 2


def diary(horizon, *tasks, **options):
    keeper = Diary()
    run(keeper, numbered(*tasks), horizon=horizon, **options)
    return keeper


def test_online_every_batch_is_a_horizon_and_none_is_revisited():
    keeper = diary(None, 3)
    assert keeper.pages == [
        ("observe", [0, 1], 0),
        "end",
        ("observe", [2, 3], 0),
        "end",
        ("observe", [4, 5], 0),
        "end",
    ]


def test_a_batch_is_passed_over_again_before_the_next_one_comes():
    keeper = diary(Horizon(epochs=3), 2)
    assert keeper.words() == ["observe", "revisit", "revisit", "end"] * 2
    assert keeper.revisited() == dict.fromkeys(range(4), 2)
    assert set(keeper.pages[1][1]) == {0, 1}


def test_a_window_ends_with_the_batch_that_fills_it_and_the_last_one_with_the_stream():
    keeper = diary(Horizon("window", samples=5, epochs=2), 5)
    first = [*["observe"] * 3, *["revisit"] * 3, "end"]
    assert keeper.words() == [*first, *["observe"] * 2, *["revisit"] * 2, "end"]
    assert keeper.revisited(keeper.pages[:7]) == dict.fromkeys(range(6), 1)
    assert keeper.revisited() == dict.fromkeys(range(10), 1)


def test_a_task_is_passed_over_again_when_another_begins_or_the_stream_ends():
    keeper = diary(Horizon("task", epochs=3), 2, 1)
    assert keeper.words() == [*["observe"] * 2, *["revisit"] * 4, "end", "observe", *["revisit"] * 2, "end"]
    assert keeper.revisited(keeper.pages[:7]) == dict.fromkeys(range(4), 2)
    assert [page[2] for page in keeper.pages if page != "end"] == [0] * 6 + [1] * 3


def test_offline_the_whole_stream_is_passed_over_again_at_its_end():
    keeper = diary(Horizon("stream", epochs=4), 2, 3)
    assert keeper.words() == [*["observe"] * 5, *["revisit"] * 15, "end"]
    assert keeper.revisited() == dict.fromkeys(range(10), 3)


def test_a_horizon_of_one_epoch_ends_without_a_revisit():
    assert diary(Horizon("task"), 2, 2).words() == ["observe", "observe", "end"] * 2
    assert diary(Horizon("stream"), 2, 2).words() == [*["observe"] * 4, "end"]


def test_later_passes_are_shuffled_in_batches_as_large_as_the_stream_s():
    keeper = diary(Horizon("stream", epochs=2), 20)
    again = [page[1] for page in keeper.pages if page[0] == "revisit"]
    assert [len(part) for part in again] == [2] * 20
    assert [n for part in again for n in part] != list(range(40))


def test_the_same_seed_revisits_in_the_same_order():
    one, other = (diary(Horizon("stream", epochs=3), 10) for _ in range(2))
    assert one.pages == other.pages


def test_a_learner_that_needs_t_never_revisits_two_tasks_in_one_batch():
    class TaskDiary(Diary):
        name = "task-diary"
        needs = frozenset({"t"})

    keeper = TaskDiary()
    run(keeper, numbered(6, 5), horizon=Horizon("stream", epochs=3))
    again = [page for page in keeper.pages if page[0] == "revisit"]
    assert keeper.revisited() == dict.fromkeys(range(22), 2)
    assert all(t == (0 if number < 12 else 1) for _, part, t in again for number in part)
    assert [t for _, _, t in again] != sorted(t for _, _, t in again)


def test_a_stream_whose_t_is_hidden_reveals_it_in_no_later_pass():
    keeper = diary(Horizon("window", samples=4, epochs=2), 2, 2, paradigm="data-incremental")
    assert {page[2] for page in keeper.pages if page != "end"} == {None}


def test_revisited_samples_are_neither_counted_nor_missing_from_progress():
    progress = []
    keeper = diary(Horizon("stream", epochs=3), 5, progress=progress.append)
    assert keeper.samples == 10
    assert sum(progress) == 30


def test_a_horizon_of_a_task_is_refused_where_nobody_tells_t():
    unlabelled = [(x, y) for x, y, _ in numbered(2)]
    with pytest.raises(ValueError, match='a horizon of one task needs t, which .* infer="novelty"'):
        run(Diary(), unlabelled, horizon=Horizon("task", epochs=2))
    run(Diary(), unlabelled, horizon=Horizon("task", epochs=2), infer="novelty")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"extent": "taks"}, "there is no horizon 'taks'; did you mean 'task'"),
        ({"extent": "window"}, "a window needs a number of samples.*; got 'window' with samples=None"),
        ({"extent": "window", "samples": 0}, "got 'window' with samples=0"),
        ({"extent": "task", "samples": 5}, "no other horizon has one; got 'task' with samples=5"),
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"epochs": 1.5}, "epochs must be at least 1, not 1.5, and a whole number"),
    ],
)
def test_a_horizon_that_makes_no_sense_is_refused(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        Horizon(**words)


@pytest.mark.parametrize("kind", [">f4", "backward"])
def test_arrays_that_torch_can_not_read_directly_are_revisited_as_well(kind):
    """Big-endian arrays, and arrays with a negative stride."""
    plain = np.arange(12, dtype=np.float32).reshape(6, 2)
    x = plain.astype(">f4") if kind == ">f4" else plain[::-1].copy()[::-1]
    states = []
    for samples in (plain, x):
        student = Finetune("mlp", hidden=4, device="cpu")
        run(student, [(samples, ["a", "b"] * 3)], horizon=Horizon(epochs=3))
        states.append([part for part in student.state_dict().values() if isinstance(part, torch.Tensor)])
    assert same(*states)


# Finetuning under another order and horizon


def state_after(name, source, **options):
    student = learner(name, hidden=16, device="cpu")
    result = run(student, source, **options)
    return result, [part for part in student.state_dict().values() if isinstance(part, torch.Tensor)]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_iid_online_is_finetuning_on_the_stream_in_iid_order():
    one, state = state_after("iid-online", stream("split-digits", seed=1))
    other, same_state = state_after("finetune", stream("split-digits", seed=1, scenario="iid"))
    assert same(state, same_state)
    assert one.accuracy == other.accuracy > 0.5


def test_iid_offline_is_the_same_with_the_stream_as_horizon():
    few = Horizon("stream", epochs=3)
    one, state = state_after("iid-offline", stream("split-digits", seed=1), horizon=few)
    other, same_state = state_after("finetune", stream("split-digits", seed=1, scenario="iid"), horizon=few)
    assert same(state, same_state)
    assert one.accuracy == other.accuracy > 0.8
    assert IIDOffline.horizon == Horizon("stream", epochs=50)


# Evaluations within a horizon


def accuracy_now(student, source):
    return Evaluator().evaluate(student, source.tests).accuracy


def test_the_last_evaluation_is_of_the_learner_after_the_last_pass():
    source = stream("split-digits", scenario="iid", batch_size=103)  # 14 batches
    student = Finetune(hidden=16, device="cpu")
    result = run(student, source, Evaluator(every=1), horizon=Horizon("stream", epochs=20))
    assert [evaluation.batches for evaluation in result.history] == [*range(1, 15), 14]
    assert result.accuracy == accuracy_now(student, source) > result.history[-2].accuracy


def test_at_a_transition_the_task_was_passed_over_as_often_as_it_will_be():
    source = stream("split-digits", batch_size=100)
    seen = []

    class Watched(Finetune):
        name = "watched"

        def end_horizon(self):
            seen.append(accuracy_now(self, source))

    result = run(
        Watched(hidden=16, device="cpu"), source, Evaluator(every=1), horizon=Horizon("task", epochs=5)
    )
    last_of_each = {evaluation.task: evaluation.accuracy for evaluation in result.history}
    assert list(last_of_each.values()) == seen


def test_where_nothing_was_revisited_the_same_learner_is_not_evaluated_twice():
    source = as_stream(list(numbered(3, 3)), tests=(torch.tensor([[0.0, 1.0]]), ["even"]))
    result = run(Finetune(hidden=4, device="cpu"), source, Evaluator(every=1), horizon=Horizon("task"))
    assert [evaluation.batches for evaluation in result.history] == [1, 2, 3, 4, 5, 6]


# In a cohort.


class OnTheCPU(Cohort):
    """A cohort without a GPU: the branches of its graph run one after the other."""

    def _run_branches(self, table, shapes, form):
        for place, row in enumerate(table):
            self._branch(place, row, shapes, form)


def members(kind, epochs, counted=None):
    """Two runs over 40 digits in batches of 6, the last of which has 4 samples."""
    for seed in (0, 1):
        source = stream("split-digits", seed=seed)
        x, y = source.x[:40], source.y[:40]
        batches = [(x[i : i + 6], y[i : i + 6]) for i in range(0, 40, 6)]
        made = kind("mlp", hidden=8, seed=seed, device="cpu", learning_rate=0.1)
        options = RunOptions(horizon=Horizon("stream", epochs=epochs), progress=counted)
        yield Run(made, as_stream(batches, tests=[(x, y)]), options)


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize("kind", [Finetune, Reservoir])
def test_a_cohort_revisits_each_stream_in_the_order_of_a_run_alone(kind, epochs):
    samples = []
    together = list(members(kind, epochs, samples.append))
    results = OnTheCPU(together).finish()
    assert sum(samples) == 2 * 40 * epochs
    for member, result, alone in zip(together, results, members(kind, epochs), strict=True):
        assert alone.finish().accuracy == result.accuracy
        theirs = member.learner.state_dict()
        for name, part in alone.learner.state_dict().items():
            assert part == theirs[name] if name == "meta" else torch.equal(part, theirs[name]), name


@pytest.mark.parametrize("name", ["iid-offline", "reservoir"])
def test_epochs_over_a_stream_run_in_a_cohort_on_a_gpu(name, gpu):
    def runs():
        for seed in (0, 1, 2):
            source = first_digits(seed, 100)
            options = RunOptions(horizon=Horizon("stream", epochs=3))
            yield Run(learner(name, source, hidden=64, seed=seed, device=gpu), source, options)

    together = list(runs())
    assert shape_of(together[0]) is not None
    results = Cohort(together).finish()
    for member, result, alone in zip(together, results, runs(), strict=True):
        assert alone.finish().accuracy == pytest.approx(result.accuracy, abs=0.02)
        for key, part in alone.learner.state_dict().items():
            if key != "meta":
                torch.testing.assert_close(part, member.learner.state_dict()[key], rtol=1e-3, atol=1e-3)
