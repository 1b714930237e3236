"""What the pictures show: their lines, bands, labels and panels, not their pixels."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from everlearn import plots
from everlearn.evaluation.history import Evaluation, from_matrix
from everlearn.plots import classes, curves, plane, style

NAMES = ["cope", "cope-ce", "finetune", "iid-online", "iid-offline", "reservoir", "mir"]
NAMES += ["gss", "gem", "icarl", "curl", "cn-dpm", "cope+"]


def run(tasks=5, per_task=2, evaluations=3, level=0.8):
    """A made-up history of a learner with a memory of 100 and prototypes."""
    history, samples = [], 0
    for task, _ in itertools.product(range(tasks), range(evaluations)):
        samples += 100
        seen = range((task + 1) * per_task)
        history.append(
            Evaluation(
                batches=samples // 10,
                samples=samples,
                task=task,
                accuracies={i: level - 0.02 * (task - i) for i in range(task + 1)},
                labels=tuple(range(tasks * per_task)),
                confusion=np.eye(tasks * per_task, dtype=np.int64),
                exemplars={c: 100 // len(seen) for c in seen},
                prototype_shift={c: 0.01 * (c + 1) for c in seen},
            )
        )
    return history


def named_lines(ax):
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def words(ax):
    return [text.get_text() for text in ax.texts]


# Accuracy over the stream


def test_accuracy_over_stream_has_a_line_per_learner_with_the_mean_over_seeds():
    histories = {"cope": [run(level=0.8), run(level=0.9)], "finetune": [run(level=0.4)]}
    (ax,) = curves.accuracy_over_stream(histories).axes
    lines = named_lines(ax)
    assert list(lines) == ["cope", "finetune"]
    assert lines["cope"].get_xdata().tolist() == [evaluation.samples for evaluation in run()]
    mean = [100 * (e.accuracy + 0.05) for e in run(level=0.8)]
    assert lines["cope"].get_ydata() == pytest.approx(mean)
    assert f"cope {mean[-1]:.1f}" in words(ax)


def test_the_band_is_one_std_and_stays_between_0_and_100_percent():
    histories = {"cope": [from_matrix([[1.0], [1.0, 1.0]]), from_matrix([[0.5], [0.9, 0.9]])]}
    (ax,) = curves.accuracy_over_stream(histories).axes
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == 100  # 75 + 35.4 would be above
    assert heights.min() == pytest.approx(75 - 100 * np.std([1.0, 0.5], ddof=1))


def test_anytime_accuracy_over_stream_ends_at_the_average_anytime_accuracy():
    (ax,) = curves.anytime_accuracy_over_stream({"cope": [run()]}).axes
    heights = named_lines(ax)["cope"].get_ydata()
    assert heights[0] == pytest.approx(100 * run()[0].accuracy)
    assert heights[-1] == pytest.approx(100 * np.mean([e.accuracy for e in run()]))


def test_runs_evaluated_at_other_moments_are_read_between_them():
    sparse = [from_matrix([[0.8], [0.4, 0.4]])[n] for n in (0, 1)]
    dense = [sparse[0], Evaluation(3, 3, 1, {0: 0.0, 1: 0.0}, (), np.zeros((0, 0), np.int64))]
    (ax,) = curves.accuracy_over_stream({"cope": [sparse, dense]}).axes
    assert named_lines(ax)["cope"].get_ydata() == pytest.approx([80, (40 + 40) / 2])


@pytest.mark.parametrize("tasks", [5, 20])
def test_accuracy_per_task_has_a_line_per_task_from_its_first_measurement(tasks):
    (ax,) = curves.accuracy_per_task({"cope": [run(tasks)]}).axes
    lines = named_lines(ax)
    assert list(lines) == [*(f"task {i}" for i in range(1, tasks + 1)), "mean"]
    third = lines["task 3"].get_ydata()
    assert np.isnan(third[:6]).all()
    assert third[6] == pytest.approx(80)
    assert len({line.get_color() for line in lines.values()}) == tasks + 1


def test_accuracy_per_task_has_a_panel_per_learner():
    figure = curves.accuracy_per_task({name: [run()] for name in NAMES[:6]})
    assert [ax.get_title() for ax in figure.axes] == NAMES[:6]


def test_one_evaluation_is_drawn_as_a_mark():
    (ax,) = curves.accuracy_over_stream({"cope": [run()[-1:]]}).axes
    assert named_lines(ax)["cope"].get_marker() == "o"


# Transitions


def test_every_task_begins_at_a_line_with_its_number():
    (ax,) = curves.accuracy_over_stream({"cope": [run(5)]}).axes
    starts = [line.get_xdata()[0] for line in ax.lines if line.get_label().startswith("_")]
    assert starts == [0, 300, 600, 900, 1200]
    assert words(ax)[:5] == ["task 1", "task 2", "task 3", "task 4", "task 5"]


def test_a_task_that_comes_back_is_marked_again():
    history = [
        Evaluation(n, 10 * n, t, {0: 0.5}, (), np.zeros((0, 0), int)) for n, t in enumerate([0, 1, 0], 1)
    ]
    assert style.transitions(history) == [(0, 0), (10, 1), (20, 0)]


@pytest.mark.parametrize("learners", [1, 6])
@pytest.mark.parametrize("tasks", [5, 20, 50])
def test_the_numbers_of_tasks_do_not_overlap(tasks, learners):
    figure = curves.accuracy_per_task({name: [run(tasks)] for name in NAMES[:learners]})
    figure.draw_without_rendering()
    for ax in figure.axes:
        numbers = [text for text in ax.texts if text.get_text().removeprefix("task ").isdigit()]
        above = [text for text in numbers if text.xy[1] == 1]
        boxes = sorted((text.get_window_extent() for text in above), key=lambda box: box.x0)
        assert len(above) >= 5
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_the_names_at_the_ends_of_thirteen_lines_do_not_overlap():
    histories = {name: [run(level=0.5 + 0.01 * place)] for place, name in enumerate(NAMES)}
    figure = curves.accuracy_over_stream(histories)
    figure.draw_without_rendering()
    (ax,) = figure.axes
    names = [text for text in ax.texts if text.get_text().split()[0] in NAMES]
    boxes = sorted(
        (Text.get_window_extent(text) for text in names), key=lambda box: box.y0
    )  # without leaders
    assert len(boxes) == len(NAMES)
    assert all(below.y1 <= above.y0 + 0.5 for below, above in itertools.pairwise(boxes))


# Class by class


def test_confusion_matrices_are_percent_of_the_true_class_summed_over_seeds():
    def end(matrix):
        return [Evaluation(1, 10, 0, {0: 0.5}, ("cat", "dog"), np.array(matrix))]

    figure = classes.confusion_matrices({"cope": [end([[3, 1], [0, 0]]), end([[0, 4], [0, 2]])]})
    ax = figure.axes[0]
    assert ax.images[0].get_array().tolist() == [[37.5, 62.5], [0, 100]]
    assert words(ax) == ["38", "62", "100"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["cat", "dog"]
    assert ax.get_title() == "cope: 50.0 %"


def test_a_hundred_classes_are_a_matrix_without_numbers_and_with_few_ticks():
    ax = classes.confusion_matrices({"cope": [run(20, 5)]}).axes[0]
    assert words(ax) == []
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [str(c) for c in range(0, 100, 10)]


def test_memory_over_stream_stacks_the_classes_from_an_empty_memory_on():
    histories = {"cope": [run()], "finetune": [from_matrix([[0.9], [0.1, 0.9]])]}
    (ax,) = classes.memory_over_stream(histories).axes
    assert ax.get_title() == "cope"
    assert len(ax.collections) == 10
    top = ax.collections[-1].get_paths()[0].vertices
    assert top[:, 1].max() == 100
    assert 0 in top[:, 0]
    assert words(ax)[-10:] == [str(c) for c in range(10)]


def test_drift_over_stream_has_a_line_per_class_and_their_mean():
    (ax, key) = classes.drift_over_stream({"cope": [run()]}).axes
    lines = named_lines(ax)
    assert list(lines) == [*map(str, range(10)), "mean"]
    assert lines["4"].get_ydata()[6:] == pytest.approx([0.05] * 9)
    assert np.isnan(lines["4"].get_ydata()[:6]).all()
    assert lines["mean"].get_ydata()[0] == pytest.approx((0.01 + 0.02) / 2)
    assert [tick.get_text() for tick in key.get_yticklabels()] == [str(c) for c in range(10)]


def test_drift_is_per_100_samples_however_far_evaluations_are_apart():
    blank = (0, {0: 0.8}, (), np.zeros((0, 0), int))
    moments = {50: 0.1, 250: 0.4}
    history = [Evaluation(1, n, *blank, prototype_shift={"a": shift}) for n, shift in moments.items()]
    lines = named_lines(classes.drift_over_stream({"cope": [history]}).axes[0])
    assert lines["a"].get_ydata() == pytest.approx([0.2, 0.2])


def test_what_no_learner_has_can_not_be_drawn():
    histories = {"finetune": [from_matrix([[0.9], [0.1, 0.9]])]}
    with pytest.raises(ValueError, match="no memory to draw: finetune kept no exemplars"):
        classes.memory_over_stream(histories)
    with pytest.raises(ValueError, match="no drift to draw: finetune moved no prototypes"):
        classes.drift_over_stream(histories)
    with pytest.raises(ValueError, match="finetune hold no confusion matrix"):
        classes.confusion_matrices(histories)
    with pytest.raises(ValueError, match="nothing to draw"):
        curves.accuracy_per_task({})


# The embedding


@pytest.mark.parametrize("count", [10, 100])
def test_embedding_plane_shows_samples_and_named_prototypes(count):
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(count, 16, generator=generator)
    features = centres.repeat(3, 1) + 0.1 * torch.randn(3 * count, 16, generator=generator)
    prototypes = {f"c{i}": centre for i, centre in enumerate(centres)}
    figure = plane.embedding_plane(features, list(prototypes) * 3, prototypes)
    (ax,) = figure.axes
    dots, stars = ax.collections
    assert len(dots.get_offsets()) == 3 * count
    assert len(stars.get_offsets()) == count
    assert words(ax) == list(prototypes)


def test_of_very_many_samples_an_even_part_is_drawn():
    figure = plane.embedding_plane(torch.randn(9000, 2), [0] * 9000, {})
    assert len(figure.axes[0].collections[0].get_offsets()) == plane.MOST_DOTS


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_labels_that_were_pushed_apart_do_not_cover_each_other(count, seed):
    rng = np.random.default_rng(seed)
    centres, sizes = rng.uniform(0, 200, (count, 2)), rng.uniform(4, 14, (count, 2))
    nothing = np.empty((0, 2))
    placed = plane.push_apart(centres, sizes, nothing, nothing)
    for i, j in itertools.combinations(range(count), 2):
        room = (sizes[i] + sizes[j]) / 2 - np.abs(placed[i] - placed[j])
        assert room.min() <= 1e-2


def test_a_label_gives_way_to_a_star_that_does_not_move():
    label, star = (np.array([[0.0, 1.0]]), np.full((1, 2), 4.0)), (np.zeros((1, 2)), np.full((1, 2), 6.0))
    assert plane.push_apart(*label, *star) == pytest.approx(np.array([[0.0, 5.0]]), abs=1e-2)


# Files


def test_every_picture_is_written_to_a_folder_that_is_made(tmp_path):
    histories = {"cope": [run()], "mine": [run()]}
    for draw in (
        plots.accuracy_over_stream,
        plots.accuracy_per_task,
        plots.anytime_accuracy_over_stream,
        plots.confusion_matrices,
        plots.drift_over_stream,
        plots.memory_over_stream,
    ):
        path = draw(histories, tmp_path / "new" / f"{draw.__name__}.png")
        assert path.read_bytes().startswith(b"\x89PNG")
    path = plots.embedding_plane(torch.eye(3), [0, 1, 2], {0: torch.ones(3)}, tmp_path / "plane.svg")
    assert "<svg" in path.read_text()


@pytest.mark.parametrize("runs", [[], [[]], [run(), []], run(), run()[0], 3])
def test_what_are_no_histories_of_seeds_can_not_be_drawn(runs, tmp_path):
    with pytest.raises(
        ValueError, match=r"nothing to draw of 'cope': give the history of every seed, such as \[re"
    ):
        plots.accuracy_over_stream({"cope": runs}, tmp_path / "a.png")
    with pytest.raises(ValueError, match="nothing to draw: give a dict of learners"):
        plots.confusion_matrices({}, tmp_path / "a.png")


def test_matplotlib_loads_only_when_a_picture_is_drawn():
    code = "import sys, everlearn.plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
