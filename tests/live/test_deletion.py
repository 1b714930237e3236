"""Deleting samples from memory and from every file, correcting labels, and training anew."""

import threading

import numpy as np
import pytest
import torch
from live_batches import batch, cope, copy_as_killed, ids, teach
from small_learners import NAMES, make, same_state

from everlearn import open_live
from everlearn.learners import registry
from everlearn.live import LiveError, editing, folder
from everlearn.live.sqlite_journal import LOG_BYTES

WITH_MEMORY = [name for name in NAMES if editing.memory_of(make(name)) is not None]


@pytest.fixture
def live(tmp_path):
    with open_live(tmp_path / "live", cope(), snapshot_every=5) as opened:
        yield opened


def holds(folder, content):
    """The names of the files in a folder that hold these bytes."""
    return [file.name for file in folder.rglob("*") if file.is_file() and content in content_of(file)]


def content_of(file):
    """What is in a file; nothing if a newer snapshot has just replaced it."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def stored(live):
    """The samples in the memory, as bytes, and their labels."""
    samples, slots = editing.memory_of(live.learner).stored()
    labels = live.learner.classes
    return {sample.numpy().tobytes(): labels[slot] for sample, slot in zip(samples, slots, strict=True)}


def test_deleted_samples_and_ids_are_in_no_file(live):
    teach(live, range(12))
    live.ask([f"asked-{i}" for i in range(4)], batch(20)[0])
    live.tell(["asked-0", "asked-1"], ["a", "b"], request_id="told")
    live.tell(["asked-3"], ["c"])
    gone = ["sample-11-2", "asked-1", "asked-2"]
    samples = [x.numpy().tobytes() for x in (batch(11)[0][2], batch(20)[0][1], batch(20)[0][2])]
    for content in [*samples, *(key.encode() for key in gone)]:
        assert holds(live.folder, content)
    held = stored(live)
    result = live.delete(gone)
    assert result.exemplars == sum(sample in held for sample in samples) and result.waiting == 1
    assert "the weights keep what they learnt" in result.note and not result.rebuilt
    for content in [*samples, *(key.encode() for key in gone)]:
        assert holds(live.folder, content) == []
    assert not set(samples) & set(stored(live))
    live.close()
    for content in [*samples, *(key.encode() for key in gone)]:
        assert holds(live.folder, content) == []


def test_samples_that_were_trimmed_or_refused_are_erased_too(tmp_path):
    with open_live(tmp_path / "live", make("finetune", learning_rate=1e8, clip=None)) as live:
        x, y = batch(1)
        live.observe(*batch(0))
        with pytest.raises(ValueError, match="infinite or NaN"):
            live.observe(1e11 * x, y, ["wild", "b", "c", "d"])
        live.save()
        live.ask(ids(2), batch(2)[0])
        live.save()
        live.save()
        live.delete(["wild", "sample-2-0"])
        for content in (1e11 * x).numpy().tobytes(), b"wild", b"sample-2-0", batch(2)[0][0].numpy().tobytes():
            assert holds(live.folder, content) == []
        assert live.refused() == []


def test_a_deletion_that_a_kill_interrupted_is_finished_on_opening(live, tmp_path, monkeypatch):
    teach(live, range(8))
    before = live.learner.exemplars()
    for i, (place, name) in enumerate([(folder.Folder, "write"), (folder.Folder, "erase_before")]):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, fail)
            with pytest.raises(LiveError, match="older files still hold the samples: .*call delete again"):
                live.delete([f"sample-7-{i}"])
        with open_live(copy_as_killed(live, tmp_path / f"killed-{i}")) as again:
            assert holds(again.folder, f"sample-7-{i}".encode()) == []
            assert holds(again.folder, batch(7)[0][i].numpy().tobytes()) == []
            same_state(again.learner.state_dict(), live.learner.state_dict())
    live.delete(["sample-7-0", "sample-7-1"])
    assert holds(live.folder, b"sample-7-1") == []
    assert sum(live.learner.exemplars().values()) < sum(before.values())


def fail(*_):
    """A disk that fails."""
    raise LiveError("the disk is full")


def test_a_kill_while_free_pages_are_overwritten_is_made_good(live, tmp_path):
    teach(live, range(3))
    live._storage.journal._connection.execute("create table zeros (bytes blob)")  # as such a kill leaves it
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        again.delete(["sample-1-1"])
        assert holds(again.folder, b"sample-1-1") == []
        teach(again, range(3, 20))
        assert (again.folder / "journal.sqlite-wal").stat().st_size > LOG_BYTES


def test_the_prototypes_are_the_means_of_the_samples_that_remain(live):
    teach(live, range(12))
    live.delete([key for number in range(5, 12) for key in ids(number)[:2]])
    samples, labels = live.learner.memory.samples()
    features = live.learner.embed(samples)
    for label, prototype in live.learner.prototypes.items():
        mean = features[torch.tensor([other == label for other in labels])].mean(0)
        assert torch.allclose(prototype, mean / mean.norm(), atol=1e-6)  # of unit length, as for all rows


def test_a_class_without_samples_is_forgotten_by_a_learner_of_prototypes(live):
    teach(live, range(4))
    live.observe(torch.full((2, 6), -5.0) + torch.eye(2, 6), ["rare", "rare"], ["r1", "r2"])
    result = live.delete(["r1", "r2"])
    assert result.forgotten == ["rare"] and result.exemplars == 2
    assert "rare" not in live.classes
    teach(live, range(4, 6))


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_every_memory_stays_valid_after_deleting_and_correcting(name, tmp_path):
    learner = make(name, short_term_memory=100)
    task = {"t": 0} if learner.needs else {}
    with open_live(tmp_path / "live", learner) as live:
        for number in range(12):
            live.observe(*batch(number), ids(number), **task | ({"t": number // 6} if task else {}))
        held = stored(live)
        gone = [key for number in range(12) for key in ids(number)[:2]]
        deleted = [x.numpy().tobytes() for number in range(12) for x in batch(number)[0][:2]]
        result = live.delete(gone)
        assert result.exemplars == len(set(held) & set(deleted)) > 0
        left = {sample: label for sample, label in held.items() if sample not in deleted}
        assert stored(live) == left
        # The rest gets other labels, one of them a new one.
        kept = {
            key: sample.numpy().tobytes()
            for number in range(12)
            for key, sample in zip(ids(number)[2:], batch(number)[0][2:], strict=True)
            if sample.numpy().tobytes() in left
        }
        right = dict(zip(list(kept)[:3], ["new", "a", "b"], strict=True))
        result = live.correct(list(right), list(right.values()))
        assert result.exemplars == 3 and result.missing == []
        now = stored(live)
        assert [now[kept[key]] for key in right] == list(right.values())
        assert set(now) <= set(left)
        for number in range(12, 16):
            live.observe(*batch(number), **task | ({"t": 1} if task else {}))
        live.predict(batch(30)[0])
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            same_state(again.learner.state_dict(), live.learner.state_dict())


def test_the_logits_that_der_stores_move_with_their_exemplars(tmp_path):
    with open_live(tmp_path / "live", make("der++")) as live:
        teach(live, range(6))
        before = {
            sample.numpy().tobytes(): live.learner._stored[row].clone()
            for row, sample in enumerate(live.learner.memory.samples()[0])
        }
        live.delete([key for number in range(6) for key in ids(number)[1:3]])
        samples, _ = live.learner.memory.samples()
        assert 0 < len(samples) < len(before)
        for row, sample in enumerate(samples):
            assert torch.equal(live.learner._stored[row], before[sample.numpy().tobytes()])
        assert not live.learner._stored[len(samples) :].any()


def test_samples_with_equal_bytes_are_deleted_as_often_as_they_belong_to_the_ids(live):
    x = torch.ones(3, 6)
    live.observe(x, ["a", "a", "b"], ["one", "two", "one"])
    assert live.delete(["one"]).exemplars == 2
    assert len(live.learner.memory) == 1
    assert live.delete(["two"]).exemplars == 1


def test_ids_that_nobody_gave_are_missing(live):
    teach(live, range(2))
    state = live.learner.state_dict()
    result = live.delete(["nobody"])
    assert (result.missing, result.exemplars, result.waiting) == (["nobody"], 0, 0)
    same_state(live.learner.state_dict(), state)
    assert live.correct(["nobody"], ["a"]).missing == ["nobody"]
    same_state(live.learner.state_dict(), state)


def test_an_id_that_only_a_file_has_is_deleted_from_the_files(live):
    teach(live, range(8))
    gone = "sample-0-0"
    live._model.index.remove({gone})  # as if its sample had left the memory
    result = live.delete([gone])
    assert (result.exemplars, result.missing, live.position) == (0, [gone], 9)
    assert holds(live.folder, gone.encode()) == []


def test_rows_that_were_trimmed_are_overwritten_by_a_deletion_of_an_unknown_id(live):
    x, y = batch(0, 2000)
    live.observe(x, y)
    for number in range(1, 12):
        teach(live, [number])
        live._storage.settle()
    live._storage.journal._connection.execute("pragma wal_checkpoint(truncate)")
    content = x[1000].numpy().tobytes()
    bounds = live._storage.journal.bounds()
    assert bounds[0] > 1 and holds(live.folder, content) == ["journal.sqlite"]
    live.delete(["nobody"])
    assert live._storage.journal.bounds() == bounds
    assert holds(live.folder, content) == []


@pytest.mark.parametrize("call", ["delete", "correct"])
def test_a_rebuild_that_fails_changes_nothing(call, live, tmp_path, monkeypatch):
    teach(live, range(6))
    state, index = live.learner.state_dict(), live._model.index.ids()

    def diverge(*_):
        raise ValueError("this batch would make the weights infinite")

    with monkeypatch.context() as patched:
        patched.setattr(editing, "rebuild", diverge)
        with pytest.raises(ValueError, match="would make the weights infinite"):
            getattr(live, call)(ids(5), *([["a"] * 4] if call == "correct" else []), rebuild=True)
    same_state(live.learner.state_dict(), state)
    assert live._model.index.ids() == index
    teach(live, [6])
    with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
        same_state(again.learner.state_dict(), live.learner.state_dict())


def test_the_index_stays_about_as_long_as_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("everlearn.live.sample_index.LEAST", 50)
    with open_live(tmp_path / "live", cope(memory_size=9)) as live:
        live._model.index._limit = 50
        teach(live, range(60))
        assert len(live._model.index) <= 54
        held = {
            key: sample.numpy().tobytes()
            for number in range(60)
            for key, sample in zip(ids(number), batch(number)[0], strict=True)
        }
        inside = [key for key, sample in held.items() if sample in stored(live)]
        assert live.delete(inside).exemplars == len(inside) == 9


def test_a_corrected_label_moves_the_prototypes(live):
    teach(live, range(6))
    x = torch.full((1, 6), 30.0)
    live.observe(x, ["a"], ["wrong"])
    result = live.correct(["wrong"], ["c"])
    assert result.exemplars == 1 and "rebuild=True" in result.note
    assert stored(live)[x.numpy().tobytes()] == "c"
    samples, labels = live.learner.memory.samples()
    features = live.learner.embed(samples)
    mean = features[torch.tensor([label == "c" for label in labels])].mean(0)
    assert torch.allclose(live.learner.prototypes["c"], mean / mean.norm(), atol=1e-6)


# Training anew.


@pytest.mark.parametrize("name", ["cope", "cope+", "reservoir", "gss"])
def test_a_rebuilt_network_has_learnt_from_the_memory_alone(name, tmp_path):
    with open_live(tmp_path / "live", make(name)) as live:
        teach(live, range(15))
        memory, (batches, samples) = (
            live.learner.memory.samples(),
            (live.learner.batches, live.learner.samples),
        )
        result = live.delete(ids(14), rebuild=True)
        assert result.rebuilt and "trained anew" in result.note
        x, y = live.learner.memory.samples()
        assert len(y) == len(memory[1]) - result.exemplars
        assert (live.learner.batches, live.learner.samples) == (batches, samples)
        right = np.mean([answer == label for answer, label in zip(live.predict(x), y, strict=True)])
        assert right > 0.9
        # Weights depend on nothing but the memory: another history with the same memory gives the same.
        other = make(name)
        other.load_state_dict(live.learner.state_dict())
        with torch.no_grad():
            for part in other.parameters:
                part.add_(1)
        editing.rebuild(other)
        assert all(
            torch.equal(mine, theirs)
            for mine, theirs in zip(other.parameters, live.learner.parameters, strict=True)
        )
        teach(live, [15])
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            same_state(again.learner.state_dict(), live.learner.state_dict())


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_every_learner_is_rebuilt_or_says_why_not(name, tmp_path, monkeypatch):
    monkeypatch.setattr(editing, "STEPS", 5)
    monkeypatch.setattr(editing, "PASSES", 1)
    learner = make(name)
    task = {"t": 0} if learner.needs else {}
    with open_live(tmp_path / "live", learner) as live:
        for number in range(4):
            live.observe(*batch(number), ids(number), **task)
        if learner.memory is None or learner.needs:
            with pytest.raises(ValueError, match=r"rebuild=True"):
                live.delete(ids(0), rebuild=True)
            return
        live.delete(ids(0), rebuild=True)
        live.observe(*batch(5))
        with open_live(copy_as_killed(live, tmp_path / "killed")) as again:
            same_state(again.learner.state_dict(), live.learner.state_dict())


def test_what_can_not_be_rebuilt_is_refused_in_words(tmp_path):
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(6, 4))

        def forward(self, x):
            return x @ self.weight

    for learner, words in [
        (make("finetune"), "Finetune has no replay memory, so rebuild=True has nothing to train"),
        (make("gem"), "GEM needs the task of each batch"),
        (make("cope", Plain()), r"the network \(Plain\) has no method reset_parameters: add one"),
    ]:
        with open_live(tmp_path / learner.name / str(len(words)), learner) as live:
            live.observe(*batch(0), ids(0), **({"t": 0} if learner.needs else {}))
            with pytest.raises(ValueError, match=words):
                live.delete(ids(0), rebuild=True)
            assert live.position == 1


def test_a_network_of_ones_own_is_rebuilt_with_new_weights(tmp_path):
    with open_live(tmp_path / "live", make("cope", torch.nn.Linear(6, 4))) as live:
        teach(live, range(6))
        live.correct(ids(0)[:1], ["b"], rebuild=True)
        teach(live, [6])
        with open_live(
            copy_as_killed(live, tmp_path / "killed"), make("cope", torch.nn.Linear(6, 4))
        ) as again:
            same_state(again.learner.state_dict(), live.learner.state_dict())


def test_other_threads_go_on_while_samples_are_deleted(live):
    teach(live, range(6))
    working = threading.Thread(target=teach, args=(live, range(6, 30)))
    working.start()
    for i in range(4):
        live.delete([f"sample-{i}-0"])
    working.join()
    assert live.learner.batches == 30
    assert registry()["cope"] is type(live.learner)
    live.save()  # waits for the snapshot that may still be written
    for i in range(4):
        assert holds(live.folder, f"sample-{i}-0".encode()) == []
