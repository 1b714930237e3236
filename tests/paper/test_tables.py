"""The paper's cells filled with our runs."""

import dataclasses

import pytest
from runs_made_up import failed, five, of_experiment, run

from everlearn.experiments.collect import collect_runs
from everlearn.experiments.job import Job
from everlearn.experiments.store import Store
from everlearn.paper import tables
from everlearn.paper.experiment import experiment
from everlearn.paper.other_runs import other_runs
from everlearn.paper.report import shown_of
from everlearn.paper.report.tables import accuracy_view

COPE = [94.0, 94.2, 93.8, 94.1, 93.9]


def balanced(records):
    return tables.fill(experiment("balanced"), records)[0]


def test_a_cell_has_its_runs_the_papers_number_and_the_difference():
    cell = balanced(five("cope", "split-mnist", COPE)).at("cope", "split-mnist")
    assert (cell.ours.n, cell.ours.mean) == (5, pytest.approx(94.0))
    assert cell.difference == pytest.approx(0.06)
    assert not cell.outside


@pytest.mark.parametrize(("mean", "outside"), [(94.14, False), (94.15, True), (93.74, False), (93.73, True)])
def test_outside_is_beyond_the_papers_deviation_as_printed(mean, outside):
    assert balanced(five("cope", "split-mnist", [mean])).at("cope", "split-mnist").outside is outside


def test_seeds_beyond_the_papers_five_count_too():
    table = balanced(five("cope", "split-mnist", [94.0] * 8))
    assert table.at("cope", "split-mnist").ours.n == 8


def test_runs_with_other_settings_are_in_other_cells():
    table = balanced(five("cope", "split-mnist", COPE, settings={"renormalise": False}))
    assert table.at("cope", "split-mnist").ours is None
    assert table.at("cope, not renormalised", "split-mnist").ours.n == 5


def test_a_failed_run_is_kept_apart():
    table = balanced([failed(Job("cope", "split-mnist", 1)), *five("cope", "split-mnist", [94.0])])
    cell = table.at("cope", "split-mnist")
    assert (len(cell.runs), len(cell.failed), cell.ours.n) == (1, 1, 1)


def test_a_learner_that_is_not_here_yet_is_an_empty_cell_with_the_papers_number():
    unknown = dataclasses.replace(experiment("balanced").panels[0].cells[0], row="unborn", jobs=())
    panel = dataclasses.replace(experiment("balanced").panels[0], cells=(unknown,))
    table = tables.fill(dataclasses.replace(experiment("balanced"), panels=(panel,)), [])[0]
    assert (table.cells[0].learner, table.cells[0].stream) == ("unborn", "split-mnist")


def test_the_mean_over_columns_takes_seeds_that_every_column_has():
    runs = [run for i in range(1, 6) for run in five("cope", "split-mnist", [80 + i, 90 + i], imbalance=i)]
    table = tables.fill(experiment("imbalanced"), runs[:-1])[0]  # S(T_5) lacks seed 1
    assert (table.across("cope").mean, table.across("cope").n) == (83, 1)
    assert table.seeds_across("cope") == {0: 83}
    assert table.across("mir") is None


def test_cope_is_compared_with_every_other_method_of_its_column():
    runs = [*five("cope", "split-mnist", COPE), *five("mir", "split-mnist", [value - 1 for value in COPE])]
    runs += five("gss", "split-mnist", [90.0, 94.0, 95.0])
    found = {c.cell.cell.row: c.difference for c in balanced(runs).comparisons()}
    assert found.keys() == {"mir", "gss"}
    assert (found["mir"].mean, found["mir"].n) == (pytest.approx(1), 5)
    alone = {c.cell.cell.row: c.difference for c in balanced([*runs[:5], *runs[10:]]).comparisons()}
    assert found["gss"].p == pytest.approx(alone["gss"].p)  # Holm: the larger of two stays as it is


