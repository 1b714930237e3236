"""Runs as JSON files in a folder, and back."""

import dataclasses
import json

import pytest
from runs_made_up import failed, five, run

from everlearn.experiments import results
from everlearn.experiments.job import Job, key, key_of


def test_runs_come_back_as_they_were_but_for_the_seventh_digit(tmp_path):
    records = five("cope", "split-mnist", [94.123456789, 93]) + five("mir", "split-cifar10", [40])
    assert [path.relative_to(tmp_path).as_posix() for path in results.export(records, tmp_path)] == [
        "split-cifar10/mir.json",
        "split-mnist/cope.json",
    ]
    back = {record.key: record for record in results.read(tmp_path)}
    assert len(back) == 3
    for record in records:
        other = back[record.key]
        assert other.result["accuracy"] == pytest.approx(record.result["accuracy"], abs=1e-6)
        same = {"result": None}
        assert dataclasses.replace(other, **same) == dataclasses.replace(record, **same)
        assert other.result["confusion"] == record.result["confusion"]


def test_each_run_is_one_line_and_a_second_export_changes_nothing(tmp_path):
    records = five("cope", "split-mnist", [94, 93, 92])
    (path,) = results.export(records, tmp_path)
    text = path.read_text()
    assert sum('"seed":' in line for line in text.splitlines()) == 3
    results.export(reversed(records), tmp_path)
    assert path.read_text() == text


def test_new_runs_stand_beside_old_ones_and_the_newer_of_two_stays(tmp_path):
    job = Job("cope", "split-mnist", 0)
    results.export([run(job, 90, started="2026-01-02"), run(Job("cope", "split-mnist", 1), 91)], tmp_path)
    results.export([run(job, 80, started="2026-01-01")], tmp_path)
    results.export([run(Job("cope", "split-mnist", 2, settings={"momentum": 0.5}), 70)], tmp_path)
    assert sorted(r.result["accuracy"] for r in results.read(tmp_path)) == [0.7, 0.9, 0.91]


def test_failed_runs_and_the_miniature_stay_out(tmp_path):
    assert (
        results.export([failed(Job("cope", "split-mnist", 0)), *five("cope", "split-digits", [96])], tmp_path)
        == []
    )


def test_a_large_confusion_matrix_stays_out(tmp_path):
    record = run(Job("cope", "split-cifar100", 0), 20)
    record.result["confusion"] = {"labels": list(range(100)), "counts": [[0] * 100] * 100}
    results.export([record], tmp_path)
    assert results.read(tmp_path)[0].result["confusion"] is None


@pytest.mark.parametrize("content", ["[]", "{", '{"format": 99, "groups": []}', json.dumps({"groups": 3})])
def test_a_file_that_is_no_result_is_named(tmp_path, content):
    path = tmp_path / "split-mnist" / "cope.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ValueError, match="cope.json is not a valid file of results"):
        results.read(tmp_path)


def test_a_run_is_known_by_its_settings_whatever_the_defaults_were_when_it_was_made(tmp_path):
    job = Job("reservoir", "split-mnist", 0)
    results.export([dataclasses.replace(run(job, 90), key="a name of old")], tmp_path)
    assert [record.key for record in results.read(tmp_path)] == [key(job)]


@pytest.mark.parametrize("name", ["cope", "cope+", "reservoir"])
def test_a_run_has_the_key_of_its_job_once_its_settings_are_complete(name):
    job = Job(name, "split-mnist", 0)
    assert key_of(job.plain(), job.all_settings()) == key(job)


def test_the_keys_of_version_0_1_0_are_known_though_defaults_have_changed():
    paper, released = (Job("cope", "split-digits", 0, settings={"renormalise": on}) for on in (True, False))
    older = {name: value for name, value in paper.all_settings().items() if name != "renormalise"}
    assert key(Job("cope", "split-mnist", 0)) == "83b8e44aae9426f6"  # in stores of that version
    assert key_of(paper.plain(), older) == key(paper)
    assert key(released) == key(Job("cope", "split-digits", 0)) != key(paper)
    # cope+ of that version had other prototypes and no views by itself.
    plus = Job("cope+", "split-digits", 0)
    old = {
        name: v for name, v in plus.all_settings().items() if name not in ("learn_prototypes", "augmentation")
    }
    assert key_of(plus.plain(), old) != key(plus)
