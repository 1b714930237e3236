"""Runs as CSV: what tells two runs apart is in a column."""

import csv
import dataclasses

from runs_made_up import run

from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.codec import encode
from everlearn.experiments.export import COLUMNS, write_csv
from everlearn.experiments.job import ELSEWHERE, Job
from everlearn.experiments.runner import execute
from everlearn.streams.horizon import Horizon


def lines(records, tmp_path):
    write_csv(records, tmp_path / "runs.csv")
    return list(csv.DictReader((tmp_path / "runs.csv").read_text("utf-8").splitlines()))


def test_every_field_of_a_job_that_changes_its_numbers_is_a_column():
    assert {field.name for field in dataclasses.fields(Job)} - set(ELSEWHERE) <= set(COLUMNS)


def test_runs_that_differ_in_one_field_differ_in_the_csv(tmp_path):
    usual = Job("cope", "split-digits", 0)
    changes = [
        {"class_order": "seed"}, {"class_order": (1, 0)}, {"paradigm": "online"}, {"infer": "novelty"},
        {"cost": 2.0}, {"validation": True}, {"evaluator": Evaluator(horizon="all")},
        {"horizon": Horizon("window", 20)}, {"horizon": Horizon("window", 30)},
    ]  # fmt: skip
    jobs = [usual, *(dataclasses.replace(usual, **change) for change in changes)]
    found = [tuple(line.items()) for line in lines([run(job, 90, key="") for job in jobs], tmp_path)]
    assert len(set(found)) == len(jobs)


def test_the_prequential_accuracy_has_a_column(tmp_path):
    job = Job("knn", "split-digits", 0, evaluator=Evaluator(prequential=True))
    result = execute(job)
    (line,) = lines([run(job, 90, result=encode(result))], tmp_path)
    assert float(line["prequential_accuracy"]) == result.prequential_accuracy


def test_each_metric_of_ones_own_has_a_column(tmp_path):
    job = Job("cope", "split-digits", 0)
    mine = run(job, 90)
    measured = dataclasses.replace(mine, result=mine.result | {"metrics": {"seed": 0.25}})
    first, second = lines([mine, measured], tmp_path)
    assert (first["metric_seed"], second["metric_seed"], second["seed"]) == ("", "0.25", "0")


def test_new_columns_come_after_those_of_earlier_versions():
    assert COLUMNS[:13] == (
        "key", "learner", "stream", "seed", "imbalance", "batch_size", "scenario", "amount", "horizon", "epochs",
        "alone", "validation", "settings",
    )  # fmt: skip
    assert COLUMNS.index("error") < COLUMNS.index("class_order")
