"""An experiment with one's own learners, networks, streams and metrics: runner, store, tables, figures, report."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import everlearn
from everlearn import CoPE, Evaluator, Tracker, experiment, split
from everlearn.experiments import runner, significance
from everlearn.experiments.job import Job, key
from everlearn.experiments.own import Own, make_own_learner
from everlearn.experiments.store import Store
from everlearn.learners.finetune import Finetune
from everlearn.learners.reservoir import Reservoir
from everlearn.paper.other_runs import other_runs
from everlearn.paper.paper_tables import metric_view
from everlearn.paper.writers import to_markdown


class Mine(Reservoir):
    """A method of one's own."""

    name = "mine"


def clouds(seed: int, scenario: str = "split", validation: bool = False) -> Any:
    """Four classes of points, each around its own centre."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % 4
    x = random.normal(0, 1, (120, 6)).astype(np.float32) + 3 * np.eye(6, dtype=np.float32)[labels]
    return split(x, labels, tasks=2, scenario=scenario, validation=validation, seed=seed)


def net(shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 12), nn.ReLU())


def lowest(history: Any) -> float:
    return min(each.accuracy for each in history)


SMALL = {"memory_size": 20, "hidden": 8}
ROWS = {
    "ours": Mine,
    "reservoir": "reservoir",
    "made": lambda seed, stream: CoPE(
        "mlp", hidden=8, memory_size=len(stream.classes) * 5, seed=seed, device="cpu"
    ),
    "tuned": {"learner": Mine, "learning_rate": 0.2},
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> everlearn.paper.experiment_result.ExperimentResult:
    store = tmp_path_factory.mktemp("own") / "store.sqlite"
    measured = Evaluator(every=4, metrics={"lowest": lowest})
    return experiment(
        ROWS,
        {"points": clouds, "digits": "split-digits"},
        seeds=3,
        store=store,
        settings=SMALL,
        evaluator=measured,
        against="ours",
        device="cpu",
        title="Points and digits",
    )


def test_every_cell_has_a_run_of_every_seed_and_is_the_run_one_makes_by_hand(found) -> None:
    assert not found.errors
    assert all(len(cell.runs) == 3 for cell in found.table.cells) and len(found.table.cells) == 8
    by_hand = everlearn.run(Mine(seed=1, device="cpu", **SMALL), clouds(1), Evaluator(every=4))
    assert found.per_seed("ours", "points")[1] == by_hand.accuracy
    assert found.per_seed("ours", "points", "anytime_accuracy")[1] == by_hand.anytime_accuracy
    assert found.per_seed("ours", "points", "lowest")[1] == lowest(by_hand.history)
    assert found.mean("ours", "points") == pytest.approx(
        np.mean(list(found.per_seed("ours", "points").values()))
    )


def test_runs_are_stored_once_and_again_only_after_the_method_changed(found, monkeypatch) -> None:
    ran: list[Job] = []
    attempt = runner.attempt
    monkeypatch.setattr(
        runner, "attempt", lambda job, progress=None: ran.append(job) or attempt(job, progress)
    )
    again = functools.partial(
        experiment,
        seeds=3,
        store=found.store,
        settings=SMALL,
        evaluator=Evaluator(every=4, metrics={"lowest": lowest}),
    )
    again({"ours": Mine}, {"points": clouds}, device="cpu")
    assert ran == []
    monkeypatch.setattr(Mine, "version", "2", raising=False)
    again({"ours": Mine}, {"points": clouds}, device="cpu")
    assert [job.seed for job in ran] == [0, 1, 2]


def test_the_store_names_the_versions_of_what_is_not_the_librarys(found) -> None:
    (record,) = [run for run in Store(found.store).records() if run.job["learner"] == "ours" and run.job["seed"] == 2
                 and run.job["stream"] == "points" and "Mine 2" not in str(run.job)]  # fmt: skip
    assert record.job["versions"].keys() == {"learner", "stream"}
    assert "test_own_experiment.Mine " in record.job["versions"]["learner"]
    assert record.settings["memory_size"] == 20 and record.result["metrics"]["lowest"] <= 1
    assert all(each["metrics"]["lowest"] <= 1 for each in record.result["evaluations"])


def test_the_comparison_is_paired_over_seeds_against_the_chosen_row(found) -> None:
    compared = {(c.cell.cell.row, c.cell.cell.column): c for c in found.comparisons()}
    assert all(c.against.cell.row == "ours" for c in compared.values()) and len(compared) == 6
    ours, other = (
        {s: 100 * v for s, v in found.per_seed(r, "digits").items()} for r in ("ours", "reservoir")
    )
    one = compared["reservoir", "digits"].difference
    assert one.mean == pytest.approx(significance.paired(ours, other).mean)


def test_latex_has_booktabs_the_best_in_bold_and_names_of_ones_own(found, tmp_path: Path) -> None:
    text = found.to_latex(
        tmp_path / "t.tex", ["accuracy", "lowest"], names={"ours": "Ours (2026)", "points": "Points"}
    )
    assert (tmp_path / "t.tex").read_text() == text
    assert text.count(r"\toprule") == 2 == text.count(r"\begin{tabular}{lrr}") and "Ours (2026) &" in text
    means = {row: found.mean(row, "points") for row in ROWS}
    assert rf"\textbf{{{100 * max(means.values()):.2f}}}" in text
    assert "method & Points & digits" in text
    table = found.to_markdown(metrics=["forgetting"])
    least = min(100 * found.mean(row, "points", "forgetting") for row in ROWS)
    assert f"**{least:.2f}".replace("-", "−") in table  # less forgetting is better
    assert found.to_csv().splitlines()[0] == "method,points,digits"


def test_a_star_marks_what_differs_from_the_best_significantly(found) -> None:
    star = {
        line.split(" ")[1]: line.rstrip(" |").endswith("\\*")
        for line in found.to_markdown().splitlines()[4:8]
    }
    rows = list(ROWS)
    values = {row: {s: 100 * v for s, v in found.per_seed(row, "digits").items()} for row in rows}
    best = max(rows, key=lambda row: sum(values[row].values()))
    others = [row for row in rows if row != best]
    adjusted = significance.holm([significance.paired(values[best], values[row]).p for row in others])
    expected = dict(zip(others, (p < 0.05 for p in adjusted), strict=True)) | {best: False}
    text = found.to_markdown().splitlines()
    for row in rows:
        line = next(line for line in text if line.startswith(f"| {row} "))
        assert ("*" in line.split("|")[3].replace("**", "")) == expected[row], (line, star)


def test_a_cell_with_fewer_seeds_than_most_says_how_many(found) -> None:
    cells = tuple(
        dataclasses.replace(cell, runs=cell.runs[:2])
        if (cell.cell.row, cell.cell.column) == ("tuned", "digits")
        else cell
        for cell in found.table.cells
    )
    short = to_markdown(metric_view(dataclasses.replace(found.table, cells=cells)))
    rows = {
        line.split("|")[1].strip(): line.split("|")[-2].replace("*", "").strip()
        for line in short.splitlines()
    }
    assert rows["tuned"].endswith("n = 2")
    assert not any("n =" in shown for row, shown in rows.items() if row != "tuned")


def test_a_metric_that_was_not_measured_has_no_mean(found) -> None:
    with pytest.raises(ValueError, match="there is no metric 'lowst'; did you mean 'lowest'"):
        found.mean("ours", "digits", "lowst")


def test_figures_are_vector_files_in_a_columns_width(found, tmp_path: Path) -> None:
    written = found.figures(tmp_path, "svg", width=3.0, names={"ours": "Ours"}, colours={"ours": "#123456"})
    assert sorted(path.name for path in written) == [
        f"points-and-digits-{column}-{metric}.svg"
        for column in ("digits", "points")
        for metric in ("accuracy", "lowest")
    ]
    text = (tmp_path / "points-and-digits-points-lowest.svg").read_text()
    assert "Ours" in text and "#123456" in text and 'width="216pt"' in text
    (pdf,) = [path for path in found.figures(tmp_path, "pdf") if "digits-accuracy" in path.name]
    assert pdf.read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match="figures are written as pdf, svg, png, not as 'gif'"):
        found.figures(tmp_path, "gif")


def test_the_report_shows_own_rows_and_how_to_repeat_them(found, tmp_path: Path) -> None:
    text = found.report(tmp_path).read_text()
    assert "Points and digits" in text and "ours less each other method" in text
    assert "your own script, with everlearn.experiment" in text
    assert "everlearn run --learner reservoir --stream split-digits" in text


def test_the_report_of_a_store_shows_only_the_newest_version_of_a_method(tmp_path: Path, monkeypatch) -> None:
    again = functools.partial(
        experiment, {"mine": Mine}, {"points": clouds}, seeds=1, settings=SMALL, device="cpu"
    )
    again(store=tmp_path / "s")
    monkeypatch.setattr(Mine, "version", "2", raising=False)
    again(store=tmp_path / "s")
    records = Store(tmp_path / "s").records()
    assert len(records) == 2
    (table,) = other_runs(records, [])
    (cell,) = table.cells
    assert cell.cell.column == "points" and cell.cell.row.startswith("mine, ")
    assert [run.job["versions"]["learner"].split()[-1] for run in cell.runs] == ["2"]


def test_it_shows_itself_as_a_table(found) -> None:
    assert "ours" in repr(found) and "points" in repr(found) and "<table" in found._repr_html_()


def test_parallel_processes_take_functions_of_ones_own(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "WORTH_PROCESSES", 0)
    rows = {
        "a": lambda seed: Mine("mlp", seed=seed, device="cpu", **SMALL),
        "b": {"learner": Finetune, "hidden": 8},
    }
    found = experiment(rows, {"points": lambda seed: clouds(seed)}, seeds=2, store=tmp_path / "s", workers=2)
    assert not found.errors and len(found.per_seed("a", "points")) == 2


def test_a_network_of_ones_own_is_made_for_every_seed(tmp_path: Path) -> None:
    found = experiment(["reservoir", "cope"], {"points": clouds}, seeds=2, network=net, store=tmp_path / "s")
    assert not found.errors
    (record, *_) = Store(found.store).records()
    assert record.settings["network"] == "module:Sequential" and "network" in record.job["versions"]
    weights = [runner.open_run(Job("reservoir", "p", seed, own=Own(stream=clouds, network=net))).learner.given
               for seed in (0, 0, 1)]  # fmt: skip
    assert torch.equal(weights[0][0].weight, weights[1][0].weight)
    assert not torch.equal(weights[0][0].weight, weights[2][0].weight)


def test_options_reach_the_function_of_a_stream(tmp_path: Path) -> None:
    whole, part = (clouds(0, validation=v).samples for v in (False, True))
    experiment(
        {"f": Finetune}, {"p": clouds}, seeds=1, store=tmp_path / "s", validation=True, settings={"hidden": 4}
    )
    (record,) = Store(tmp_path / "s").records()
    assert record.result["samples"] == part < whole and record.job["validation"]
    with pytest.raises(ValueError, match="the stream 'p' has no class_order: add the parameter"):
        experiment({"f": Finetune}, {"p": clouds}, seeds=1, store=tmp_path / "s", class_order="seed")


def test_a_tracker_of_ones_own_watches_every_run(tmp_path: Path) -> None:
    seen: list[str] = []

    class Seen(Tracker):
        def start(self, run: Any) -> None:
            seen.append(run.name)

    experiment(
        {"f": Finetune}, {"p": clouds}, seeds=2, store=tmp_path / "s", track=Seen, settings={"hidden": 4}
    )
    assert seen == ["finetune-p-0", "finetune-p-1"] or len(seen) == 2


def test_a_job_of_the_library_keeps_its_key() -> None:
    assert key(Job("cope", "split-mnist", 0)) == key(
        Job("cope", "split-mnist", 0, class_order="sorted", track=("x",))
    )
    assert key(Job("cope", "split-mnist", 0)) != key(Job("cope", "split-mnist", 0, class_order="seed"))


@pytest.mark.parametrize(
    ("learners", "streams", "more", "message"),
    [
        (["cop"], ["split-digits"], {}, "there is no learner 'cop'; did you mean 'cope'"),
        (["cope"], ["split-digit"], {}, "there is no stream 'split-digit'; did you mean 'split-digits'"),
        ({"a": 3}, ["split-digits"], {}, "'a' is the name of a learner, a subclass of Learner, a function"),
        ({"a": {"memory_size": 3}}, ["split-digits"], {}, "the dict of 'a' has no 'learner'"),
        (["cope"], {"p": 4}, {}, "'p' is the name of a stream, or a function of seed"),
        (
            ["cope"],
            ["split-digits"],
            {"settings": {"memory": 3}},
            "no learner has a setting 'memory'; did you mean",
        ),
        (["cope"], ["split-digits"], {"seeds": 0}, "seeds must be a whole number, at least 1, not 0"),
        (["cope"], ["split-digits"], {"against": "gem"}, "against is one of the learners"),
        (
            ["cope"],
            ["split-digits"],
            {"evaluator": 50},
            r"evaluator is a value such as Evaluator\(every=50\), not 50",
        ),
        (["cope"], ["split-digits"], {"backend": "dask"}, "backend is local or ray, not 'dask'"),
        ("cope", ["split-digits"], {}, "learners is a dict of what to run"),
    ],
)
def test_a_mistake_is_one_clear_sentence_before_anything_runs(
    learners: Any, streams: Any, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        experiment(learners, streams, store=tmp_path / "store.sqlite", **more)
    assert not (tmp_path / "store.sqlite").exists()


def test_a_stream_with_one_seed_and_a_function_that_ignores_it_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pass a function, such as `lambda seed: split\(..., seed=seed\)`"):
        experiment(["cope"], {"p": clouds(0)}, store=tmp_path / "s")
    found = experiment({"c": lambda: CoPE(hidden=4)}, {"p": clouds}, seeds=2, store=tmp_path / "s")
    assert "returned one with the seed 0 when it was called for 1" in found.errors["c on p"]


def test_what_a_function_of_a_learner_draws_comes_from_its_seed():
    def made(seed):
        return CoPE(nn.Linear(4, 3), seed=seed, device="cpu")

    first, again, other = (make_own_learner(made, None, seed, "cpu", {}).given.weight for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_a_subclass_that_changes_nothing_has_the_numbers_of_its_method(tmp_path):
    found = experiment(
        {"reservoir": "reservoir", "mine": Mine, "small": {"learner": Mine, "memory_size": 20}},
        {"digits": "split-digits"},
        seeds=1,
        store=tmp_path / "store.sqlite",
        device="cpu",
    )
    theirs, mine, small = (found.mean(row, "digits") for row in ("reservoir", "mine", "small"))
    assert mine == theirs != small
