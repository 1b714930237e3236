"""Reproducing: what is stored is not run again, what fails stops nothing, and Ctrl-C loses little."""

import contextlib
import csv
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest
from runs_made_up import five, run

from everlearn.cli import main
from everlearn.core.plan import plan_shape
from everlearn.experiments.estimate import describe, rates, seconds
from everlearn.experiments.export import write_csv
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.runner import attempt, execute, outcomes
from everlearn.experiments.store import Store
from everlearn.paper.report.exports import as_csv, as_json
from everlearn.paper.reproduce import plan, reproduce
from everlearn.paper.tables import tables
from everlearn.streams.horizon import Horizon

MINE = """
title = "Mine"
source = "a paper"
seeds = SEEDS
[[panels]]
title = "Accuracy, %"
figure = "table"
source = "its Table 1"
all = { settings = { hidden = 20, iterations = 1 }, imbalance = 1 }
columns = { split-digits = { stream = "split-digits" } }
published = { finetune = { split-digits = [12.5, 0.5] } }
[panels.rows]
finetune = { learner = "finetune" }
cope = { learner = "cope" }
"""


@pytest.fixture
def mine(tmp_path):
    def write(seeds=2, more=""):
        path = tmp_path / "mine.toml"
        path.write_text(MINE.replace("SEEDS", str(seeds)) + more, "utf-8")
        return path

    return write


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store.sqlite"


def test_what_is_stored_is_not_run_again(mine, store):
    first = reproduce(mine(), SweepOptions(store=store, device="cpu"))
    assert (first.done, len(first.todo)) == (0, 4)
    before = Store(store).records()
    again = reproduce(mine(), SweepOptions(store=store, device="cpu"))
    assert (again.done, len(again.todo)) == (4, 0)
    assert Store(store).records() == before
    more = plan(mine(seeds=3), SweepOptions(store=store))
    assert (more.done, [job.seed for job in more.todo]) == (4, [2, 2])


def test_the_paper_stands_beside_ours(mine, store, capsys):
    reproduce(mine(), SweepOptions(learners=["finetune"], store=store, device="cpu"))
    out = capsys.readouterr().out
    accuracies = [100 * record.result["accuracy"] for record in Store(store).records()]
    assert "Mine (a paper)" in out
    assert f"{sum(accuracies) / 2:.2f} ± {abs(accuracies[0] - accuracies[1]) / 2**0.5:.2f}" in out
    assert "12.50 ± 0.50" in out


def test_an_experiment_of_ones_own_has_its_report(mine, store, tmp_path, capsys):
    reproduce(mine(), SweepOptions(learners=["finetune"], store=store, device="cpu"))
    page = tmp_path / "report" / "report.html"
    words = ["report", str(store), "--out", str(page.parent)]
    assert main(words) == 0
    assert "Mine" in page.read_text("utf-8") and "Other runs" not in page.read_text("utf-8")
    assert main([*words, "--experiments", str(mine())]) == 0
    own = page.read_text("utf-8")
    assert "Mine" in own and "12.50" in own and "Other runs" not in own
    assert main([*words, "--experiments", "balancd"]) == 2
    assert "did you mean 'balanced'?" in capsys.readouterr().err


def test_a_store_that_is_named_after_the_experiments_is_told_apart_from_them(mine, store, capsys):
    reproduce(mine(), SweepOptions(learners=["finetune"], store=store, device="cpu"))
    for given in (store, "not-there.sqlite"):
        assert main(["report", "--experiments", str(mine()), str(given)]) == 2
        said = capsys.readouterr().err
        assert f"{given} is taken for an experiment, since it comes after --experiments" in said
        assert f"`everlearn report {given} --experiments {mine()}`" in said


def test_the_exit_code_says_whether_runs_failed(mine, store, capsys):
    broken = mine(1, 'broken = { learner = "cope", settings = { memory_size = 3 } }')
    words = ["reproduce", str(broken), "--store", str(store), "--device", "cpu"]
    assert main(words) == 1
    assert "12.50 ± 0.50" in capsys.readouterr().out
    assert len(Store(store).records()) == 3
    assert main([*words, "--learners", "finetune"]) == 0


def test_a_run_that_fails_is_recorded_and_the_rest_goes_on(mine, store, capsys):
    broken = mine(1, 'broken = { learner = "cope", settings = { memory_size = 3 } }')
    reproduce(broken, SweepOptions(store=store, device="cpu"))
    errors = [record.error for record in Store(store).records()]
    assert errors[:2] == [None, None]
    assert "a memory of 3 has no room" in errors[2]
    said = capsys.readouterr()
    assert "1 of 3 runs failed" in said.err
    assert "a memory of 3 has no room" in said.out
    again = plan(broken, SweepOptions(store=store))
    assert (again.done, len(again.todo), again.failed) == (2, 1, 1)


