"""A durable learner in a folder: calls, requests, threads, errors."""

import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from live_batches import batch, cope, copy_as_killed, ids, teach
from small_learners import make, same_state

import everlearn
from everlearn import open_live
from everlearn.core.prediction import NotLearntYet
from everlearn.live import Busy, LiveError


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope()) as opened:
        yield opened


def test_a_live_learner_learns_as_the_plain_one_does(live):
    plain = cope()
    for number in range(5):
        plain.observe(*batch(number))
    teach(live, range(5))
    same_state(live.learner.state_dict(), plain.state_dict())
    assert (live.position, live.learner.batches, live.learner.samples) == (5, 5, 20)
    assert live.predict(batch(9)[0]) == plain.predict(batch(9)[0])
    assert np.array_equal(live.predict_proba(batch(9)[0]), plain.predict_proba(batch(9)[0]))


def test_it_is_reopened_without_a_learner(tmp_path):
    with open_live(tmp_path / "live", cope()) as live:
        teach(live, range(5))
        state = live.learner.state_dict()
    with everlearn.open_live(tmp_path / "live") as again:
        same_state(again.learner.state_dict(), state)
        assert again.position == 5
        teach(again, [5])
        assert again.position == 6


def test_a_snapshot_is_a_file_that_load_opens(live):
    teach(live, range(3))
    live.save()
    newest = max(live.folder.glob("*.safetensors"))
    same_state(everlearn.load(newest).state_dict(), live.learner.state_dict())


def test_ask_and_tell_are_those_of_the_learner(live):
    plain = cope()
    x, _ = batch(7)
    assert live.ask(ids(7), x) == plain.ask(ids(7), x)
    told = live.tell(["sample-7-1", "other"], ["a", "b"])
    assert told == plain.tell(["sample-7-1", "other"], ["a", "b"])
    assert told.learnt == ["sample-7-1"] and told.missing == ["other"]
    same_state(live.learner.state_dict(), plain.state_dict())


def test_confidences_are_the_probabilities_of_the_labels(live):
    teach(live, range(5))
    x, _ = batch(9)
    probabilities = live.predict_proba(x).max(1)
    labels, confidences = live.predict(x, confidence=True)
    assert labels == live.predict(x) and np.array_equal(confidences, probabilities)
    answers, confidences = live.ask(ids(9), x, confidence=True)
    assert answers == labels and np.allclose(confidences, probabilities)


def test_tell_says_which_answers_were_right(live):
    teach(live, range(10))
    x, _ = batch(20)
    answers = live.ask(ids(20), x)
    told = live.tell(ids(20), [answers[0], *("c" if answer == "b" else "b" for answer in answers[1:])])
    assert told.right == ["sample-20-0"]
    assert told.wrong == ["sample-20-1", "sample-20-2", "sample-20-3"]
    assert [mistake.id for mistake in live.mistakes()] == told.wrong
    assert torch.equal(live.mistakes()[0].sample, x[1])


def test_forget_removes_a_class(live):
    teach(live, range(5))
    live.forget("b")
    assert "b" not in live.classes and "b" not in live.status()["exemplars"]


# Requests.


def test_a_retry_of_a_request_is_applied_once(tmp_path):
    with open_live(tmp_path / "live", cope()) as live:
        live.observe(*batch(0), request_id="first")
        live.observe(*batch(0), request_id="first")
        answers = live.ask(ids(1), batch(1)[0], request_id="second")
        told = live.tell(ids(1), ["a", "b", "c", "a"], request_id="third")
        assert live.position == 3
    with open_live(tmp_path / "live") as live:
        live.observe(*batch(0), request_id="first")
        assert live.ask(ids(1), batch(1)[0], request_id="second") == answers
        again = live.tell(ids(1), ["a", "b", "c", "a"], request_id="third")
        assert again == told and (again.right, again.wrong) == (told.right, told.wrong)
        assert (live.position, live.learner.batches) == (3, 2)


