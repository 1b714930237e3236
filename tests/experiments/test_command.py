"""The command beside each number repeats its runs."""

import json
import shlex

import pytest

from everlearn.cli import main
from everlearn.experiments.command import command
from everlearn.experiments.job import Job
from everlearn.experiments.runner import execute
from everlearn.streams.horizon import Horizon

SMALL = {"hidden": 10, "memory_size": 30, "iterations": 1}
JOBS = [
    Job("cope", "split-digits", 0, imbalance=2, settings={**SMALL, "renormalise": False}),
    Job("reservoir", "split-digits", 0, batch_size=50, scenario="blurry", amount=0.3, settings=SMALL),
    Job(
        "finetune", "split-digits", 0, imbalance=1, horizon=Horizon("window", 40, 2), settings={"hidden": 10}
    ),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.learner)
def test_typing_the_command_gives_the_same_accuracy(job, capsys):
    words = shlex.split(command(job.plain()))
    assert words[0] == "everlearn"
    assert main([*words[1:], "--json", "--device", "cpu"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["accuracy"]["per_seed"] == [execute(job).accuracy]


def test_what_is_usual_is_left_out():
    assert command(Job("cope", "split-mnist", 3).plain(), seeds=5) == (
        "everlearn run --learner cope --stream split-mnist --seeds 5"
    )