def test_where_one_learner_varies_the_benchmarks_own_setting_is_the_reference():
    runs = [
        record
        for momentum, middle in ((0.0, 60), (0.99, 94))
        for record in five("cope", "split-mnist", [middle, middle + 1], settings={"momentum": momentum})
    ]
    found = tables.fill(experiment("momentum"), runs)[0].comparisons()
    assert [(c.against.cell.column, c.cell.cell.column) for c in found] == [("momentum 0.99", "momentum 0")]
    assert found[0].difference.mean == 34


def test_turning_a_table_exchanges_rows_and_columns_and_nothing_else():
    table = tables.fill(experiment("batch-size"), of_experiment("batch-size"))[0]
    turned = table.turned()
    assert (turned.rows, turned.columns) == (table.columns, table.rows)
    assert turned.at("batch size 20", "split-mnist").ours == table.at("split-mnist", "batch size 20").ours
    assert len(turned.comparisons()) == len(table.comparisons()) == 12


def test_stores_are_read_together_and_a_run_that_ended_well_beats_a_failed_one(tmp_path):
    job = Job("cope", "split-mnist", 0)
    one, other = Store(tmp_path / "one.sqlite"), Store(tmp_path / "other.sqlite")
    one.add(run(job, 94))
    other.add(failed(job))
    other.add(run(Job("cope", "split-mnist", 1), 95))
    records = collect_runs([one.path, other.path])
    assert sorted(record.result["accuracy"] for record in records) == [0.94, 0.95]


def test_a_store_that_is_not_there_is_one_sentence_and_makes_no_file(tmp_path):
    with pytest.raises(
        ValueError,
        match="typo.sqlite does not exist; `everlearn run` and `everlearn reproduce` write a store",
    ):
        collect_runs([tmp_path / "typo.sqlite"])
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="give at least one store"):
        collect_runs([])


def test_a_table_of_the_paper_gives_way_to_none_that_is_not():
    records = five("cope", "split-mnist", [80], imbalance=1) + five("cope+", "split-mnist", [90], imbalance=1)
    assert [table.name for table in shown_of(tables.tables(records))] == ["imbalanced-1", "beyond-4"]
    assert [table.name for table in shown_of(tables.tables(records[:1]))] == ["imbalanced-1"]


def test_runs_in_small_are_tables_of_their_own():
    found = [table for table in tables.tables(of_experiment("balanced", quick=True)) if table.measured]
    assert {table.experiment.name for table in found} >= {"balanced-quick"}
    assert "balanced" not in {table.experiment.name for table in found}


def test_runs_of_no_experiment_are_shown_by_learner_and_what_was_set():
    records = five("cope", "split-mnist", COPE)
    records += five("cope", "split-mnist", [90, 91], settings={"momentum": 0.7}, scenario="blurry")
    (table,) = other_runs(records, [balanced(records)])
    assert (table.rows, table.columns) == (["cope, momentum = 0.7"], ["split-mnist, scenario = blurry"])
    assert table.cells[0].ours.mean == 90.5
    assert other_runs(records[:5], [balanced(records)]) == []


def test_runs_on_a_stream_without_tests_are_shown_by_their_prequential_accuracy():
    records = [
        dataclasses.replace(each, result=each.result | {"accuracy": None, "prequential_accuracy": share})
        for each, share in zip(five("cope", "sea", [0, 0]), (0.8, 0.9), strict=True)
    ]
    (table,) = other_runs(records, [])
    assert table.title == "Prequential accuracy, %"
    assert table.cells[0].ours.mean == pytest.approx(85)
    both = other_runs(records + five("cope", "split-mnist", COPE), [])
    assert [each.title for each in both] == [
        "sea: prequential accuracy, %",
        "split-mnist: accuracy at the end of the stream, %",
    ]


def test_a_run_without_an_accuracy_is_not_said_to_be_missing():
    (done,) = five("cope", "sea", [0])
    without = dataclasses.replace(done, result=done.result | {"accuracy": None})
    (table,) = other_runs([without], [])
    assert accuracy_view(table).rows[0].entries[0].shown == "no accuracy"
