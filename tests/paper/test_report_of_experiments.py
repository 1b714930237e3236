"""The report shows the experiments that were run into a store, as they were defined."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from runs_made_up import five, of_experiment, run, stored

import everlearn
from everlearn.cli import main
from everlearn.evaluation.evaluator import Evaluator
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.significance import Difference
from everlearn.experiments.store import Store
from everlearn.learners.finetune import Finetune
from everlearn.paper import report
from everlearn.paper.experiment import comparisons, experiment
from everlearn.paper.experiment_result import ExperimentResult
from everlearn.paper.other_runs import other_runs
from everlearn.paper.report.tables import interval
from everlearn.paper.reproduce import parts
from everlearn.paper.stored_experiments import keep_own, keep_reproduced

MINE = """
title = "Does the momentum matter?"
seeds = 3

[[panels]]
title = "Accuracy, %"
figure = "table"
all = { stream = "split-digits" }

[panels.rows]
"momentum 0.9" = { learner = "cope", settings = { momentum = 0.9 } }
"momentum 0.99" = { learner = "cope", settings = { momentum = 0.99 } }

[panels.columns]
balanced = {}
"imbalanced S(T_1)" = { imbalance = 1 }
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "momentum-matters.toml"
    path.write_text(MINE)
    return path


def reproduced(path: Path, name: Any, **options: Any) -> Path:
    """A store as `everlearn reproduce` leaves it, with made-up runs."""
    chosen = SweepOptions(store=path, **options)
    names = parts(name)
    for each in names:
        stored(path, of_experiment(each, **options))
    keep_reproduced(Store(path), name, [experiment(each, chosen) for each in names], chosen)
    return path


def compared(path: Path, rows: dict[str, Any], **more: Any) -> ExperimentResult:
    """An experiment of three seeds in Python."""
    return everlearn.experiment(
        rows,
        ["split-digits"],
        seeds=3,
        store=path,
        settings={"hidden": 4, "iterations": 1},
        device="cpu",
        **more,
    )


def shown(path: Path) -> list[str]:
    return [table.name for table in report.tables_of([path])]


