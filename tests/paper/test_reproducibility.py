"""REPRODUCIBILITY.md: made from results/, and up to date."""

import re
from pathlib import Path

import pytest
from runs_made_up import five, of_experiment

from everlearn.experiments import results
from everlearn.experiments.store import Store
from everlearn.paper import reproducibility, tables
from everlearn.paper.differences import Difference, known_differences, tally
from everlearn.paper.experiment import experiment, experiments

ROOT = Path(__file__).parents[2]


def test_the_page_in_the_repository_is_what_its_results_say():
    written = (ROOT / "REPRODUCIBILITY.md").read_text("utf-8")
    assert written == reproducibility.render(results.read(ROOT / "results")), (
        "run `python -m everlearn.paper.reproducibility`"
    )


def line(page, *words):
    (found,) = (line for line in page.splitlines() if line.startswith(f"| {' | '.join(words)} |"))
    return [word.strip() for word in found.strip("|").split("|")]


@pytest.mark.parametrize(
    ("accuracies", "verdict"),
    [
        ([48.9, 49.0, 50.2], "agrees"),  # inside 48.92 ± 1.32
        ([50.0, 50.3, 51.5], "agrees within noise"),
        ([53.0, 53.3, 53.5], "higher"),
        ([43.0, 43.3, 43.5], "lower"),
        ([53.0], "one seed, not tested"),
        ([], "not measured yet"),
    ],
)
def test_a_number_has_a_verdict(accuracies, verdict):
    table = tables.fill(experiment("balanced"), five("cope", "split-cifar10", accuracies))[0]
    assert reproducibility.verdict(table.at("cope", "split-cifar10")) == verdict


def test_half_a_point_is_no_difference_however_sure():
    table = tables.fill(experiment("balanced"), five("finetune", "split-mnist", [19.51, 19.52, 19.51]))[0]
    assert table.at("finetune", "split-mnist").outside
    assert reproducibility.verdict(table.at("finetune", "split-mnist")) == "agrees"


def test_where_a_number_differs_the_page_says_what_is_known_or_that_nothing_is():
    records = five("icarl", "split-mnist", [88.0, 88.2, 88.1]) + five(
        "gem", "split-mnist", [80.0, 80.2, 80.1]
    )
    page = reproducibility.render(records)
    found = line(page, "Split-MNIST", "iCaRL")
    assert found[2:6] == ["83.95 ± 0.21", "88.10 ± 0.10 (n = 3)", "+4.15", "higher"]
    assert "exemplars" in found[6]
    assert line(page, "Split-MNIST", "GEM")[5:] == ["lower", "Not explained so far."]
    assert line(page, "Split-MNIST", "MIR")[3:] == ["–", "–", "not measured yet", ""]


def test_every_known_difference_is_of_a_cell_that_there_is():
    for name, row, column in known_differences():
        (panel,) = experiment(name).panels
        assert panel.cell(row, column) is not None, (name, row, column)


def test_a_tested_cause_cites_a_figure_or_the_cell_of_the_same_runs():
    tested = [each for known in known_differences().values() for each in known if each.tested]
    assert tested
    for difference in tested:
        assert re.search(r"\d\d\.\d|The same runs as", difference.text), difference.text


def test_the_page_says_for_how_many_differing_numbers_a_cause_was_tested():
    page = reproducibility.render(five("gem", "split-mnist", [80.0, 80.2, 80.1]))
    assert "Of those that do not agree (1), a cause was tested for 0. Open: 1.\n" in page
    page = reproducibility.render(five("gem", "split-mnist", [93.2, 93.3, 93.1]))
    assert "1 are measured here, and 1 of these agree.\n\n-" in page


def test_a_number_counts_once_by_the_most_telling_test_of_its_causes():
    known = {
        ("a", "x", "1"): [Difference("", "ruled out"), Difference(""), Difference("", "supported")],
        ("a", "x", "2"): [Difference("", "ruled out"), Difference("", "as released")],
        ("a", "x", "3"): [Difference("", "ruled out")],
        ("a", "x", "4"): [Difference("not tested")],
        ("a", "x", "5"): [Difference("", "supported")],  # not among those that differ
    }
    assert tally([("a", "x", str(i)) for i in (1, 2, 3, 4, 6)], known) == (
        "Of those that do not agree (5), a cause was tested for 3: it explains 1; for 1 the released code, run here, "
        "does not give the paper's number either; for 1 it is ruled out. Open: 2."
    )


def test_an_unknown_outcome_of_a_test_is_refused():
    with pytest.raises(ValueError, match="'guessed'; expected one of supported, as released, ruled out"):
        Difference("the weather", "guessed")


def test_all_experiments_and_claims_are_on_the_page():
    page = reproducibility.render(of_experiment("imbalanced", streams=["split-mnist"]))
    assert page.count("\n## ") == 1 + len(experiments())
    assert "S(T_1)" in page
    assert "**not measured yet**" in page


def test_the_command_takes_over_new_runs_and_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "store.sqlite")
    for record in five("cope", "split-mnist", [94.0, 94.2]):
        store.add(record)
    assert reproducibility.main(["--add", str(store.path)]) == 0
    assert (
        line(Path("REPRODUCIBILITY.md").read_text("utf-8"), "Split-MNIST", "CoPE")[3]
        == "94.10 ± 0.14 (n = 2)"
    )
    assert Path("results/split-mnist/cope.json").exists()
    assert capsys.readouterr().out.split() == ["results/split-mnist/cope.json", "REPRODUCIBILITY.md"]


def test_a_mistake_is_one_sentence_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert reproducibility.main([]) == 2
    assert reproducibility.main(["--add", "typo.sqlite"]) == 2
    with pytest.raises(SystemExit, match="2"):
        reproducibility.main(["--ad", "typo.sqlite"])
    errors = capsys.readouterr().err.splitlines()
    assert "no folder results/" in errors[0]
    assert "typo.sqlite does not exist" in errors[1]
    assert not list(tmp_path.iterdir())
