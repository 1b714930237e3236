"""The command beside each number repeats its runs."""

import dataclasses
import json
import shlex
from typing import Any

import pytest

from everlearn.cli import main
from everlearn.cli.run import _job, parse
from everlearn.evaluation import metrics
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.command import command
from everlearn.experiments.job import ELSEWHERE, Job, key
from everlearn.experiments.runner import execute
from everlearn.streams.horizon import Horizon

SMALL = {"hidden": 10, "memory_size": 30, "iterations": 1}
JOBS = [
    Job("cope", "split-digits", 0, imbalance=2, settings={**SMALL, "renormalise": False}),
    Job("reservoir", "split-digits", 0, batch_size=50, scenario="blurry", amount=0.3, settings=SMALL),
    Job(
        "finetune", "split-digits", 0, imbalance=1, horizon=Horizon("window", 40, 2), settings={"hidden": 10}
    ),
    Job("knn", "split-digits", 0, evaluator=Evaluator(horizon="current")),
]
# A value of every field that is not the default; "no flag" where `everlearn run` can't set it.
OF_A_JOB: dict[str, Any] = {
    "learner": "reservoir",
    "stream": "elec2",
    "seed": "--seeds",
    "imbalance": 2,
    "batch_size": 20,
    "scenario": "blurry",
    "amount": 0.3,
    "evaluator": Evaluator(every=7),
    "horizon": Horizon("task", epochs=3),
    "paradigm": "online",
    "infer": "novelty",
    "cost": 2.5,
    "settings": {"momentum": 0.5, "renormalise": False, "network": "mlp"},
    "alone": "changes the time alone",
    "validation": True,
    "class_order": "seed",
}
OF_AN_EVALUATOR: dict[str, Any] = {
    "every": 7,
    "transitions": "no flag",
    "horizon": "all",
    "concepts": "evolving",
    "tests": "no job has them",
    "confined": "no flag",
    "prequential": True,
    "representation": True,
    "asynchronous": True,
    "metrics": {"mine": metrics.anytime_accuracy},
}


def typed(job: Job) -> Job:
    """The job that one gets by typing the command of this one."""
    return _job(*parse(shlex.split(command(job.plain()))[2:]), seed=0)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.learner)
def test_typing_the_command_gives_the_same_accuracy(job, capsys):
    words = shlex.split(command(job.plain()))
    assert words[0] == "everlearn"
    assert main([*words[1:], "--json", "--device", "cpu", "--no-keep"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["accuracy"]["per_seed"] == [execute(job).accuracy]


def test_what_is_usual_is_left_out():
    assert command(Job("cope", "split-mnist", 3).plain(), seeds=5) == (
        "everlearn run --learner cope --stream split-mnist --seeds 5"
    )


def test_every_field_of_a_job_and_of_its_evaluator_is_tried_here():
    assert {field.name for field in dataclasses.fields(Job)} - set(ELSEWHERE) == set(OF_A_JOB)
    assert {field.name for field in dataclasses.fields(Evaluator)} == set(OF_AN_EVALUATOR)


@pytest.mark.parametrize("name", [name for name in OF_A_JOB if name not in ("seed", "alone")])
def test_the_command_repeats_every_field_of_a_job(name):
    job = dataclasses.replace(Job("cope", "split-digits", 0), **{name: OF_A_JOB[name]})
    assert key(job) != key(Job("cope", "split-digits", 0))
    assert key(typed(job)) == key(
        job if name != "stream" else dataclasses.replace(job, evaluator=Evaluator(prequential=True))
    )


@pytest.mark.parametrize(
    "name", [name for name, value in OF_AN_EVALUATOR.items() if not str(value).startswith("no ")]
)
def test_the_command_repeats_every_field_of_an_evaluator(name):
    job = Job("cope", "split-digits", 0, evaluator=Evaluator(**{name: OF_AN_EVALUATOR[name]}))
    assert key(job) != key(Job("cope", "split-digits", 0))
    assert key(typed(job)) == key(job)


@pytest.mark.parametrize(
    ("job", "what"),
    [
        (Job("cope", "split-digits", 0, evaluator=Evaluator(transitions=False, every=5)), "transitions = False"),
        (Job("cope", "split-digits", 0, evaluator=Evaluator(confined=True)), "confined = True"),
        (Job("cope", "split-digits", 0, class_order=(3, 1, 0, 2, 4, 5, 6, 7, 8, 9)), "class_order = (3, 1"),
        (Job("cope", "split-digits", 0, evaluator=Evaluator(metrics={"mine": lambda history: 0.0})), "the metric"),
    ],
)  # fmt: skip
def test_what_no_flag_sets_is_said_instead_of_a_command_with_other_numbers(job, what):
    assert command(job.plain()).startswith(f"your own script: no flag of everlearn run sets {what}")
