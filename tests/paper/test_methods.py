"""Methods side by side: what they cost, which are on the frontier, and the table that `reproduce` prints."""

from pathlib import Path
from statistics import fmean, stdev

import pytest

from everlearn.experiments import results
from everlearn.experiments.cost import images_per_new_image
from everlearn.experiments.options import SweepOptions
from everlearn.experiments.protocol import protocol
from everlearn.experiments.store import Store
from everlearn.paper import methods
from everlearn.paper.comparison import print_comparison
from everlearn.paper.experiment import experiment
from everlearn.paper.methods import frontier, methods_view
from everlearn.paper.tables import fill

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("learner", "settings", "expected"),
    [
        ("finetune", {}, 1),
        ("reservoir", {"replayed": 64}, 7.4),
        ("cope+", {"replayed": 40, "iterations": 5, "turned": 0.3}, 25),
        ("pcr", {"replayed": 64}, 14.8),  # and a view of each
        ("ccl-dc", {"replayed": 10, "augmentation": "strong"}, 20),  # two networks, five views
    ],
)
def test_every_image_that_enters_a_network_counts(learner, settings, expected):
    assert images_per_new_image(learner, settings) == pytest.approx(expected)


def test_in_p1_ours_costs_no_more_than_the_best_rival():
    used = protocol("P1")
    ours, best = (used.settings(name, "split-cifar100-10") for name in ("cope+", "mose"))
    assert images_per_new_image("cope+", ours) <= images_per_new_image("mose", best)


class Known(methods.Method):
    """A method with given accuracy and cost."""

    def __init__(self, name, cost, accuracy):
        self.__dict__.update(label=name, cost=cost)
        self.__dict__["_accuracy"] = accuracy

    name = property(lambda self: self.label)
    accuracy = property(lambda self: self._accuracy)


def test_the_frontier_has_the_methods_that_none_beats_at_the_same_or_a_lower_cost():
    points = [
        ("a", 10, 30),
        ("b", 10, 40),
        ("c", 20, 39),
        ("d", 20, 45),
        ("e", 80, 44),
        ("f", 5, 10),
        ("g", 0, 99),
    ]
    found = [Known(*point) for point in points]
    slow = {
        m.name
        for m in found
        if m.cost and all(o is m or not o.cost or o.cost > m.cost or o.accuracy < m.accuracy for o in found)
    }
    assert [m.name for m in frontier(found)] == ["f", "b", "d"] and slow == {"f", "b", "d"}


def test_a_comparison_prints_every_method_with_its_cost_and_needs(tmp_path, capsys):
    wanted = SweepOptions(learners=["er-ace", "mkd"], streams=["split-cifar100-10"], columns=["memory 2000"])
    measured = experiment("rivals-P1", wanted)
    store = Store(tmp_path / "store.sqlite")
    for record in results.read(RESULTS):
        if record.job["stream"] == "split-cifar100-10":
            store.add(record)
    print_comparison(measured, store)
    assert "memory 2000: every method; p against the first" in capsys.readouterr().out
    (table,) = fill(measured, store.records())
    view = methods_view(table, "memory 2000")
    by_name = {row.head.text: [entry.plain for entry in row.entries] for row in view.rows}
    assert list(by_name) == ["mkd", "er-ace"]  # the best one first
    assert by_name["mkd"][1] == "" and 0 < float(by_name["er-ace"][1]) < 0.05
    assert by_name["er-ace"][-2:] == ["yes", "one"] and by_name["mkd"][-2:] == ["yes", "one, and a teacher"]
    assert by_name["er-ace"][5] == "7.4" and by_name["mkd"][5] == "22.2"
    accuracies = [100 * run.result["accuracy"] for run in table.at("mkd", "memory 2000").runs]
    assert by_name["mkd"][0] == f"{fmean(accuracies):.1f} ± {stdev(accuracies):.1f}"