def test_the_report_after_an_own_file_has_its_table_and_paired_tests(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    assert shown(path) == ["momentum-matters"]
    text = report.write([path], tmp_path / "out").read_text("utf-8")
    assert "<h1>Does the momentum matter?</h1>" in text
    assert "The benchmark&#39;s setting less each other" in text and ", n = 3" in text


def test_the_report_of_a_stored_file_is_that_of_the_file_itself(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    assert main(["report", str(path), "--latex", str(tmp_path / "a.tex")]) == 0
    assert main(["report", str(path), "--latex", str(tmp_path / "b.tex"), "--experiments", str(mine)]) == 0
    named = ["--experiments", "momentum-matters"]
    assert main(["report", str(path), "--latex", str(tmp_path / "c.tex"), *named]) == 0
    texts = {(tmp_path / name).read_text("utf-8") for name in ("a.tex", "b.tex", "c.tex")}
    assert len(texts) == 1


def test_a_part_of_a_file_that_is_run_later_is_in_the_same_table(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine, columns=["balanced"])
    reproduced(path, mine, columns=["imbalanced S(T_1)"])
    (table,) = report.tables_of([path])
    assert all(len(cell.runs) == 3 for cell in table.cells) and len(table.cells) == 4


def test_a_changed_file_replaces_its_table(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    mine.write_text(MINE.replace('"momentum 0.9"', '"less momentum"'))
    reproduced(path, mine)
    (table,) = report.tables_of([path])
    assert table.rows == ["less momentum", "momentum 0.99"]


def test_seeds_that_are_run_by_hand_join_the_table(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    stored(path, [run(Job("cope", "split-digits", 7, settings={"momentum": 0.9}), 90)])
    (table,) = report.tables_of([path])
    assert [each.job["seed"] for each in table.at("momentum 0.9", "balanced").runs] == [0, 1, 2, 7]


def test_the_store_of_an_experiment_in_python_gives_the_same_tables_and_figures(tmp_path):
    found = compared(tmp_path / "s", {"mine": Finetune, "again": {"learner": Finetune, "learning_rate": 0.1}})
    words = [
        "report",
        str(tmp_path / "s"),
        "--latex",
        str(tmp_path / "t.tex"),
        "--figures",
        str(tmp_path / "f"),
    ]
    assert main(words) == 0
    assert (tmp_path / "t.tex").read_text("utf-8") == found.to_latex()
    assert [p.name for p in sorted((tmp_path / "f").iterdir())] == [
        p.name for p in found.figures(tmp_path / "g")
    ]


def test_the_page_of_a_store_has_the_paired_tests_of_an_experiment_in_python(tmp_path):
    compared(tmp_path / "s", {"knn": "knn", "mine": Finetune}, against="knn")
    text = report.write([tmp_path / "s"], tmp_path / "out").read_text("utf-8")
    assert "knn less each other method" in text and 'id="other-runs"' not in text


def test_the_page_says_that_validation_is_not_on_the_test_set(tmp_path):
    compared(tmp_path / "s", {"finetune": "finetune"}, validation=True)
    text = report.write([tmp_path / "s"], tmp_path / "out").read_text("utf-8")
    assert "on the full test set, or of runs with validation on the validation part" in text


def test_two_experiments_in_python_have_a_table_each(tmp_path):
    compared(tmp_path / "s", {"knn": "knn"}, validation=True)
    compared(tmp_path / "s", {"ncm": "ncm"})
    tables = report.tables_of([tmp_path / "s"])
    assert [(table.name, table.rows) for table in tables] == [
        ("comparison", ["ncm"]),
        ("comparison-2", ["knn"]),
    ]
    assert "on the validation part" in tables[1].title


def test_a_row_that_is_taken_out_of_an_experiment_leaves_its_table(tmp_path):
    compared(tmp_path / "s", {"knn": "knn", "ncm": "ncm"})
    compared(tmp_path / "s", {"knn": "knn"})
    assert [(table.name, table.rows) for table in report.tables_of([tmp_path / "s"])] == [
        ("comparison", ["knn"]),
        ("other-runs", ["ncm, hidden = 4, iterations = 1"]),
    ]


def test_old_runs_of_a_changed_method_are_not_shown(tmp_path, monkeypatch):
    class Mine(Finetune):
        name = "mine"

    for version in "12":
        monkeypatch.setattr(Mine, "version", version, raising=False)
        compared(tmp_path / "s", {"mine": Mine})
    (table,) = report.tables_of([tmp_path / "s"])
    assert {each.job["versions"]["learner"][-1] for each in table.cells[0].runs} == {"2"}


def test_a_small_table_of_the_package_is_not_shown_for_runs_of_something_else(tmp_path):
    path = stored(
        tmp_path / "s", five("cope", "split-digits", [90, 91]) + five("mir", "split-digits", [80, 81])
    )
    assert shown(path) == ["other-runs"]


def test_a_small_table_of_the_package_is_shown_if_it_was_run(tmp_path):
    path = reproduced(tmp_path / "s", "balanced", quick=True, learners=("cope", "mir"))
    assert shown(path) == ["balanced-quick"]


def test_a_small_table_is_shown_if_most_of_its_cells_have_runs(tmp_path):
    assert shown(stored(tmp_path / "s", of_experiment("momentum", quick=True))) == ["momentum-quick"]


def test_the_report_after_small_rivals_shows_rivals(tmp_path):
    names = shown(reproduced(tmp_path / "s", "rivals", quick=True))
    assert names and all(name.startswith("rivals-P") for name in names)


def test_runs_of_a_protocol_are_in_its_table(tmp_path):
    runs = of_experiment("rivals-P2", learners=("er-ace",))
    text = report.write([stored(tmp_path / "s", runs)], tmp_path / "out").read_text("utf-8")
    assert re.findall('<section id="([^"]+)"', text) == ["rivals-P2", "runs"]
    assert "everlearn reproduce rivals-P2" in text
    assert "rivals-P2" in comparisons()


def test_a_file_that_was_run_with_other_seeds_into_another_store_is_one_table(mine, tmp_path):
    paths = [reproduced(tmp_path / "a", mine, seeds=1), reproduced(tmp_path / "b", mine, seeds=2)]
    (table,) = report.tables_of(paths)
    assert {len(cell.runs) for cell in table.cells} == {2}


def test_a_name_of_several_experiments_is_a_report_of_all_of_them(tmp_path):
    path = reproduced(tmp_path / "s", "rivals", seeds=1)
    assert main(["report", str(path), "--experiments", "rivals", "--markdown", str(tmp_path / "m")]) == 0
    assert (
        main(["report", str(path), "--experiments", *parts("rivals"), "--markdown", str(tmp_path / "n")]) == 0
    )
    assert (tmp_path / "m").read_text("utf-8") == (tmp_path / "n").read_text("utf-8") != ""


def test_a_name_that_is_no_experiment_suggests_one_of_the_store(mine, tmp_path, capsys):
    path = reproduced(tmp_path / "s", mine)
    assert main(["report", str(path), "--experiments", "momentum-mattters"]) == 2
    assert "did you mean 'momentum-matters'?" in capsys.readouterr().err


def test_merging_stores_takes_their_experiments_along(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    assert main(["report", str(path), "--merge", str(tmp_path / "all")]) == 0
    assert shown(tmp_path / "all") == ["momentum-matters"]


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.pop("title"),
        lambda made: made.update(name=3),
        lambda made: made.update(panels={}),
        lambda made: made["panels"][0].update(figure="pie"),
        lambda made: made["panels"][0]["cells"][0].pop("runs"),
        lambda made: made["panels"][0]["cells"][0].update(job={"learner": "cope"}),
        lambda made: made["panels"][0]["cells"][0].update(published=["high"]),
    ],
)
def test_a_forged_experiment_is_one_sentence(mine, tmp_path, change):
    path = reproduced(tmp_path / "s", mine)
    (made,) = Store(path).experiments()
    change(made)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("update experiments set definition = ?", (json.dumps(made),))
    with pytest.raises(ValueError, match="an experiment in .* is not one that everlearn wrote; name another"):
        report.tables_of([path])


def test_reading_a_stored_experiment_imports_nothing(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    (made,) = Store(path).experiments()
    made["panels"][0]["cells"][0]["job"] |= {"learner": "no_such_file:Mine", "stream": "no_such_file:stream"}
    Store(path).add_experiment(made, lambda other: True)
    assert "no_such_file:Mine" in report.tables_of([path])[0].learners


def test_a_store_that_can_only_be_read_is_reported_and_reproduced(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)

    class ReadOnly(Store):
        def add_experiment(self, *arguments: Any) -> None:
            raise ValueError("can only be read")

    keep_own(ReadOnly(path), experiment(mine))
    assert shown(path) == ["momentum-matters"]


def test_long_settings_are_named_where_they_differ_and_in_full_in_a_tooltip(tmp_path):
    same = {"hidden": 30, "iterations": 2, "learning_rate": 0.02}
    settings = [{**same, "memory_size": size} for size in (40, 50)]
    runs = [each for given in settings for each in five("cope", "split-digits", [90], settings=given)]
    path = stored(tmp_path / "s", runs)
    (table,) = report.tables_of([path])
    assert table.rows == ["cope, memory_size = 40, …", "cope, memory_size = 50, …"]
    text = report.write([path], tmp_path / "out").read_text("utf-8")
    assert 'title="cope, hidden = 30, iterations = 2, learning_rate = 0.02, memory_size = 50"' in text


def test_a_column_names_its_options_without_json(tmp_path):
    measured = Evaluator(every=3, horizon="all", metrics={"lowest": lambda history: 0.0})
    (table,) = other_runs(five("cope", "split-digits", [90], evaluator=measured, validation=True), [])
    assert not re.search(r"[{}\"]", table.columns[0])


def test_runs_on_several_streams_have_a_table_each():
    runs = five("cope", "split-mnist", [90]) + five("mir", "split-cifar10", [40], imbalance=2)
    assert [(table.rows, table.columns) for table in other_runs(runs, [])] == [
        (["cope"], ["split-mnist"]),
        (["mir"], ["split-cifar10, imbalance = 2"]),
    ]


def test_names_of_any_length_leave_room_for_the_figures(mine, tmp_path):
    for name in ("momentum 0.9", "momentum 0.99", "imbalanced S(T_1)"):
        mine.write_text(mine.read_text().replace(f'"{name}"', f'"{"a very long name " * 12}{name}"'))
    path = reproduced(tmp_path / "s", mine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report.write([path], tmp_path / "out")
    widths = [imread(figure).shape[1] for figure in (tmp_path / "out" / "figures").glob("*.png")]
    assert widths and max(widths) < 2000


@pytest.mark.parametrize(
    "difference", [(0.012, 0.006, 0.018), (0.01, 0.0, 0.02), (-0.06, -0.064, -0.056), (5.04, 5.0, 5.08)]
)
def test_a_mean_lies_inside_its_interval_as_printed(difference):
    mean, low, high = difference
    printed = interval(Difference(mean=mean, low=low, high=high, p=0.5, n=5)).replace("−", "-")
    ends = [float(end) for end in printed.strip("[]").split(", ")]
    assert ends[0] <= float(f"{mean:.2f}") <= ends[1]


def written(tmp_path: Path, capsys: Any, *flags: str) -> tuple[int, str]:
    path = tmp_path / "s"
    if not path.exists():
        stored(path, five("cope", "split-digits", [90, 91]) + five("mir", "split-digits", [80, 81]))
    return main(["report", str(path), *flags]), capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--names", "--colours"])
def test_a_name_or_colour_of_a_row_that_does_not_exist_lists_the_rows(flag, tmp_path, capsys):
    code, said = written(tmp_path, capsys, "--figures", str(tmp_path / "f"), flag, "zzz=red")
    assert code == 2 and "'zzz'" in said and said.endswith("the rows are cope; mir\n")


def test_a_name_in_a_table_lists_the_rows_too_and_writes_nothing(tmp_path, capsys):
    code, said = written(tmp_path, capsys, "--latex", str(tmp_path / "l.tex"), "--names", "zzz=Mine")
    assert code == 2 and "the rows are cope; mir" in said and not (tmp_path / "l.tex").exists()


def test_names_and_colours_of_the_docs_reach_the_figure(tmp_path, capsys):
    given = ["--format", "svg", "--width", "3.3", "--names", "cope=Ours", "--colours", "cope=#d1495b"]
    assert written(tmp_path, capsys, "--figures", str(tmp_path / "f"), *given)[0] == 0
    (figure,) = (tmp_path / "f").iterdir()
    text = figure.read_text("utf-8")
    assert "Ours" in text and "#d1495b" in text


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--metrics", "forgetting"], "add --latex or --markdown"),
        (["--names", "cope=Ours"], "add --latex, --markdown or --figures"),
        (["--latex", "l.tex", "--colours", "cope=red"], "add --figures FOLDER"),
        (["--figures", "f", "--width", "-3"], "the width of a figure is 1 to 40 inches, not -3"),
        (["--figures", "f", "--width", "nan"], "the width of a figure is 1 to 40 inches, not nan"),
        (
            ["--figures", "f", "--colours", "cope=nocolour"],
            "'cope' is one like #0b6fb8 or black, not 'nocolour'",
        ),
    ],
)
def test_a_flag_that_has_no_effect_or_a_wrong_value_is_one_sentence(
    flags, sentence, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, said = written(tmp_path, capsys, *flags)
    assert code == 2 and sentence in said and said.count("\n") == 1


def test_the_csv_of_tables_is_of_the_same_tables(mine, tmp_path):
    path = reproduced(tmp_path / "s", mine)
    lines = report.export_csv([path], tmp_path / "t.csv").read_text("utf-8").splitlines()
    assert {row["experiment"] for row in csv.DictReader(lines)} == {"momentum-matters"}