def test_ctrl_c_loses_only_the_runs_in_flight_and_the_same_command_goes_on(mine, store):
    many = mine(60)  # enough that they run in processes
    words = [sys.executable, "-m", "everlearn", "reproduce", many, "--store", store, "--workers", "2"]
    process = subprocess.Popen(
        [*map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # What runs in the background ignores Ctrl-C, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.time() + 120
    while len(Store(store).records()) < 3 and process.poll() is None and time.time() < deadline:
        time.sleep(0.05)
    # As a terminal does it: to every process of the command.
    subprocess.run(["kill", "-INT", "--", f"-{process.pid}"], check=True)
    _, err = process.communicate(timeout=60)
    records = Store(store).records()
    assert process.returncode == 130
    assert f"stopped: {len(records)} of 120 runs are in" in err
    assert "Traceback" not in err
    assert 3 <= len(records) < 120
    assert all(record.error is None for record in records)
    assert plan(many, SweepOptions(store=store)).done == len(records)


def test_an_interrupt_that_a_library_swallows_is_not_lost(mine, store, monkeypatch, capsys):
    def swallowing(jobs, *options):
        for place, job in enumerate(jobs):
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            yield place, attempt(job)

    monkeypatch.setattr("everlearn.experiments.sweep.outcomes", swallowing)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            reproduce(mine(), SweepOptions(store=store, device="cpu"))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped: 1 of 4 runs are in" in capsys.readouterr().err


class Deadly(Job):
    """A job that takes its process down with it."""

    def open_stream(self):
        import os

        os.kill(os.getpid(), signal.SIGKILL)


def test_a_run_that_kills_its_process_fails_alone(monkeypatch):
    from everlearn.experiments import runner

    monkeypatch.setattr(runner, "WORTH_PROCESSES", 0)
    small = {"hidden": 20, "iterations": 1}
    jobs = [
        (Deadly if seed == 1 else Job)(
            "cope", "split-digits", seed, imbalance=1, device="cpu", settings=small
        )
        for seed in range(4)
    ]
    counted = []
    ended = list(outcomes(jobs, counted.append, workers=2))
    assert sorted(place for place, _ in ended) == [0, 1, 2, 3]
    failed = {place: outcome.error for place, outcome in ended if outcome.error is not None}
    assert list(failed) == [1]
    assert "its process was killed" in str(failed[1])
    assert dict(ended)[3].result.accuracy == execute(jobs[3]).accuracy
    assert sum(counted) == 3 * 280


class Watched(Job):
    """A job that does nothing but write down from when to when it ran, in the folder of its data."""

    def open_stream(self):
        begun = time.time()
        time.sleep(0.3)
        times = [begun, time.time(), self.alone]
        (pathlib.Path(self.data_dir) / f"{self.seed}.json").write_text(json.dumps(times))
        raise RuntimeError("it only watched the clock")


def test_no_run_that_must_be_alone_runs_beside_another(monkeypatch, tmp_path):
    from everlearn.experiments import runner

    monkeypatch.setattr(runner, "WORTH_PROCESSES", 0)
    jobs = [
        Watched("cope", "split-digits", seed, device="cpu", data_dir=str(tmp_path), alone=seed in (0, 3))
        for seed in range(6)
    ]
    assert len(list(outcomes(jobs, workers=2))) == 6
    spans = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert sum(alone for *_, alone in spans) == 2
    for begun, ended, alone in spans:
        others = [(start, end) for start, end, _ in spans if start != begun]
        assert not alone or all(end <= begun or start >= ended for start, end in others)


def test_runs_of_equal_shape_are_grouped_for_a_cohort():
    from everlearn.experiments.runner import COHORT, _alike

    momenta = [
        Job("cope", "split-mnist", seed, settings={"momentum": alpha})
        for alpha in (0, 0.9)
        for seed in range(3)
    ]
    others = [
        Job("cope", "split-mnist", 0, batch_size=20),
        Job("cope", "split-mnist", 0, settings={"iterations": 2}),
    ]
    many = [Job("finetune", "split-mnist", seed) for seed in range(COHORT + 1)]
    groups = _alike(list(enumerate([*momenta, *others, *many])))
    assert groups == [[*range(6)], [6], [7], [*range(8, 8 + COHORT)], [8 + COHORT]]


def test_a_group_is_split_into_cohorts_of_equal_shape_and_who_is_left_alone_runs_alone(monkeypatch):
    from everlearn.experiments import runner

    met = []

    class OneByOne:
        """A cohort where there is no GPU."""

        def __init__(self, runs):
            self.runs = runs
            met.append([run.learner.settings.mixing for run in runs])

        def finish(self):
            return [run.finish() for run in self.runs]

    monkeypatch.setattr(runner, "Cohort", OneByOne)
    monkeypatch.setattr(runner, "shape_of", lambda run: plan_shape(run.learner, 10))
    monkeypatch.setattr(runner, "hardware", lambda device: device)
    overrides = [
        {"mixing": 0.0},
        {"mixing": 0.4},
        {"mixing": 0.0},
        {"mixing": 0.2},
        {"colour": 0.4, "width": 8},
    ]
    jobs = {
        place: Job("cope", "split-digits", place, imbalance=1, device="cpu", settings=settings)
        for place, settings in enumerate(overrides)
    }
    ended = dict(runner._cohorts(jobs, lambda samples: None))
    assert met == [[0.0, 0.0], [0.4, 0.2]]
    assert sorted(ended) == [0, 1, 2, 3] and {outcome.together for outcome in ended.values()} == {2}
    for place, outcome in ended.items():
        assert outcome.result.accuracy == next(outcomes([jobs[place]]))[1].result.accuracy


def test_an_estimate_goes_by_earlier_runs_of_the_same_kind(mine, store):
    reproduce(mine(1), SweepOptions(store=store, device="cpu"))
    earlier = rates(Store(store).records())
    by_learner = {record.job["learner"]: record for record in Store(store).records()}
    job = Job("cope", "split-digits", 7, imbalance=1, device="cpu", settings={"hidden": 20, "iterations": 3})
    assert seconds(job, earlier) == pytest.approx(3 * by_learner["cope"].seconds)
    # Without an earlier run, by the table: 280 samples, 5 iterations, 1700 samples a second.
    assert seconds(Job("cope", "split-digits", 0, imbalance=1, device="cpu"), {}) == 280 * 5 / 1700


def test_an_estimate_counts_runs_that_are_alone_one_after_the_other(tmp_path, store):
    path = tmp_path / "mine.toml"
    path.write_text(MINE.replace("SEEDS", "40").replace("imbalance = 1", "imbalance = 1, epochs = 100"))
    together = describe(
        plan(path, SweepOptions(learners=["cope"], store=store, device="cpu")), store, workers=2
    )
    path.write_text(path.read_text().replace("imbalance = 1,", "imbalance = 1, alone = true,"))
    alone = describe(plan(path, SweepOptions(learners=["cope"], store=store, device="cpu")), store, workers=2)
    took = [float(re.search(r"together about (\d+) minutes", said)[1]) for said in (together, alone)]
    # 40 runs, 100 epochs of 280 samples, 1700 samples a second.
    assert took == [round(40 * 28_000 / 1700 / 2 / 60), round(40 * 28_000 / 1700 / 60)]
    assert "in 1 process, 40 of them one after the other" in alone


def test_an_estimate_tells_apart_what_is_not_the_same(store):
    for name in ("balanced", "all"):
        said = describe(
            plan(name, SweepOptions(learners=["curl", "cope"], quick=True, store=store, device="cpu")), store
        )
        titles = [line.split(":")[0] for line in said.splitlines() if line.startswith("  ")]
        assert len(titles) == len(set(titles))
    assert "curl on split-digits, 10 epochs: 2 runs" in said
    assert "curl on split-digits, 1 epoch: 2 runs" in said
    assert "curl on split-digits, 1 epoch, alone: 2 runs" in said


def test_a_dry_run_says_what_would_run_and_writes_nothing(mine, store, capsys):
    assert main(["reproduce", str(mine()), "--dry-run", "--store", str(store)]) == 0
    out = capsys.readouterr().out
    assert "0 runs are stored, 4 to go" in out
    assert "cope on split-digits, S(T_1), hidden 20, iterations 1: 2 runs, about" in out
    assert not store.exists()


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A machine that has no dataset, and an empty folder for them."""
    monkeypatch.delenv("EVERLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_an_estimate_says_what_it_does_not_know(store, nowhere):
    missing = plan(
        "balanced", SweepOptions(learners=["cope"], streams=["split-cifar10"], store=store, data_dir=nowhere)
    )
    assert "10 runs of unknown length" in describe(missing, store)
    assert "its data are not here" in describe(missing, store)


def test_larger_batches_have_a_rate_of_their_own():
    online, own = (Job("curl", "split-digits", 0, batch_size=size, device="cpu") for size in (10, 100))
    assert seconds(online, {}) == own.passes() / 240
    assert seconds(own, {}) == own.passes() / 1100


def test_a_dataset_that_is_not_here_is_said_before_anything_runs(store, nowhere):
    with pytest.raises(ValueError, match="everlearn data fetch cifar10"):
        reproduce(
            "balanced",
            SweepOptions(learners=["cope"], streams=["split-cifar10"], store=store, data_dir=nowhere),
        )
    assert Store(store).records() == []


def test_every_learner_of_one_experiment_is_enough_for_all():
    chosen = plan("all", SweepOptions(learners=["gem", "cope"], streams=["split-mnist"], seeds=1))
    assert [each.name for each in chosen.experiments] == [
        "balanced", "buffer", "imbalanced", "pseudo-prototypes", "batch-size", "resources", "momentum",
        "beyond",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no experiment has the learner 'gemm'; did you mean 'gem'"):
        plan("all", SweepOptions(learners=["gemm"]))


def test_reproducing_needs_neither_tyro_nor_ray(mine, store):
    code = f"""
import sys
sys.modules["tyro"] = sys.modules["ray"] = None
from everlearn.paper.reproduce import SweepOptions, reproduce
reproduce({str(mine(1))!r}, SweepOptions(learners=["finetune"], store={str(store)!r}, device="cpu"))
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert len(Store(store).records()) == 1


def test_runs_are_exported_and_merged(mine, store, tmp_path, capsys):
    reproduce(mine(1), SweepOptions(store=store, device="cpu"))
    reproduce(mine(2), SweepOptions(learners=["cope"], store=tmp_path / "second.sqlite", device="cpu"))
    capsys.readouterr()
    paths = [str(store), str(tmp_path / "second.sqlite")]
    exports = ["--csv", str(tmp_path / "runs.csv"), "--json", str(tmp_path / "runs.json")]
    assert main(["report", *paths, *exports, "--merge", str(tmp_path / "all.sqlite")]) == 0
    runs = json.loads((tmp_path / "runs.json").read_text())
    assert sorted((run["job"]["learner"], run["job"]["seed"]) for run in runs) == [
        ("cope", 0), ("cope", 1), ("finetune", 0),
    ]  # fmt: skip
    lines = (tmp_path / "runs.csv").read_text().splitlines()
    assert lines[0].startswith("key,learner,stream,seed")
    assert len(lines) == 4
    assert len(Store(tmp_path / "all.sqlite").records()) == 3
    assert "3 runs were added to" in capsys.readouterr().out
    assert main(["report", *paths, "--merge", str(tmp_path / "all.sqlite")]) == 0
    assert "0 runs were added to" in capsys.readouterr().out


def test_exported_runs_tell_apart_what_is_not_the_same(tmp_path):
    usual, alone = run(Job("cope", "split-mnist", 0), 90), run(Job("cope", "split-mnist", 0, alone=True), 90)
    offline = run(Job("iid-offline", "split-mnist", 0, horizon=Horizon("stream", epochs=7)), 90)
    chosen = run(Job("cope", "split-mnist", 0, validation=True), 90)
    write_csv([usual, alone, offline, chosen], tmp_path / "runs.csv")
    lines = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    options = [[line[name] for name in ("horizon", "epochs", "alone", "validation")] for line in lines]
    assert options == [
        ["batch", "1", "False", "False"],
        ["batch", "1", "True", "False"],
        ["stream", "7", "False", "False"],
        ["batch", "1", "False", "True"],
    ]


def test_exported_tables_tell_a_run_that_was_alone_from_its_twin():
    records = five("cope", "split-mnist", [90]) + five("cope", "split-mnist", [90], alone=True)
    cells = {cell["experiment"]: cell for cell in csv.DictReader(as_csv(tables(records)).splitlines())}
    assert (cells["balanced"]["alone"], cells["resources"]["alone"]) == ("False", "True")
    assert cells["balanced"]["epochs"] == "1"
    cells = {table["experiment"]: table["cells"][0] for table in json.loads(as_json(tables(records)))}
    assert (cells["balanced"]["alone"], cells["resources"]["alone"]) == (False, True)


def test_a_low_capacity_stream_sends_few_samples_a_task(mnist_dir):
    job = Job("cope", "split-mnist-mini", 0, data_dir=str(mnist_dir))
    assert job.passes() == 5000
    with pytest.raises(ValueError, match="split-mnist-mini has no imbalanced variants"):
        Job("cope", "split-mnist-mini", 0, imbalance=1, data_dir=str(mnist_dir)).open_stream()
