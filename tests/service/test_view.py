"""What the dashboard shows, computed without a browser."""

import numpy as np
import pytest
from running import small

from everlearn import UNKNOWN, open_live
from everlearn.service.limits import Limits
from everlearn.service.monitor import Mistake
from everlearn.service.served import ServedModel
from everlearn.service.view import dashboard_of

X = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


@pytest.fixture
def model(tmp_path):
    served = ServedModel("model", open_live(tmp_path / "live", small()), Limits())
    served.live.observe(X, ["old", "new"])
    yield served
    served.close()


def test_the_confusion_shows_answers_of_which_no_label_came_lately(model):
    model.monitor.record(X, ["new", "new"], ["old", UNKNOWN], 1)
    confusion = dashboard_of(model)["confusion"]
    assert confusion["labels"] == ["new", "old"]
    assert confusion["answers"] == ["new", "old", "unknown"]
    assert confusion["counts"] == [[0, 1, 1], [0, 0, 0]]


def test_of_many_classes_those_of_the_errors_are_shown(model):
    names = [f"class {i:02}" for i in range(30)]
    model.monitor.record([X[0]] * 30, names, names, 1)
    model.monitor.record(X, ["class 07", "class 07"], ["class 03", "never told"], 1)
    confusion = dashboard_of(model)["confusion"]
    assert confusion["labels"] == ["class 03", "class 07", "never told"]
    assert confusion["counts"] == [[1, 0, 0], [1, 1, 1], [0, 0, 0]]
    assert confusion["left_out"] == 28


def test_mistakes_may_be_made_while_they_are_shown(model):
    class Disturbing(Mistake):
        @property
        def label(self):
            model.monitor.record([X[0]], ["new"], ["old"], 2)  # as another thread would
            return "new"

    model.monitor.mistakes.append(Disturbing(np.array(X[0]), "new", "old", 1, 0.0))
    assert [each["label"] for each in dashboard_of(model)["mistakes"]] == ["new"]
