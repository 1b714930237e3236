"""The paradigms: what the learner and the evaluator get, and the horizon."""

from pathlib import Path

import pytest

from everlearn import Finetune, Horizon, as_stream, learner, run, stream
from everlearn.engine.loop import Run, RunOptions
from everlearn.streams.paradigms import PARADIGMS, Paradigm, paradigm, table

PAGE = Path(__file__).parents[2] / "docs" / "framework.md"
BEGIN, END = "<!-- paradigms: generated -->\n", "<!-- end of paradigms -->\n"


class RecordsTasks(Finetune):
    """Finetuning that records the t of each batch, and how often a horizon ends."""

    name = "records-tasks"

    def __init__(self):
        super().__init__("mlp", hidden=16, device="cpu")
        self.received, self.ends = [], 0

    def observe(self, x, y, t=None):
        self.received.append(t)
        super().observe(x, y, t)

    def end_horizon(self):
        self.ends += 1


class Needy(RecordsTasks):
    """The same, but it needs t."""

    name = "needy"
    needs = frozenset({"t"})


def digits(scenario="split"):
    return stream("split-digits", batch_size=50, scenario=scenario)


def tasks(source):
    return [t for _, _, t in source]


def test_the_five_of_the_paper_are_there():
    assert list(PARADIGMS) == [
        "online",
        "task-incremental",
        "class-incremental",
        "domain-incremental",
        "data-incremental",
    ]
    assert paradigm("online") is PARADIGMS["online"]


def test_a_misspelt_one_is_told_what_was_meant():
    with pytest.raises(ValueError, match="there is no paradigm 'taks-incremental'; did you mean 'task-inc"):
        run(RecordsTasks(), digits(), paradigm="taks-incremental")


@pytest.mark.parametrize("name", ["task-incremental", "class-incremental", "domain-incremental"])
def test_three_tell_the_learner_t_and_end_the_horizon_with_the_task(name):
    student = RecordsTasks()
    run(student, digits(), paradigm=name)
    assert student.received == tasks(digits())
    assert student.ends == 5


def test_data_incremental_tells_no_t_and_the_horizon_is_the_batch():
    student = RecordsTasks()
    run(student, digits(), paradigm="data-incremental")
    assert student.received == [None] * len(digits())
    assert student.ends == len(digits())


def test_online_tells_no_t():
    student = RecordsTasks()
    run(student, digits("iid"), paradigm="online")
    assert student.received == [None] * len(digits("iid"))


def test_online_refuses_a_stream_that_is_not_iid():
    with pytest.raises(ValueError, match='online learning needs an iid stream, .* scenario="iid"'):
        run(RecordsTasks(), digits(), paradigm="online")


def test_online_takes_a_stream_that_the_learner_asks_for_in_iid_order():
    result = run(learner("iid-online", hidden=16, device="cpu"), digits(), paradigm="online")
    assert result.accuracy > 0


def test_without_a_paradigm_the_learner_is_told_all_that_the_stream_tells():
    student = RecordsTasks()
    run(student, digits())
    assert student.received == tasks(digits())


def test_a_horizon_that_is_given_comes_before_the_paradigm_s():
    student = RecordsTasks()
    run(student, digits(), paradigm="task-incremental", horizon=Horizon("stream"))
    assert student.ends == 1


def test_a_paradigm_of_ones_own_is_a_value_like_the_others():
    hidden_from_the_learner = Paradigm("mine", False, True, Horizon(), "batch")
    student = RecordsTasks()
    it = Run(student, digits(), RunOptions(paradigm=hidden_from_the_learner))
    it.finish()
    assert set(student.received) == {None}
    assert it.evaluator.confined


@pytest.mark.parametrize("name", PARADIGMS)
def test_only_task_incremental_evaluation_is_told_t(name):
    opened = Run(RecordsTasks(), digits("iid"), RunOptions(paradigm=name))
    assert opened.evaluator.confined == (name == "task-incremental")


def test_confined_to_the_classes_of_each_task_no_accuracy_is_lower():
    histories = []
    for name in ("class-incremental", "task-incremental"):
        student = Finetune("mlp", hidden=50, device="cpu")
        histories.append(run(student, stream("split-digits"), paradigm=name).history)
    pairs = [
        (confined.accuracies[i], free.accuracies[i])
        for free, confined in zip(*histories, strict=True)
        for i in free.accuracies
    ]
    assert all(confined >= free for confined, free in pairs)
    assert histories[1][-1].accuracy > histories[0][-1].accuracy + 0.3


# A learner that needs t


def refused(source, **options):
    student = Needy()
    with pytest.raises(ValueError) as caught:
        run(student, source, **options)
    assert student.batches == 0
    return str(caught.value)


def test_a_learner_that_needs_t_is_refused_where_the_stream_hides_it():
    sentence = refused(digits("abrupt-drift"))
    assert sentence == (
        "needy needs t, which 'split-digits' hides; infer=\"novelty\" (--infer novelty) infers t from the stream"
    )


def test_a_learner_that_needs_t_is_refused_where_the_paradigm_hides_it():
    assert refused(digits(), paradigm="data-incremental") == (
        'needy needs t, which data-incremental learning hides; infer="novelty" (--infer novelty) infers t from the '
        "stream"
    )


def test_the_remedy_is_one():
    student = Needy()
    run(student, digits("abrupt-drift"), infer="novelty")
    assert set(student.received) <= {0, 1}
    run(Needy(), digits(), paradigm="data-incremental", infer="novelty")


def test_a_learner_that_needs_more_than_t_is_told_so():
    class Needier(Needy):
        name = "needier"
        needs = frozenset({"t", "tasks", "classes"})

    bare = [([[0.0, 1.0]], ["a"])]
    with pytest.raises(ValueError, match="needier needs classes and t and tasks, which 'own' hides$"):
        run(Needier(), bare)
    with pytest.raises(ValueError, match="needier needs classes and tasks, which 'own' hides$"):
        run(Needier(), bare, infer="novelty")
    run(Needier(), as_stream([(*bare[0], 0)], tasks=1, classes=["a"]))


def test_a_paradigm_that_tells_t_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match="class-incremental learning needs t, .* infer="):
        run(RecordsTasks(), digits("abrupt-drift"), paradigm="class-incremental", horizon=Horizon())
    student = RecordsTasks()
    run(student, digits("abrupt-drift"), paradigm="class-incremental", infer="novelty")
    assert None not in student.received


# The page


def test_the_table_in_the_docs_is_the_one_that_the_values_make():
    text = PAGE.read_text("utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


def test_the_table_is_the_paper_s():
    rows = [line.split(" | ")[1:] for line in table().splitlines()[2:]]
    both, bare = "(x, y, t)", "(x, y)"
    assert [row[:2] for row in rows] == [[bare, bare], [both, both], [bare, both], [bare, both], [bare, bare]]
    assert [row[-1] for row in rows] == ["yes |", *["no |"] * 4]
