"""Experiments as data: the paper's, a user's own, their mistakes, and the same in small."""

import pytest

from everlearn import learners
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.runner import open_run
from everlearn.paper.experiment import _definitions, experiment, experiments, key
from everlearn.streams import own_streams

STREAMS = ["split-mnist", "split-cifar10", "split-cifar100"]


def test_the_experiments_of_the_paper_are_all_there_in_its_order_and_one_beyond_it():
    assert experiments() == [
        "balanced", "buffer", "imbalanced", "pseudo-prototypes", "batch-size", "resources", "momentum",
        "low-capacity", "beyond",
    ]  # fmt: skip


def test_the_library_s_own_experiments_are_checked_without_a_look_through_all_installed_packages(monkeypatch):
    def looked(**arguments):
        raise AssertionError(f"looked for {arguments}")

    monkeypatch.setattr(own_streams, "entry_points", looked)
    assert "balanced" in _definitions("experiments")
    assert "rivals-P0" in _definitions("comparisons")


def test_the_balanced_table_has_every_method_on_every_stream():
    (panel,) = experiment("balanced").panels
    assert len(panel.rows) == 16
    assert panel.columns == STREAMS
    assert panel.cell("curl", "split-cifar10") is panel.cell("cn-dpm, original", "split-cifar10") is None
    assert panel.cell("cn-dpm, original", "split-mnist").jobs[0].settings == {"original": True}
    cope = panel.cell("cope", "split-cifar10")
    assert (cope.published.mean, cope.published.std, cope.published.source) == (48.92, 1.32, "Table 2")
    assert [job.seed for job in cope.jobs] == [0, 1, 2, 3, 4]
    assert cope.jobs[0].settings == {"renormalise": True}
    assert panel.cell("cope, not renormalised", "split-mnist").jobs[0].settings == {"renormalise": False}


def test_also_in_small_the_paper_s_row_is_renormalised_and_the_other_is_not():
    small = experiment("balanced", SweepOptions(learners=["cope"], quick=True)).panels[0]
    jobs = [small.cell(row, "split-digits").jobs[0] for row in ("cope", "cope, not renormalised")]
    assert [job.all_settings()["renormalise"] for job in jobs] == [True, False]


def test_the_imbalanced_figure_has_fifteen_variants():
    panels = experiment("imbalanced").panels
    assert [panel.title for panel in panels] == STREAMS
    variants = [{job.imbalance for cell in panel.cells for job in cell.jobs} for panel in panels]
    assert variants == [{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}, {1, 5, 10, 15, 20}]


MULTIPLIED = """
title = "Rates"
[[panels]]
title = "three"
figure = "table"
all = {{ stream = "split-digits", times = {{ learning_rate = 3, memory_size = 2 }} }}
[panels.rows]
cope = {{ learner = "cope", settings = {{ memory_size = 15 }} }}
[panels.columns]
one = {{}}
other = {{ times = {column} }}
"""


def multiplied(tmp_path, column):
    file = tmp_path / "rates.toml"
    file.write_text(MULTIPLIED.format(column=column), "utf-8")
    return [cell.jobs[0].settings for cell in experiment(file).panels[0].cells]