def test_a_retry_after_a_kill_is_applied_once(live, tmp_path):
    live.observe(*batch(0), request_id="first")
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        again.observe(*batch(0), request_id="first")
        assert again.learner.batches == 1


def test_two_threads_with_the_same_request_change_the_learner_once(live):
    calls = [
        threading.Thread(target=live.observe, args=batch(0), kwargs={"request_id": "one"}) for _ in range(8)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert live.learner.batches == 1


def test_a_request_id_of_another_call_is_refused(live):
    live.observe(*batch(0), request_id="first")
    with pytest.raises(ValueError, match="'first' was used by observe before: give every request its own"):
        live.forget("a", request_id="first")
    with pytest.raises(ValueError, match="a request id is a str, not 3"):
        live.forget("a", request_id=3)


# Threads.


def called_at_once(live, *calls):
    """What calls return or raise that wait for the learner together, in this order."""
    go, results = threading.Event(), [None] * len(calls)

    def call(i):
        try:
            results[i] = calls[i]()
        except ValueError as error:
            results[i] = str(error)

    threads = [threading.Thread(target=live._between_changes, args=(go.wait,))]
    threads += [threading.Thread(target=call, args=(i,)) for i in range(len(calls))]
    for i, thread in enumerate(threads):
        thread.start()
        while live._writer.waiting() < i or not live._writer._applying.locked():
            time.sleep(0.001)
    go.set()
    for thread in threads:
        thread.join()
    return results


def test_a_request_id_of_another_call_that_waits_is_refused(live):
    results = called_at_once(
        live,
        lambda: live.observe(*batch(0), request_id="one"),
        lambda: live.tell(["no"], ["a"], request_id="one"),
    )
    words = "the request id 'one' was used by observe before: give every request its own"
    assert results == [None, words]


def test_a_class_that_two_threads_forget_at_once_is_no_refused_batch(live):
    teach(live, [0])
    label = live.classes[0]
    first, second = called_at_once(live, lambda: live.forget(label), lambda: live.forget(label))
    assert first is None
    assert "which was never observed" in second
    assert (live.refused(), live.status()["refused"]) == ([], 0)


def test_calls_of_many_threads_are_applied_in_the_order_of_the_journal(live, tmp_path):
    def work(first):
        for number in range(first, first + 10):
            live.observe(*batch(number))

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (live.position, live.learner.samples) == (40, 160)
    plain = cope()
    for entry in live._storage.journal.entries(0):
        plain.observe(entry.change.x(), entry.change.labels)
    same_state(live.learner.state_dict(), plain.state_dict())


class Slow(torch.nn.Module):
    """A network that waits in training mode until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
        self.go, self.inside = threading.Event(), threading.Event()
        self.go.set()

    def forward(self, x):
        if self.training:
            self.inside.set()
            self.go.wait(30)
        return self.layer(x)

    def __deepcopy__(self, memo):
        copied = Slow()
        copied.load_state_dict(self.state_dict())
        copied.train(self.training)
        return copied


def test_predictions_do_not_wait_while_the_learner_learns(tmp_path):
    network = Slow()
    with open_live(tmp_path / "live", make("cope", network)) as live:
        teach(live, [0])
        live.snapshot(min_position=1)
        network.inside.clear()
        network.go.clear()
        learning = threading.Thread(target=teach, args=(live, [1]))
        learning.start()
        assert network.inside.wait(30)
        snapshot = live.snapshot()
        assert snapshot.position == 1 and len(snapshot.predict(batch(5)[0])) == 4
        assert len(live.predict(batch(5)[0])) == 4
        network.go.set()
        learning.join()
        assert live.snapshot(min_position=2).position == 2


def test_calls_that_wait_are_written_in_one_commit(tmp_path, monkeypatch):
    network, commits = Slow(), []
    with open_live(tmp_path / "live", make("cope", network)) as live:
        teach(live, [0])
        append = live._storage.journal.append
        monkeypatch.setattr(
            live._storage.journal, "append", lambda entries: (commits.append(len(entries)), append(entries))
        )
        network.inside.clear()
        network.go.clear()
        calls = [threading.Thread(target=teach, args=(live, [number])) for number in range(1, 7)]
        calls[0].start()
        assert network.inside.wait(30)
        for call in calls[1:]:
            call.start()
        while live.status()["queue"] < 5:
            time.sleep(0.001)
        network.go.set()
        for call in calls:
            call.join()
        assert commits == [1, 5]
        assert live.position == 7


def test_the_step_is_computed_while_the_change_is_written(tmp_path, monkeypatch):
    network, overlapped = Slow(), []
    with open_live(tmp_path / "live", make("cope", network)) as live:
        teach(live, [0])
        append = live._storage.journal.append

        def write_when_the_step_has_begun(entries):
            overlapped.append(network.inside.wait(30))
            append(entries)

        network.inside.clear()
        monkeypatch.setattr(live._storage.journal, "append", write_when_the_step_has_begun)
        teach(live, [1])
        assert overlapped == [True] and live.position == 2


def test_a_bounded_queue_refuses_further_calls(tmp_path):
    network = Slow()
    with open_live(tmp_path / "live", make("cope", network), queue=1) as live:
        teach(live, [0])
        network.inside.clear()
        network.go.clear()
        calls = [threading.Thread(target=teach, args=(live, [number])) for number in (1, 2)]
        calls[0].start()
        assert network.inside.wait(30)
        calls[1].start()
        while live.status()["queue"] < 1:
            time.sleep(0.001)
        with pytest.raises(Busy, match="1 calls wait already: try again later"):
            teach(live, [3])
        network.go.set()
        for call in calls:
            call.join()
        assert live.position == 3


def test_a_copy_without_classes_is_not_used_once_there_are_any(live):
    teach(live, [0])
    found = []
    reader = threading.Thread(target=lambda: found.append(live.predict(batch(1)[0], min_position=0)))
    reader.start()
    reader.join()
    assert len(found[0]) == 4


def test_a_position_that_is_not_reached_is_a_timeout(live):
    teach(live, [0])
    with pytest.raises(TimeoutError, match=r"position 5 was not reached within 0.01 seconds"):
        live.snapshot(min_position=5, timeout=0.01)


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs pthread_kill")
def test_ctrl_c_waits_until_the_change_is_applied(live):
    before = live._model.apply

    def interrupted(*args):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return before(*args)

    live._model.apply = interrupted
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            teach(live, [0])
    finally:
        signal.signal(signal.SIGINT, handler)
    live._model.apply = before
    assert (live.position, live.learner.batches) == (1, 1)
    teach(live, [1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_can_not_use_it(live):
    child = os.fork()
    if child == 0:
        try:
            live.observe(*batch(0))
        except LiveError as error:
            os._exit(0 if "can't be used in a forked process" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Errors.


def test_invalid_batches_change_nothing(live):
    teach(live, [0])
    state = live.learner.state_dict()
    x, y = batch(1)
    for wrong, words in [
        (lambda: live.observe(x[:, :3], y), r"got x of shape \[4, 3\] but the network takes \[\*, 6\]"),
        (lambda: live.observe(x, y[:3]), "4 samples but 3 labels"),
        (lambda: live.observe(x, y, ["one"]), "4 samples but 1 ids"),
        (lambda: live.observe(x * float("nan"), y), "NaN or infinite values in x"),
        (lambda: live.observe(x, [{}, 1, 2, 3]), "a label is a str"),
        (lambda: live.ask(["same", "same", "b", "c"], x), "got the id 'same' twice"),
        (lambda: live.tell(["one"], []), "1 ids but 0 labels"),
        (lambda: live.suggest(-1), "takes a number of samples, not -1"),
    ]:
        with pytest.raises(ValueError, match=words):
            wrong()
    assert live.position == 1
    same_state(live.learner.state_dict(), state)
    with pytest.raises(ValueError, match="which was never observed"):
        live.forget("z")
    same_state(live.learner.state_dict(), state)


def test_a_prediction_before_the_first_label_is_an_error(live):
    with pytest.raises(NotLearntYet):
        live.predict(batch(0)[0])


def wild(live):
    """Observe a batch that would make the weights infinite."""
    x, y = batch(1)
    with pytest.raises(ValueError, match="would make the network's weights infinite or NaN"):
        live.observe(1e11 * x, y, ids(1), request_id="wild")


def test_a_batch_that_would_ruin_the_weights_is_set_aside(tmp_path):
    with open_live(tmp_path / "live", make("finetune", learning_rate=1e8, clip=None)) as live:
        live.observe(*batch(0))
        state = live.learner.state_dict()
        wild(live)
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            same_state(again.learner.state_dict(), state)
            assert again.position == live.position == 2
            for each in (live, again):
                (refused,) = each.refused()
                assert refused.entry.change.ids == ids(1) and "infinite or NaN" in refused.reason
                assert torch.equal(refused.entry.change.x(), 1e11 * batch(1)[0])
                assert each.status()["refused"] == 1
                assert each.history()[-1]["event"] == "refused"
            wild(again)  # a retry is not counted again
            assert again.status()["refused"] == 1
        same_state(live.learner.state_dict(), state)


@pytest.mark.parametrize("name", ["finetune", "reservoir"])
def test_one_wild_sample_does_not_ruin_a_softmax_learner(name):
    source = everlearn.stream("split-digits", scenario="iid")
    *batches, last = [(torch.as_tensor(x).float() / 255, y) for x, y, _ in source]
    learner = everlearn.learner(name, seed=0, device="cpu")
    tests = [(torch.as_tensor(x).float() / 255, np.asarray(y)) for x, y in source.tests]

    def accuracy():
        return np.mean(np.concatenate([np.array(learner.predict(x)) == y for x, y in tests]))

    for x, y in batches:
        learner.observe(x, y)
    before = accuracy()
    last[0][0] *= 100
    learner.observe(*last)
    assert accuracy() > before - 0.15
    for x, y in batches[:20]:
        learner.observe(x, y)
    assert accuracy() > before - 0.05


def test_a_learner_that_was_changed_by_itself_is_noticed(live):
    teach(live, [0])
    live.learner.observe(*batch(1))
    with pytest.raises(LiveError, match="was changed by a call of its own, which the journal does not hold"):
        teach(live, [2])
    live.close()
    with open_live(live.folder) as again:
        assert (again.position, again.learner.batches) == (1, 1)


def test_errors_of_opening_are_sentences(tmp_path):
    with pytest.raises(LiveError, match=r"holds no learner yet: give one, open_live\(folder, CoPE\(...\)\)"):
        open_live(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="takes a learner such as CoPE"):
        open_live(tmp_path / "new", "cope")
    with pytest.raises(ValueError, match="snapshot_every is a whole number of at least 1, not 0"):
        open_live(tmp_path / "new", cope(), snapshot_every=0)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(LiveError, match="has other files in it: give a folder that is new or empty"):
        open_live(tmp_path / "other", cope())
    assert [file.name for file in (tmp_path / "other").iterdir()] == ["notes.txt"]
    with open_live(tmp_path / "live", cope()) as live:
        teach(live, [0])
        with pytest.raises(LiveError, match="is in use by another process"):
            open_live(tmp_path / "live")
    with pytest.raises(LiveError, match="'memory_size': 30.*'memory_size': 40"):
        open_live(tmp_path / "live", cope(memory_size=40))
    learnt = cope()
    learnt.observe(*batch(0))
    with pytest.raises(LiveError, match="holds a learner already, and the given one has learnt, too"):
        open_live(tmp_path / "live", learnt)
    with pytest.raises(LiveError, match="is closed: open the folder again"):
        teach(live, [1])
    live.close()  # a second time
    with open_live(tmp_path / "live", cope()) as again:  # a fresh learner of the same settings
        assert again.position == 1


def test_a_network_of_ones_own_is_given_with_a_learner(tmp_path):
    with open_live(tmp_path / "live", make("cope", torch.nn.Linear(6, 4))) as live:
        teach(live, range(3))
        state = live.learner.state_dict()
    with pytest.raises(LiveError, match=r"with a network of your own: open_live\(folder, learner\)"):
        open_live(tmp_path / "live")
    with open_live(tmp_path / "live", make("cope", torch.nn.Linear(6, 4))) as again:
        same_state(again.learner.state_dict(), state)


def test_the_source_of_a_batch_is_remembered(live, tmp_path):
    live.observe(*batch(0), source=("kafka/topic/0", 17))
    live.observe(*batch(1), source=("kafka/topic/0", 23))
    assert live.sources == {"kafka/topic/0": 23}
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        assert again.sources == {"kafka/topic/0": 23}


WRONG_SOURCES = [
    ("orders",),
    ("orders", 1, 2),
    7,
    "orders",
    b"orders",
    (["x"], 1),
    (7, 1),
    (b"orders", 1),
    ("orders", None),
    ("orders", True),
    ("orders", b"1"),
    ("orders", float("nan")),
    ("orders", {1: 2}),
    ("orders", object()),
    {"orders": 1},
]


@pytest.mark.parametrize("source", WRONG_SOURCES)
def test_a_wrong_source_is_refused_before_anything_is_written(source, live, tmp_path):
    teach(live, [0])
    live.ask(ids(1), batch(1)[0])
    state = live.learner.state_dict()
    for call in (
        lambda: live.observe(*batch(2), source=source),
        lambda: live.ask(ids(3), batch(3)[0], source=source),
        lambda: live.tell(ids(1), batch(1)[1], source=source),
    ):
        with pytest.raises(ValueError, match="source is a name and the position after this batch, as JSON"):
            call()
    same_state(live.learner.state_dict(), state)
    assert (live.position, live.sources, live.refused()) == (2, {}, [])
    teach(live, [4])
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


@pytest.mark.parametrize("position", [np.int64(3), "1526-0", {"0": 7, "1": 9}, [1, 2]], ids=repr)
def test_positions_of_sources_are_the_same_after_a_kill(position, live, tmp_path):
    live.observe(*batch(0), source=("orders", position))
    assert live.sources == {"orders": position}
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        assert again.sources == live.sources


def test_a_change_that_can_not_be_recorded_is_taken_back(live, monkeypatch):
    teach(live, [0])
    state = live.learner.state_dict()

    def broken(*_):
        raise TypeError("a bug")

    monkeypatch.setattr(live._model.statistics, "learnt", broken)
    with pytest.raises(
        LiveError, match=r"change 2 could not be recorded \(TypeError: a bug\): close this live"
    ):
        teach(live, [1])
    with pytest.raises(LiveError, match="change 2 could not be recorded"):
        teach(live, [2])
    live.close()
    with open_live(live.folder) as again:
        same_state(again.learner.state_dict(), state)
        assert again.position == 1


# Arguments.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda live: live.predict(batch(1)[0], min_position="a"), "min_position is a whole number"),
        (lambda live: live.predict_proba(batch(1)[0], min_position=1.5), "min_position is a whole number"),
        (lambda live: live.snapshot(-1), "min_position is a whole number of at least 0, not -1"),
        (lambda live: live.snapshot(0, "a"), "timeout is a number of seconds of at least 0, not 'a'"),
        (lambda live: live.predict(batch(1)[0], confidence="no"), "confidence is True or False, not 'no'"),
        (
            lambda live: live.ask(ids(1), batch(1)[0], confidence="no"),
            "confidence is True or False, not 'no'",
        ),
        (lambda live: live.delete(ids(0), rebuild="no"), "rebuild is True or False, not 'no'"),
        (lambda live: live.correct(ids(0), ["a"] * 4, rebuild=1), "rebuild is True or False, not 1"),
        (lambda live: live.correct(ids(0), ["a", None, "a", "a"]), "got no label .* for sample 1"),
        (lambda live: live.backup(3), "a folder is given as a str or a Path, not 3"),
        (
            lambda live: live.observe(pd.DataFrame({"a": [1.0]}), ["a"]),
            "the first batch had no names of columns",
        ),
    ],
)
def test_wrong_arguments_are_refused_in_words_and_change_nothing(call, words, live):
    teach(live, [0])
    state = live.learner.state_dict()
    with pytest.raises(ValueError, match=words):
        call(live)
    same_state(live.learner.state_dict(), state)
    assert (live.position, live.refused(), live.status()["refused"]) == (1, [], 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": -1}, "queue is None or a whole number of at least 1, not -1"),
        ({"queue": "a"}, "queue is None or a whole number of at least 1, not 'a'"),
        ({"queue": 1.5}, "queue is None or a whole number of at least 1, not 1.5"),
        ({"act": "no"}, "act is True or False, not 'no'"),
        ({"skip": 3}, r"skip is a list of positions in the journal, such as \[3\], not 3"),
    ],
)
def test_wrong_options_of_opening_are_refused_before_a_folder_is_made(options, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        open_live(tmp_path / "live", cope(), **options)
    assert not (tmp_path / "live").exists()


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_ids_with_rows_and_columns_are_refused(frame, live):
    x, y = batch(0)
    table = frame({"id": [1]})
    for call in (
        lambda: live.observe(x[:1], y[:1], table),
        lambda: live.ask(table, x[:1]),
        lambda: live.tell(table, y[:1]),
        lambda: live.delete(table),
        lambda: live.correct(table, y[:1]),
    ):
        with pytest.raises(
            ValueError, match='takes one id for each sample, not a DataFrame .* such as frame..id"'
        ):
            call()
    live.observe(x[:1], y[:1], table["id"])
    assert live.delete([1]).exemplars == 1


# Calls that change nothing.


@pytest.mark.parametrize(
    "call",
    [
        lambda live: live.tell([], [], request_id="r"),
        lambda live: live.correct([], [], request_id="r"),
        lambda live: live.delete(["nobody"], request_id="r"),
        lambda live: live.delete([], request_id="r"),
    ],
    ids=["tell", "correct", "delete", "delete none"],
)
def test_a_call_that_changes_nothing_is_not_journaled(call, live):
    teach(live, range(2))
    history = live.history()
    first = call(live)
    assert call(live).missing in (first.missing, [])  # no file keeps the ids of a deletion
    assert (live.position, live.history()) == (2, history)
    assert [entry.position for entry in live._storage.journal.entries(0)] == [1, 2]
    live.rollback(1)
    assert live.position == 1


def test_a_label_that_can_not_be_forgotten_is_not_counted_as_a_refused_batch(live):
    teach(live, [0])
    for _ in range(2):
        with pytest.raises(ValueError, match="got the label 'zz', which was never observed"):
            live.forget("zz", request_id="r")
    assert (live.position, live.refused(), live.status()["refused"]) == (1, [], 0)


def test_a_retry_of_forget_gets_the_result_of_the_first_call(live):
    teach(live, [0])
    label = live.classes[0]
    live.forget(label, request_id="r")
    live.forget(label, request_id="r")
    assert live.position == 2


def test_a_tell_without_ids_stores_the_position_of_its_source(live, tmp_path):
    teach(live, [0])
    live.tell([], [], source=("orders", 5))
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        assert again.sources == {"orders": 5}


def test_what_has_no_memory_to_halve_refuses_an_alarm_before_it_is_written(tmp_path):
    with open_live(tmp_path / "live", make("finetune")) as live:
        teach(live, [0], with_ids=False)
        with pytest.raises(ValueError, match="no class-balanced memory that an alarm could halve"):
            live.alarm()
        assert (live.position, live.status()["refused"]) == (1, 0)


def test_it_shows_itself(live):
    teach(live, [0])
    assert repr(live) == f"Live(CoPE, {str(live.folder)!r}, position 1)"
    assert "<table>" in live._repr_html_()
