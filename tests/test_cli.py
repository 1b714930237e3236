"""The command line, called as a user does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.experiments.job import Job, key
from everlearn.experiments.store import Store

QUICK = ["--hidden", "20", "--iterations", "1", "--memory-size", "30", "--imbalance", "2"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(monkeypatch, tmp_path_factory):
    """Runs are stored in the folder of the command."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def typed(capsys, *words):
    """The exit code, standard output and standard error of a command."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    return code, out, err


def test_help_names_every_command_learner_and_stream(capsys):
    code, out, _ = typed(capsys, "--help")
    assert code == 0
    for word in ("demo", "run", "data", "cope", "finetune", "split-digits", "split-cifar100", "--imbalance"):
        assert word in out


def test_help_of_a_run_shows_defaults_of_the_benchmark_and_the_papers_symbols(capsys):
    code, out, _ = typed(capsys, "run", "--stream", "split-mnist", "--imbalance", "3", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0
    for words in (
        "τ",
        "α",
        "|M_r|",
        "--memory-size INT",
        "(default: 300)",
        "--momentum FLOAT",
        "(default: 0.99)",
    ):
        assert words in text


def test_json_is_one_object_with_the_names_of_the_contract(capsys):
    code, out, _ = typed(capsys, "run", "--seeds", 2, "--json", *QUICK)
    answer = json.loads(out)
    assert code == 0
    assert list(answer) == [
        "learner",
        "stream",
        "seeds",
        "accuracy",
        "anytime_accuracy",
        "worst_case_accuracy",
        "forgetting",
        "memory_bytes",
        "samples_per_second",
        "settings",
    ]
    assert (answer["learner"], answer["stream"], answer["seeds"]) == ("cope", "split-digits", [0, 1])
    spread = answer["accuracy"]
    assert len(spread["per_seed"]) == 2
    assert spread["mean"] == pytest.approx(sum(spread["per_seed"]) / 2)
    assert 0 <= spread["mean"] <= 1
    assert answer["settings"]["memory_size"] == 30
    assert answer["settings"]["network"] == "mlp"


def test_a_setting_on_the_command_line_overrides_the_benchmark(capsys):
    _, out, _ = typed(capsys, "run", "--json", "--no-renormalise", "--momentum", "0.5", *QUICK)
    settings = json.loads(out)["settings"]
    assert settings["renormalise"] is False
    assert settings["momentum"] == 0.5
    assert settings["temperature"] == 0.1


def test_the_same_seed_gives_the_same_numbers_in_two_processes(capsys, tmp_path):
    _, here, _ = typed(capsys, "run", "--json", *QUICK)
    words = [sys.executable, "-m", "everlearn", "run", "--json", *QUICK]
    there = subprocess.run(words, capture_output=True, check=True, text=True, cwd=tmp_path).stdout
    assert json.loads(here)["accuracy"] == json.loads(there)["accuracy"]


def test_runs_are_stored_and_the_report_has_them(capsys):
    code, out, _ = typed(capsys, "run", "--seeds", 2, "--momentum", "0.5", *QUICK)
    assert code == 0
    assert "2 seeds, mean ± std" in out and out.count("±") > 3
    assert "settings: network mlp, " in out and "hidden 20, " in out
    assert "memory_size 30, momentum 0.5, embedding 100; all others are the defaults of cope" in out
    assert "stored in runs/store.sqlite; `everlearn report` shows all runs so far" in out
    assert typed(capsys, "report", "--csv", "runs.csv")[0] == 0
    lines = Path("runs.csv").read_text("utf-8").splitlines()
    assert len(lines) == 3 and all("cope,split-digits" in line for line in lines[1:])
    (run, _) = Store("runs/store.sqlite").records()
    assert run.job["settings"] == {"iterations": 1, "hidden": 20, "memory_size": 30, "momentum": 0.5}
    assert run.key == key(Job("cope", "split-digits", 0, imbalance=2, settings=run.job["settings"]))
    # A run that is stored already stays as it was.
    assert typed(capsys, "run", "--momentum", "0.5", *QUICK)[0] == 0
    assert Store("runs/store.sqlite").records()[0] == run


def test_a_store_of_one_s_own_and_none_at_all(capsys):
    code, out, _ = typed(capsys, "run", "--store", "mine.sqlite", *QUICK)
    assert code == 0 and "`everlearn report mine.sqlite` shows all runs so far" in out
    assert len(Store("mine.sqlite").records()) == 1
    code, out, _ = typed(capsys, "run", "--no-keep", *QUICK)
    assert code == 0 and "stored in" not in out
    assert not Path("runs").exists()


def test_a_run_that_fails_is_not_stored(capsys):
    assert typed(capsys, "run", "--seeds", 2, "--memory-size", 3)[0] == 2
    assert not Path("runs").exists()


def test_numbers_are_shown_although_the_store_fails_in_the_meantime(capsys, monkeypatch):
    from everlearn.experiments import runner

    def then_spoilt(*given):
        Path("mine.sqlite").write_text("something else")
        return original(*given)

    original = runner.execute_all
    monkeypatch.setattr(runner, "execute_all", then_spoilt)
    code, out, err = typed(capsys, "run", "--store", "mine.sqlite", *QUICK)
    assert code == 1
    assert "accuracy %" in out and "stored in" not in out
    assert "everlearn: not all runs are stored: mine.sqlite is not a store of runs" in err


def test_the_paper_s_stream_says_that_it_renormalises(capsys):
    _, out, _ = typed(capsys, "run", "--stream", "split-mnist", "--help")
    assert "None: for rows (default: True)" in " ".join(out.replace("│", " ").split())
    _, out, _ = typed(capsys, "run", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "in the paper's text, not its released code; None: for rows (default: None)" in text


def test_a_table_and_pictures(capsys, tmp_path):
    code, out, _ = typed(capsys, "run", "--plots", "--out", tmp_path, "--every", 5, *QUICK)
    assert code == 0
    assert "accuracy %" in out and "1 seed" in out
    assert "±" not in out  # one run has no deviation
    pictures = sorted(tmp_path.glob("*.png"))
    assert len(pictures) >= 2
    assert all(picture.read_bytes().startswith(b"\x89PNG") and str(picture) in out for picture in pictures)


def test_the_demo_compares_two_learners_and_says_what_to_try_next(capsys, tmp_path):
    code, out, _ = typed(capsys, "demo", "--seeds", 1, "--out", tmp_path)
    assert code == 0
    assert "cope" in out
    assert "finetune" in out
    assert "Try next" in out and "1 seed" in out and "±" not in out  # one run has no deviation
    assert len(list(tmp_path.glob("*.png"))) == 2


MISTAKES = {
    "there is no command 'rn'; did you mean 'run'?": ["rn"],
    "there is no learner 'cop'; did you mean 'cope'?": ["run", "--learner", "cop"],
    "there is no stream 'split-digit'; did you mean 'split-digits'?": ["run", "--stream", "split-digit"],
    "there is no network 'mpl'; did you mean 'mlp'?": ["run", "--network", "mpl"],
    "seeds must be at least 1, not 0": ["run", "--seeds", "0"],
    "imbalance must be one of the tasks 1 to 5 of split-digits, not 9": ["run", "--imbalance", "9"],
    "momentum must be between 0 and 1, not 2.0": ["run", "--momentum", "2"],
    "every is a number of batches of at least 1": ["run", "--every", "0"],
    "a memory of 3 has no room for an exemplar of each of 10 classes": ["run", "--memory-size", "3"],
    "everlearn data fetch mnist": ["run", "--stream", "split-mnist", "--data-dir", "/nowhere"],
    "there is no option --momentm; did you mean --momentum?": ["run", "--momentm", "0.9"],
    "--momentum takes a number, not 'much'": ["run", "--momentum", "much"],
    "--seeds takes a whole number, not 'x'": ["run", "--seeds", "x"],
    "everlearn: momentum must be between 0 and 1, not 2.0": ["run", "--momentum", "2"],
    "--seeds needs a value": ["run", "--seeds"],
    "--infer is one of": ["run", "--infer", "x"],
    "everlearn observe needs PATH": ["observe"],
    "there is no option --temperature: `everlearn run --learner finetune --help` lists all": [
        *("run", "--learner", "finetune", "--temperature", "3")
    ],
    "device is auto, cpu, cuda, mps or another of torch's, not 'tpu'": ["run", "--device", "tpu"],
    "epochs must be at least 1, not 0": ["run", "--epochs", "0"],
    "/dev/null/runs.sqlite can't be created, since /dev/null is not a folder; name another file with --store, or "
    "add --no-keep": ["run", "--store", "/dev/null/runs.sqlite"],
    "/dev/null/pictures: Not a directory": ["run", "--plots", "--out", "/dev/null/pictures"],
    "can't be written (Not a directory)": ["run", "--checkpoint", "/dev/null/state", "--every", "5"],
    "there is no dataset 'mnits'": ["data", "verify", "mnits"],
    "no dataset was named": ["data", "fetch"],
    "the data folder /nowhere does not exist": ["data", "list", "--data-dir", "/nowhere"],
    "there is no experiment 'balancd'; did you mean 'balanced'?": ["reproduce", "balancd"],
    "balanced has no learner 'cop'; did you mean 'cope'?": ["reproduce", "balanced", "--learners", "cop"],
    "balanced has nothing of curl on split-cifar10": [
        "reproduce",
        "balanced",
        "--learners",
        "curl",
        "--streams",
        "split-cifar10",
    ],
    "--address auto is of a Ray cluster: add --backend ray": ["reproduce", "balanced", "--address", "auto"],
    "workers must be at least 1, not 0": ["reproduce", "balanced", "--workers", "0"],
    "device is auto, cpu, cuda or mps, not 'gpu'": ["reproduce", "balanced", "--device", "gpu"],
    "mine.toml does not exist": ["reproduce", "mine.toml"],
    "nowhere.sqlite does not exist": ["report", "nowhere.sqlite"],
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_gets_an_answer_that_helps_and_exit_code_2(sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, out, err = typed(capsys, *MISTAKES[sentence])
    assert code == 2
    assert sentence in err
    assert err.startswith("everlearn: ")
    assert err.count("\n") == 1
    assert out == ""
    assert not Path("runs").exists()  # no store without a run


def test_json_has_null_for_a_metric_that_is_not_defined(capsys):
    metric = "bwt=everlearn.evaluation.metrics:backward_transfer"
    code, out, _ = typed(capsys, "run", "--scenario", "iid", "--metrics", metric, "--json", *QUICK)
    answer = json.loads(out, parse_constant=pytest.fail)  # called for NaN, which is no JSON
    assert (code, answer["metrics"]["bwt"]) == (0, {"mean": None, "std": 0.0, "per_seed": [None]})


def test_a_stream_without_held_out_samples_has_no_pictures(capsys):
    Path("sensor.py").write_text("def rows():\n    return [([[0.0, 1.0], [1.0, 0.0]], ['a', 'b'])] * 3\n")
    code, out, _ = typed(
        capsys, "run", "--learner", "finetune", "--stream", "sensor:rows", "--plots", "--no-keep"
    )
    assert code == 0
    assert "there are no pictures, since the stream has no held-out samples" in out


def test_a_run_with_the_answer_none_of_these_is_stored(capsys):
    code, _, err = typed(capsys, "run", "--unknown", "0.9", "--store", "s.sqlite", *QUICK)
    assert (code, err) == (0, "")
    assert "UNKNOWN" in Store("s.sqlite").records()[0].result["confusion"]["labels"]


def test_json_says_under_what_conditions_it_ran(capsys):
    words = ("run", "--imbalance", 1, "--batch-size", 7, "--learner", "finetune", "--epochs", 2, "--json")
    code, out, _ = typed(capsys, *words)
    assert code == 0
    settings = json.loads(out)["settings"]
    assert (settings["imbalance"], settings["batch_size"], settings["scenario"]) == (1, 7, "split")
    assert settings["horizon"] == {"extent": "batch", "samples": None, "epochs": 2}


def test_epochs_are_of_the_learners_own_horizon(capsys):
    code, out, err = typed(capsys, "run", "--learner", "iid-offline", "--epochs", 1, "--json")
    assert code == 0
    settings = json.loads(out)["settings"]
    assert settings["horizon"] == {"extent": "stream", "samples": None, "epochs": 1}
    assert settings["scenario"] == "iid"  # which the learner requires
    assert "times, as published" not in err


def test_who_passes_many_times_says_so(capsys, monkeypatch):
    from everlearn.experiments import runner

    monkeypatch.setattr(runner, "execute_all", lambda jobs, progress, on_end: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        typed(capsys, "run", "--learner", "curl", "--traceback")
    assert "curl passes over each task 83 times, as published" in capsys.readouterr().err


def test_pictures_of_variants_do_not_overwrite_each_other(capsys, tmp_path):
    code, out, _ = typed(
        capsys, "run", "--learner", "finetune", "--scenario", "blurry", "--plots", "--out", tmp_path
    )
    assert code == 0
    assert "split-digits, blurry" in out
    assert (tmp_path / "finetune-split-digits-blurry-accuracy.png").is_file()


def test_an_altered_dataset_file_is_named(capsys, tmp_path, mnist_dir):
    source = Path(mnist_dir) / "MNIST" / "raw"
    target = tmp_path / "MNIST" / "raw"
    target.mkdir(parents=True)
    for file in source.iterdir():
        content = bytearray(file.read_bytes())
        if file.name == "train-labels-idx1-ubyte":
            content[100] ^= 1
        (target / file.name).write_bytes(content)
    code, _, err = typed(capsys, "run", "--stream", "split-mnist", "--data-dir", tmp_path)
    assert code == 2
    assert "train-labels-idx1-ubyte" in err
    assert err.count("\n") == 1


def test_data_list_names_all_datasets(capsys):
    code, out, _ = typed(capsys, "data", "list")
    assert code == 0
    for name in ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100"):
        assert name in out


def test_data_verify_reads_what_is_here(capsys):
    code, out, _ = typed(capsys, "data", "verify", "digits")
    assert code == 0
    assert "digits: valid" in out


def test_many_seeds_run_in_processes_and_give_what_they_give_alone(monkeypatch):
    from everlearn.experiments import runner

    settings = {"hidden": 20, "iterations": 1}
    jobs = [runner.Job("cope", "split-digits", seed, imbalance=1, settings=settings) for seed in (0, 1)]
    alone = [runner.execute(job).accuracy for job in jobs]
    monkeypatch.setattr(runner, "WORTH_PROCESSES", 0)
    counted = []
    together = runner.execute_all(jobs, counted.append)
    assert [result.accuracy for result in together] == alone
    assert sum(counted) == sum(result.samples for result in together)