def test_times_multiplies_settings_and_the_column_comes_last(tmp_path):
    own = Job("cope", "split-digits", 0).all_settings()["learning_rate"]
    one, other = multiplied(tmp_path, "{ learning_rate = 0.3 }")
    assert one == {"memory_size": 30, "learning_rate": pytest.approx(3 * own)}
    assert other == {"memory_size": 30, "learning_rate": pytest.approx(0.3 * own)}


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (
            "{ networc = 2 }",
            "row 'cope', column 'other': cope has no setting 'networc'; did you mean 'network'",
        ),
        ("{ memory_size = inf }", "times multiplies by numbers above 0, not memory_size by inf"),
        ("{ memory_size = nan }", "times multiplies by numbers above 0, not memory_size by nan"),
        ("{ iterations = 1.05 }", "iterations = 5 times 1.05 is 5 again: set it in settings"),
        ("{ mixing = 2 }", "mixing = 0.0 times 2 is 0.0 again: set it in settings"),
        ('{ learning_rate = "a" }', "times multiplies numbers, not learning_rate = .* by 'a'"),
        ("3", "times is a table, not 3"),
    ],
)
def test_only_numbers_are_multiplied(column, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        multiplied(tmp_path, column)


def test_what_two_experiments_share_is_run_once():
    balanced = {key(job) for job in experiment("balanced", SweepOptions(learners=["cope"])).jobs()}
    shared = {"momentum 0.99", "batch size 10", "incl. p̂"}
    for name in ("momentum", "batch-size", "pseudo-prototypes"):
        for cell in experiment(name, SweepOptions(streams=["split-mnist"])).panels[0].cells:
            assert ({key(job) for job in cell.jobs} <= balanced) == (cell.column in shared)


def test_a_run_that_must_be_alone_is_another_than_one_that_need_not():
    assert key(Job("cope", "split-mnist", 0)) != key(Job("cope", "split-mnist", 0, alone=True))


def test_where_a_job_runs_makes_no_other_job_of_it():
    assert key(Job("cope", "split-mnist", 0)) == key(
        Job("cope", "split-mnist", 0, device="cpu", data_dir="/x")
    )


def test_only_the_learners_and_streams_that_are_asked_for():
    (panel,) = experiment(
        "balanced", SweepOptions(learners=["gem", "cope"], streams=["split-mnist"], seeds=2)
    ).panels
    assert panel.rows == ["gem", "cope", "cope, not renormalised"]
    assert panel.columns == ["split-mnist"]
    assert all(len(cell.jobs) == 2 for cell in panel.cells)


def test_a_learner_that_does_not_exist_here_is_named_and_has_no_jobs(monkeypatch):
    without = {name: kind for name, kind in learners.registry().items() if name != "gem"}
    monkeypatch.setattr(learners, "registry", lambda: without)
    found = experiment("balanced", SweepOptions(learners=["gem", "cope"]))
    assert found.missing == ("gem",)
    cell = found.panels[0].cell("gem", "split-mnist")
    assert cell.jobs == ()
    assert cell.published.mean == 93.25


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_in_small_is_on_split_digits_alone(name):
    small, whole = experiment(name, SweepOptions(quick=True)), experiment(name)
    assert {job.stream for job in small.jobs()} == {"split-digits"}
    assert {job.learner for job in small.jobs()} == {job.learner for job in whole.jobs()}
    assert not any(cell.published for panel in small.panels for cell in panel.cells)


@pytest.mark.parametrize("name", experiments())
def test_every_learner_of_every_experiment_in_small_learns_a_batch(name):
    for job in experiment(name, SweepOptions(quick=True, seeds=1, device="cpu")).jobs():
        run = open_run(job)
        x, y, t = next(iter(run.stream))
        run.learner.observe(x, y, t)


def test_in_small_a_name_says_so_in_capitals_too():
    titles = [panel.title for panel in experiment("beyond", SweepOptions(quick=True)).panels]
    assert titles == [
        "Split-Digits: accuracy at the end of the stream, %",
        "Imbalanced Split-Digits: accuracy at the end of the stream, %",
    ]


def test_in_small_images_are_not_shifted_and_that_is_said():
    small = experiment("beyond", SweepOptions(quick=True))
    assert not any("augmentation" in job.settings or "width" in job.settings for job in small.jobs())
    assert "images of 8 x 8 are not shifted" in small.notes[-1]
    assert "images of 8 x 8" not in "".join(experiment("balanced", SweepOptions(quick=True)).notes)


def test_in_small_there_are_no_colours_and_mirror_images(tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        """
title = "Colours"
[[panels]]
title = "Accuracy, %"
figure = "table"
all = { stream = "split-cifar10", settings = { network = "mlp" } }
[panels.rows]
cope = { learner = "cope" }
[panels.columns]
colours = { settings = { colour = 0.4, mirrored = true } }
"""
    )
    for job in experiment(mine, SweepOptions(quick=True, device="cpu")).jobs():
        run = open_run(job)
        x, y, t = next(iter(run.stream))
        run.learner.observe(x, y, t)
        assert len(run.learner.predict(x)) == len(y)


def test_in_small_batches_are_as_small_as_the_stream_needs():
    (panel,) = experiment("batch-size", SweepOptions(quick=True)).panels
    assert {cell.column: cell.jobs[0].batch_size for cell in panel.cells} == {
        "batch size 10": 10, "batch size 20": 20, "batch size 40": 40,
    }  # fmt: skip
    cells = experiment("balanced", SweepOptions(learners=["curl"], quick=True)).panels[0].cells
    assert [cell.jobs[0].batch_size for cell in cells] == [10, 10]


def test_low_capacity_in_small_has_less_than_the_stream_usually_has():
    cells = {
        cell.row: cell.jobs[0]
        for cell in experiment("low-capacity", SweepOptions(quick=True)).panels[0].cells
    }
    assert cells["gss"].settings == {"hidden": 100, "memory_size": 30, "iterations": 5}
    assert cells["finetune"].settings == {"hidden": 100}


def test_what_is_small_already_keeps_its_sizes(mine):
    small = experiment(
        mine(MINE.replace("hidden = 50", "hidden = 50, memory_size = 150")), SweepOptions(quick=True)
    )
    assert small.jobs()[0].settings == {"hidden": 50, "memory_size": 150, "temperature": 0.1}


def test_in_small_few_passes_stay_few():
    cells = experiment("balanced", SweepOptions(learners=["curl"], quick=True)).panels[0].cells
    assert {cell.row: cell.jobs[0].horizon.epochs for cell in cells} == {"curl": 10, "curl, online": 1}


def test_in_small_a_memory_is_a_tenth_and_called_so():
    cell = experiment("buffer", SweepOptions(quick=True)).panels[0].cell("cope", "memory 150")
    assert cell.jobs[0].settings == {"renormalise": True, "memory_size": 150}


MINE = """
title = "Mine"
[[panels]]
title = "Two settings"
figure = "lines"
axis = "temperature"
source = "my notes"
all = { stream = "split-digits", scenario = "blurry", settings = { hidden = 50 } }
[panels.rows]
cope = { learner = "cope" }
[panels.columns]
"0.1" = { settings = { temperature = 0.1 } }
"0.5" = { settings = { temperature = 0.5 } }
[panels.published]
cope = { "0.5" = { mean = 90.0 } }
"""


@pytest.fixture
def mine(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def test_a_file_of_ones_own_is_an_experiment(mine):
    found = experiment(mine(MINE))
    assert found.name == "mine"
    first, second = found.panels[0].cells
    assert first.jobs[4] == Job(
        "cope", "split-digits", 4, scenario="blurry", settings={"hidden": 50, "temperature": 0.1}
    )
    assert (second.published.mean, second.published.std, second.published.source) == (90, None, "my notes")


MISTAKES = {
    "mine.toml can't be read": ("title =", "title"),
    "mine.toml: there is no value 'titel'; did you mean 'title'?": ("title = \"Mine\"", 'titel = "Mine"'),
    "mine.toml: panels is missing": (MINE, 'title = "Mine"'),
    "panel 'Two settings': figure is one of table, lines, bars, not 'pie'": ('"lines"', '"pie"'),
    "row 'cope', column '0.1': there is no stream 'split-digit'; did you mean": ("split-digits", "split-digit"),
    "there is no learner 'cop'; did you mean 'cope'?": ('learner = "cope"', 'learner = "cop"'),
    "cope has no setting 'temprature'; did you mean 'temperature'?": ("{ temperature = 0.1", "{ temprature = 0.1"),
    "column '0.1': temperature must be a number, not 'cold'": ("temperature = 0.1", 'temperature = "cold"'),
    "column '0.1': temperature must be above 0, not -1": ("temperature = 0.1", "temperature = -1"),
    "there is no value 'batchsize'; did you mean 'batch_size'?": ("{ learner", "{ batchsize = 3, learner"),
    "row 'cope': imbalance is a whole number, not 'much'": ("{ learner", '{ imbalance = "much", learner'),
    "no stream is named, neither for all nor by the row or the column": ('stream = "split-digits", ', ""),
    "a value is published for 'cope', '0.7', which is not a cell": ('"0.5" = { mean', '"0.7" = { mean'),
    "is [mean, std] in percent, not [90.0]": ("{ mean = 90.0 }", "[90.0]"),
    "what is published for 'cope', '0.5' has no source": ('source = "my notes"\n', ""),
    "there is no scenario 'blury'": ("blurry", "blury"),
    "mine.toml, panels: expected a table of values, not 1": (MINE, 'title = "Mine"\npanels = [1]'),
    "mine.toml: panels is empty, so there is nothing to run": (MINE, 'title = "Mine"\npanels = []'),
    "panel 'Two settings': rows is empty": ('cope = { learner = "cope" }\n', ""),
    "what is published for 'cope' is { COLUMN = [mean, std] }, not 3": ('{ "0.5" = { mean = 90.0 } }', "3"),
    "mine.toml: notes must hold strings, not 1": ('title = "Mine"', 'title = "Mine"\nnotes = [1]'),
    "row 'cope': columns must hold strings, not 1": ("{ learner", "{ columns = [1], learner"),
    "column '0.5': batch_size must be at least 1, not 0": ('"0.5" = { ', '"0.5" = { batch_size = 0, '),
    "reference: there is no row 'cop'; did you mean 'cope'?": ('figure = "', 'reference = "cop"\nfigure = "'),
    "mine.toml, track: there is no tracker 'mlfow'; did you mean 'mlflow'?": (
        'title = "Mine"', 'title = "Mine"\ntrack = ["mlfow"]',
    ),
    "column '0.1': epochs must be at least 1, not 0": ("{ learner", "{ epochs = 0, learner"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_in_a_file_is_said_in_a_sentence(sentence, mine):
    wrong, right = MISTAKES[sentence]
    assert wrong in MINE
    with pytest.raises(ValueError) as caught:
        experiment(mine(MINE.replace(wrong, right)))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("mine.toml")


def test_a_mistake_in_the_second_panel_names_the_file_too(mine):
    second = MINE.replace('title = "Mine"', "").replace("Two settings", "Second").replace('"lines"', '"pie"')
    with pytest.raises(ValueError, match="^mine.toml, panel 'Second': figure is one of"):
        experiment(mine(MINE + second))


def test_a_file_that_is_no_text_is_named(mine):
    path = mine("")
    path.write_bytes(MINE.replace("Mine", "Größe").encode("latin-1"))
    with pytest.raises(ValueError, match="^mine.toml can't be read: it is not UTF-8 text"):
        experiment(path)


def test_beyond_the_paper_every_panel_has_the_other_learners_with_replay():
    for panel in experiment("beyond").panels:
        assert panel.rows[:5] == ["reservoir", "mir", "cope-ce", "cope", "cope+"]
        assert all(", learning rate " in row or ", with additions" in row for row in panel.rows[5:])
    for name in ("split-cifar10", "split-cifar100"):
        panel = experiment("beyond", SweepOptions(streams=[name])).panels[0]
        own = panel.cell("cope+", panel.columns[-1]).jobs[0]
        assert key(own) == key(Job("cope+", name, 0))
