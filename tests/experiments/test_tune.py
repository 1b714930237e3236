"""Settings chosen on the validation part: the space, the study in a file, pruning, and the test set left alone."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from everlearn.cli import main
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments import tune as module
from everlearn.experiments.job import Job
from everlearn.experiments.runner import execute
from everlearn.experiments.search_space import Choice, parse_space
from everlearn.experiments.tune import tune

SMALL = {"hidden": 16, "memory_size": 50}


@pytest.fixture
def job() -> Job:
    return Job("reservoir", "split-digits", 0, imbalance=1, settings=SMALL, device="cpu")


def test_the_best_settings_are_those_of_the_best_trial_on_the_validation_part(
    job: Job, tmp_path: Path
) -> None:
    space = {"learning_rate": Choice((1e-6, 0.05, 0.2))}
    found = tune(job, space, trials=6, study=tmp_path / "study.journal", metric="anytime_accuracy")
    assert found.trials == 6 and not found.test and found.settings["hidden"] == 16
    repeated = execute(Job("reservoir", "split-digits", 0, imbalance=1, settings=found.settings, validation=True,
                           device="cpu"))  # fmt: skip
    assert found.value == repeated.anytime_accuracy
    assert found.settings["learning_rate"] != 1e-6
    assert json.loads(found.file.read_text())["settings"] == found.settings


def test_only_validation_runs_before_the_test_is_asked_for(job: Job, tmp_path: Path, monkeypatch) -> None:
    seen: list[bool] = []
    monkeypatch.setattr(module, "execute", lambda job: seen.append(job.validation) or execute(job))
    tune(job, {"learning_rate": Choice((0.05, 0.1))}, trials=2, study=tmp_path / "a.journal")
    assert seen == [True, True]
    found = tune(
        job, {"learning_rate": Choice((0.05, 0.1))}, trials=2, study=tmp_path / "a.journal", test=True
    )
    assert seen == [True, True, False] and len(found.test) == 1


def test_a_study_goes_on_where_it_stopped(job: Job, tmp_path: Path) -> None:
    space, study = parse_space("reservoir", ["learning_rate=0.01:0.5"]), tmp_path / "study.journal"
    lines: list[str] = []
    tune(job, space, trials=2, study=study)
    found = tune(job, space, trials=3, study=study, told=lines.append)
    assert found.trials == 3 and len(lines) == 1 and lines[0].startswith("trial 3: accuracy ")


def test_an_interrupted_trial_is_run_again(job: Job, tmp_path: Path, monkeypatch) -> None:
    def interrupted(job: Job) -> None:
        raise KeyboardInterrupt

    space, study = {"learning_rate": Choice((0.05, 0.1))}, tmp_path / "study.journal"
    monkeypatch.setattr(module, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(job, space, trials=1, study=study)
    monkeypatch.undo()
    found = tune(job, space, trials=1, study=study)
    assert (found.trials, found.failed) == (1, 0)


def test_a_hopeless_trial_is_stopped_early_and_one_that_diverges_fails(tmp_path: Path) -> None:
    job = Job("finetune", "split-digits", 0, evaluator=Evaluator(every=10), device="cpu",
              settings={"hidden": 16, "outputs": 10})  # fmt: skip
    study = tmp_path / "study.journal"
    tune(job, {"learning_rate": Choice((0.1,))}, trials=6, study=study)
    watched = dataclasses.replace(job, validation=True)
    search = module._Search(watched, {"learning_rate": Choice((0.1,))}, 1, "accuracy", study)
    trial = search.study.ask()
    search._run_alone(trial, {"learning_rate": 1e-6})
    assert search.study.trials[trial.number].state.name == "PRUNED"
    other = search.study.ask()
    search._run_alone(other, {"learning_rate": 1e30, "clip": None})
    assert search.study.trials[other.number].state.name == "FAIL"
    assert "infinite or NaN" in search.study.trials[other.number].user_attrs["error"]
    assert search.result(test=False).pruned == 1


@pytest.mark.parametrize("metric", ["accuracy", "forgetting"])
def test_of_a_trial_that_is_stopped_early_no_number_is_told(metric: str, tmp_path: Path) -> None:
    job = Job("finetune", "split-digits", 0, evaluator=Evaluator(every=10), device="cpu",
              settings={"hidden": 16, "outputs": 10})  # fmt: skip
    search = module._Search(job, {}, 1, metric, tmp_path / "study.journal")
    for rate in (0.1, 0.1, 0.1, 0.1, 0.1, 1e-6):
        trial = search.study.ask()
        search._run_alone(trial, {"learning_rate": rate})
    assert search._ended(trial) == "stopped early"


def test_the_least_forgetting_does_not_stop_trials_of_a_high_accuracy(tmp_path: Path) -> None:
    job = Job("finetune", "split-digits", 0, evaluator=Evaluator(every=10), device="cpu",
              settings={"hidden": 16, "outputs": 10})  # fmt: skip
    search = module._Search(job, {}, 1, "forgetting", tmp_path / "study.journal")
    for rate in (1e-6, 1e-6, 1e-6, 1e-6, 1e-6, 0.1):
        trial = search.study.ask()
        search._run_alone(trial, {"learning_rate": rate})
    assert search._ended(trial).startswith("forgetting ")


def test_together_trials_get_the_results_of_their_own_seeds(job: Job, tmp_path: Path) -> None:
    search = module._Search(
        job, {"learning_rate": Choice((0.01, 0.2))}, 2, "accuracy", tmp_path / "s.journal"
    )
    trials = [search.study.ask() for _ in range(2)]
    search._run_together(trials, [{"learning_rate": rate} for rate in (0.01, 0.2)])
    for trial, rate in zip(search.study.trials, (0.01, 0.2), strict=True):
        runs = [execute(each).accuracy for each in search._jobs({"learning_rate": rate})]
        assert trial.value == pytest.approx(sum(runs) / 2)


def test_a_range_of_ten_times_is_searched_in_its_logarithm() -> None:
    space = parse_space(
        "cope", ["learning_rate=0.01:0.1", "momentum=0.5:0.9", "embedding=none,50", "hidden=8:64"]
    )
    assert space["learning_rate"].log and not space["momentum"].log
    assert space["embedding"].options == (None, 50) and space["hidden"].whole


def test_a_range_is_no_value_of_a_setting_that_stays(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--learner", "finetune", "--set", "learning_rate=0.1:0.5"]) == 2
    said = (
        "everlearn: --set takes one value of each setting, such as hidden=64, not 'learning_rate=0.1:0.5'\n"
    )
    assert capsys.readouterr().err == said
    assert main(["tune", "--learner", "finetune", "--set", "optimizer=sgd,adam"]) == 2


def test_a_batch_size_of_zero_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "--learner", "finetune", "--batch-size", "0"]) == 2
    assert "batch_size must be a whole number, at least 1, not 0" in capsys.readouterr().err


def test_the_command_tunes_prints_and_saves(
    tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "tune --learner finetune --imbalance 1 --trials 2 --search learning_rate=0.01:0.5 --set hidden=16 --test"
    assert main(words.split()) == 0
    said = capsys.readouterr()
    assert "best of 2 trials: accuracy" in said.out and "on the test samples:" in said.out
    assert (
        "run them: everlearn run --learner finetune --stream split-digits --seeds 5 --imbalance 1" in said.out
    )
    assert said.err.count("trial ") == 2
    assert (tmp_path / "runs" / "tune" / "finetune-split-digits.json").exists()
    assert main([*words.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "tune --search learning_rte=1:2",
            "cope has no setting 'learning_rte'; did you mean 'learning_rate'",
        ),
        (
            "tune --search learning_rate=2:1",
            "a search is name=low:high, with low below high, or name=a,b,c; not 'learning_rate=2:1'",
        ),
        ("tune --trials 0", "trials must be a whole number, at least 1, not 0"),
        ("tune --stream split-digit", "there is no stream 'split-digit'; did you mean 'split-digits'"),
        ("tune --set hidden=x", "not 'hidden=x'"),
    ],
)
def test_a_mistake_is_one_clear_sentence(
    words: str, message: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
