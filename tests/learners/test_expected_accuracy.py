"""A table of the accuracies that learners reach on Split-Digits: what breaks a method shows here in seconds.

The bands hold what six seeds gave and some more on either side; they are no targets.
"""

import pytest

from everlearn import run, stream
from everlearn.experiments.settings import learner as by_name
from everlearn.learners import registry
from everlearn.streams.horizon import Horizon

EXPECTED = {  # learner: lowest and highest accuracy, in percent
    "ccl-dc": (84, 97),
    "cn-dpm": (73, 88),
    "cope": (92, 99),
    "cope+": (93, 100),
    "cope-ce": (82, 97),
    "curl": (60, 79),
    "der++": (88, 99),
    "er-ace": (83, 97),
    "finetune": (15, 25),
    "gdumb": (60, 97),
    "gem": (80, 97),
    "gsa": (80, 97),
    "gss": (70, 92),
    "icarl": (68, 90),
    "iid-offline": (85, 99),
    "iid-online": (50, 97),
    "knn": (90, 99),
    "mir": (86, 99),
    "mkd": (80, 95),
    "mose": (82, 97),
    "ncm": (83, 94),
    "ocm": (70, 98),
    "onpro": (72, 98),
    "pcr": (90, 99),
    "ranpac": (93, 100),
    "reservoir": (81, 97),
    "scr": (90, 99),
    "slda": (91, 99),
}

SHORTER = {"iid-offline": Horizon("stream", epochs=10), "curl": Horizon("task", epochs=3)}
SMALLER = {"ranpac": {"projection": 500}}


@pytest.mark.parametrize("name", sorted(registry()))
def test_a_learner_reaches_on_split_digits_what_it_always_did(name):
    if name not in EXPECTED:
        pytest.fail(
            f"{name} has no row in the table EXPECTED: run it on split-digits, and add its band there"
        )
    source = stream("split-digits", seed=0)
    learner = by_name(name, stream=source, seed=0, device="cpu", **SMALLER.get(name, {}))
    accuracy = 100 * run(learner, source, horizon=SHORTER.get(name)).accuracy
    lowest, highest = EXPECTED[name]
    assert lowest <= accuracy <= highest


def test_the_table_has_no_row_of_a_learner_that_is_gone():
    assert EXPECTED.keys() <= registry().keys()
