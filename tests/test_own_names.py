"""Learners, networks, streams, metrics and trackers by the name module:attribute: command line and TOML."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import pytest

from everlearn import stream
from everlearn.cli import main
from everlearn.experiments.command import command
from everlearn.experiments.job import Job
from everlearn.experiments.store import Store

OWN = '''
import numpy as np
from torch import nn
from everlearn import Tracker, split
from everlearn.learners.reservoir import Reservoir

class Mine(Reservoir):
    """A method of one's own."""
    name = "mine"
    version = "1.5"

def net(shape):
    return nn.Sequential(nn.Linear(shape[0], 9), nn.ReLU())

def points(seed, validation=False, class_order="sorted", name="points"):
    labels = np.arange(80) % 4
    x = np.random.default_rng(0).normal(0, 1, (80, 5)).astype("float32") + labels[:, None]
    return split(x, labels, tasks=2, validation=validation, class_order=class_order, seed=seed, name=name)

def otherwise(seed, batch_size=32, scenario="blurry", **options):
    return points(seed, name=f"{batch_size} {scenario} {sorted(options)}")

def needed(seed, batch_size):
    return points(seed, name=str(batch_size))

def lowest(history):
    return min(each.accuracy for each in history)

class Written(Tracker):
    def end(self, result):
        with open("tracked.txt", "a") as file:
            file.write(f"{result.learner} {result.seed}\\n")
'''

TOML = """
title = "Points"
seeds = 2
every = 2
track = ["own_parts:Written"]
metrics = { lowest = "own_parts:lowest" }
[[panels]]
title = "Accuracy, %"
figure = "table"
reference = "mine"
all = { settings = { memory_size = 20 } }
[panels.rows]
mine = { learner = "own_parts:Mine", settings = { network = "own_parts:net" } }
reservoir = { learner = "reservoir", settings = { hidden = 8 } }
[panels.columns]
points = { stream = "own_parts:points", class_order = "seed" }
held_out = { stream = "own_parts:points", validation = true }
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's in the working directory."""
    (tmp_path / "own_parts.py").write_text(OWN)
    (tmp_path / "points.toml").write_text(TOML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)


def test_everything_of_ones_own_runs_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--learner own_parts:Mine --stream own_parts:points --network own_parts:net --track own_parts:Written"
    )
    more = "--memory-size 20 --seeds 2 --validation --class-order seed --optimizer adam --json"
    more += " --metrics lowest=own_parts:lowest"
    assert main(["run", *words.split(), *more.split()]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["learner"] == "mine" and printed["settings"]["network"] == "own_parts:net"
    assert printed["settings"]["versions"]["learner"] == "own_parts.Mine 1.5"
    assert printed["settings"]["class_order"] == "seed" and printed["settings"]["validation"] is True
    assert Path("tracked.txt").read_text() == "mine 0\nmine 1\n"
    assert len(printed["metrics"]["lowest"]["per_seed"]) == 2
    assert main(["run", *words.split(), "--memory-size", "20", "--metrics", "lowest=own_parts:lowest"]) == 0
    assert "lowest" in capsys.readouterr().out


def test_everything_of_ones_own_runs_from_a_file_and_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "points.toml", "--store", "s.sqlite", "--device", "cpu"]) == 0
    records = Store("s.sqlite").records()
    assert len(records) == 8 and all(run.error is None for run in records)
    (one,) = [run for run in records if run.job["learner"] == "own_parts:Mine" and run.job["seed"] == 1
              and run.job.get("validation")]  # fmt: skip
    assert one.job["versions"].keys() == {"learner", "stream", "network"}
    assert one.result["metrics"]["lowest"] <= 1 and one.job["evaluator"]["every"] == 2
    assert len(Path("tracked.txt").read_text().splitlines()) == 8
    capsys.readouterr()
    words = (
        "report s.sqlite --latex out/t.tex --markdown out/t.md --figures out --format svg --names mine=Ours"
    )
    more = "--colours mine=#123456 --metrics accuracy lowest --experiments points.toml"
    assert main([*words.split(), *more.split()]) == 0
    latex = Path("out/t.tex").read_text()
    assert latex.count(r"\toprule") == 2 and "Ours &" in latex
    assert "| Ours |" in Path("out/t.md").read_text()
    assert "#123456" in Path("out/points-points-lowest.svg").read_text()
    assert command(one.job, 2).startswith(
        "everlearn run --learner own_parts:Mine --stream own_parts:points --seeds 2 --validation"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run --learner own_parts:Min", "there is no learner 'own_parts:Min'"),
        ("run --stream own_parts:point", "there is no stream 'own_parts:point'"),
        ("run --network own_parts:nt", "there is no network 'own_parts:nt'"),
        ("run --track tensorbord", "did you mean 'tensorboard'"),
        ("run --stream own_parts:points --scenario blurry", "has no scenario: add the parameter scenario"),
        ("run --metrics lowest", "--metrics takes NAME=MODULE:FUNCTION"),
        ("run --class-order sed", "did you mean 'seed'"),
        ("report nowhere.sqlite --latex t.tex", "nowhere.sqlite does not exist"),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err


def test_a_metric_or_name_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "points.toml", "--store", "s.sqlite", "--device", "cpu", "--seeds", "1"]) == 0
    assert main(["report", "s.sqlite", "--latex", "t.tex", "--metrics", "acuracy"]) == 2
    assert "there is no metric 'acuracy'; did you mean 'accuracy'" in capsys.readouterr().err
    assert main(["report", "s.sqlite", "--latex", "t.tex", "--names", "mine"]) == 2
    assert "--names takes ROW=VALUE" in capsys.readouterr().err


def test_a_file_with_a_wrong_name_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    Path("points.toml").write_text(TOML.replace("own_parts:points", "own_parts:poits"))
    assert main(["reproduce", "points.toml", "--store", "s.sqlite"]) == 2
    said = capsys.readouterr().err
    assert (
        "points.toml, panel 'Accuracy, %', row 'mine', column 'points': there is no stream 'own_parts:poits'"
        in said
    )


def test_a_function_gets_the_options_of_the_run_whatever_its_own_defaults_are() -> None:
    run = functools.partial(Job, "cope", seed=0)
    assert run("own_parts:otherwise").open_stream().name == "10 split []"
    other = run("own_parts:otherwise", batch_size=16, scenario="recurring")
    assert other.open_stream().name == "16 recurring []"
    assert run("own_parts:needed").open_stream().name == "10"
    assert stream("own_parts:otherwise").name == "32 split []"  # it is not said how many arrive together
