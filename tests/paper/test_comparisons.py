"""The comparison with recent methods: its parts, and how a part of it is chosen."""

import pytest

from everlearn.experiments.job import key
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.protocol import protocol
from everlearn.experiments.runner import open_run
from everlearn.paper.experiment import comparisons, experiment, experiments
from everlearn.paper.reproduce import parts, plan

TODAY = {"er-ace", "der++", "scr", "pcr", "gdumb", "ocm", "onpro", "gsa", "mose", "mkd", "ccl-dc"}


def test_no_part_has_two_protocols_and_all_leaves_them_out():
    assert parts("all") == experiments() and not set(experiments()) & set(comparisons())
    for name, definition in comparisons().items():
        assert {panel["protocol"] for panel in definition["panels"]} == {name.rpartition("-")[2]}


def test_every_method_is_in_ours_and_in_the_protocol_of_its_authors():
    assert {job.learner for job in experiment("rivals-P0").jobs()} >= TODAY
    assert {job.learner for job in experiment("rivals-P1").jobs()} >= TODAY - {"scr", "gdumb"}
    assert {job.learner for job in experiment("rivals-P3").jobs()} >= {"scr", "pcr", "gdumb"}


@pytest.mark.parametrize(
    "panel", experiment("rivals-P0").panels, ids=lambda panel: panel.cells[0].jobs[0].stream
)
@pytest.mark.parametrize("learner", sorted(TODAY | {"reservoir"}))
def test_in_ours_every_method_also_has_the_additions_of_the_flagship(panel, learner):
    (column,) = panel.columns
    own, flagship = panel.cell(learner, column).jobs[0].settings, panel.cell("cope+", column).jobs[0].settings
    more = panel.cell(f"{learner}, with additions", column).jobs[0].settings
    changed = {name: value for name, value in more.items() if own.get(name) != value}
    assert changed and all(value == flagship[name] for name, value in changed.items())
    without = {"gdumb": {"iterations", "averaging"}, "mkd": {"averaging"}}.get(learner, set())
    for name in {"iterations", "averaging", "mixing", "mirrored"} - without:
        assert more[name] == flagship[name]
    if learner != "gdumb":
        assert more["replayed"] == max(own.get("replayed", 10), flagship["replayed"])
    assert more["augmentation"] == "strong" or more["colour"] == flagship["colour"]


def test_a_job_has_the_settings_of_its_protocol_and_of_its_column():
    (cell,) = (
        experiment(
            "rivals-P1",
            SweepOptions(learners=["mose"], streams=["split-cifar100-10"], columns=["memory 5000"], seeds=1),
        )
        .panels[0]
        .cells[:1]
    )
    (job,) = cell.jobs
    expected = protocol("P1").settings("mose", "split-cifar100-10") | {"memory_size": 5000}
    assert job.settings == expected and job.class_order == "seed" and job.batch_size == 10
    assert (cell.published.mean, cell.published.source) == (55.9, "Yan et al., CVPR 2024, all experts")


def test_every_method_has_the_same_budget_of_learning_rates():
    found = experiment("rates-P0")
    for panel in found.panels:
        assert {job.learner for cell in panel.cells for job in cell.jobs} == TODAY | {"cope+", "reservoir"}
        for row in panel.rows:
            jobs = [job for cell in panel.cells if cell.row == row for job in cell.jobs]
            own = protocol("P0").settings(row, jobs[0].stream)["learning_rate"]
            assert [job.settings["learning_rate"] / own for job in jobs] == pytest.approx([0.3, 1, 3])
            assert all(job.validation and job.seed == 0 for job in jobs)
    assert "rates-P0" not in parts("rivals") and "rates-P0" not in parts("all")


def test_columns_choose_a_part_and_an_unknown_one_is_refused(tmp_path):
    options = SweepOptions(columns=["memory 2000"], learners=["gsa"], store=tmp_path / "none.sqlite")
    jobs = plan("rivals", options).todo
    assert {(job.settings["memory_size"], job.stream, job.seed) for job in jobs} == {
        (2000, "split-cifar100-10", seed) for seed in range(3)
    }
    with pytest.raises(ValueError, match="has the column 'memory 20'; did you mean 'memory 2"):
        plan("rivals", SweepOptions(columns=["memory 20"], store=tmp_path / "none.sqlite"))


def test_rows_choose_a_part_and_an_unknown_one_is_refused(tmp_path):
    store = tmp_path / "none.sqlite"
    jobs = plan("rivals-P0", SweepOptions(rows=["er-ace"], seeds=1, store=store)).todo
    assert {(job.learner, job.stream, job.settings["iterations"]) for job in jobs} == {
        ("er-ace", "split-cifar10", 1),
        ("er-ace", "split-cifar100", 1),
    }
    with pytest.raises(ValueError, match="rivals-P0 has no row 'er-ac'; did you mean 'er-ace'"):
        plan("rivals-P0", SweepOptions(rows=["er-ac"], store=store))
    with pytest.raises(ValueError, match="rivals-P0 has nothing of pcr on any stream in row 'er-ace'"):
        plan("rivals-P0", SweepOptions(rows=["er-ace"], learners=["pcr"], store=store))


def test_in_small_every_method_learns_a_batch_of_digits():
    options = SweepOptions(quick=True, seeds=1, device="cpu")
    jobs = experiment("rivals-P0", options).jobs()
    assert {job.learner for job in jobs} >= TODAY
    for job in jobs:
        run = open_run(job)
        x, y, t = next(iter(run.stream))
        run.learner.observe(x, y, t)


def test_in_small_the_protocols_differ_as_they_do_in_full():
    def small(name):
        jobs = experiment(name, SweepOptions(quick=True, seeds=1, learners=["reservoir"])).jobs()
        return jobs[0]

    first, second, third = (small(f"rivals-P{number}") for number in (1, 2, 3))
    assert [job.settings["replayed"] for job in (first, second, third)] == [64, 10, 10]
    assert [job.settings["iterations"] for job in (first, second, third)] == [1, 3, 1]
    assert [job.class_order for job in (first, second, third)] == ["seed"] * 3
    assert len({key(job) for job in (first, second, third)}) == 3


@pytest.mark.parametrize("name", list(comparisons()))
def test_the_titles_in_small_name_the_stream_that_runs(name):
    (panel,) = experiment(name, SweepOptions(quick=True)).panels
    assert panel.title.startswith(f"{name.rpartition('-')[2]}, in small on Split-Digits")
    assert "CIFAR" not in panel.title and {job.stream for cell in panel.cells for job in cell.jobs} == {
        "split-digits"
    }
