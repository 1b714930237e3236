"""The scoreboard: every model meets the same records, predicted before they are learnt; runs are stored."""

import dataclasses
import itertools

import pytest
import torch

from everlearn.cli import main
from everlearn.experiments import scoreboard as board
from everlearn.streams.record_stream import RECORD_STREAMS, RecordStream, record_stream


@pytest.fixture
def small(monkeypatch):
    """A stream of forty records in which the second feature is the class."""

    def rows(data_dir, seed):
        x = torch.randn(40, 2, generator=torch.Generator().manual_seed(seed))
        return x, (x[:, 1] > 0).long()

    monkeypatch.setitem(RECORD_STREAMS, "sea", rows)


def test_a_record_is_predicted_before_it_is_learnt():
    class Memory:
        """Knows a record only once it was learnt."""

        def __init__(self):
            self.known = {}

        def predict(self, x):
            return self.known.get(float(x[0])), 0.5

        def learn(self, x, y):
            self.known[float(x[0])] = y

    stream = RecordStream("own", torch.tensor([[1.0], [2.0], [1.0], [3.0]]), torch.tensor([0, 1, 0, 1]))
    found = board.score(Memory(), stream, "memory", 0)
    assert (found.accuracy, found.records, found.stream) == (0.25, 4, "own")


@pytest.mark.parametrize("name", board.MODELS)
def test_every_model_learns_from_records(small, name, tmp_path):
    pytest.importorskip("river")
    (found,) = board.scoreboard(tmp_path / "scores.jsonl", ["sea"], [name], seeds=1)
    assert found.model == name and found.records == 40
    assert 0 <= found.accuracy <= 1 and 0 <= found.calibration_error <= 1


def test_no_change_predicts_the_last_label(small, tmp_path):
    (found,) = board.scoreboard(tmp_path / "scores.jsonl", ["sea"], ["no change"], seeds=1)
    y = record_stream("sea").y.tolist()
    assert found.accuracy == pytest.approx(sum(a == b for a, b in itertools.pairwise(y)) / 40)


def test_a_stored_run_is_not_run_again_and_a_cut_line_is(small, tmp_path, monkeypatch):
    path = tmp_path / "scores.jsonl"
    first = list(board.scoreboard(path, ["sea"], ["no change", "finetune"], seeds=2))
    with path.open("a") as file:
        file.write('{"stream": "sea", "mod')
    monkeypatch.setitem(board.MODELS, "no change", lambda *_: pytest.fail("it ran again"))
    assert list(board.scoreboard(path, ["sea"], ["no change", "finetune"], seeds=2)) == first


def test_the_table_has_the_best_first():
    low = board.Score("sea", "a", 0, 0.5, 0.0, 0.1, 10, 100.0)
    high = [dataclasses.replace(low, model="b", seed=seed, accuracy=0.8 + 0.1 * seed) for seed in (0, 1)]
    assert board.table([low, *high]) == [
        ("sea", "b", "85.00 ± 7.07", "0.000", "0.100", "100", "10", "2"),
        ("sea", "a", "50.00", "0.000", "0.100", "100", "10", "1"),
    ]


def test_the_command_prints_it(small, tmp_path, capsys):
    words = ["reproduce", "real-streams", "--streams", "sea", "--learners", "no change", "--seeds", "1"]
    assert main([*words, "--store", str(tmp_path / "runs.sqlite"), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("1 runs")
    assert main([*words, "--store", str(tmp_path / "runs.sqlite")]) == 0
    said = capsys.readouterr()
    assert "no change" in said.out and "calibration error" in said.out
    assert "no change on sea, seed 0" in said.err
    assert main([*words[:4], "--learners", "arf"]) != 0
    assert "there is no model 'arf'" in capsys.readouterr().err
