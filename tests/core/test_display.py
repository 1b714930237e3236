"""How every learner shows itself, before and after its first batch."""

import copy
from xml.etree import ElementTree

import torch
from small_learners import every_learner, make, same_state, taught

from everlearn import CoPE
from everlearn.core.display import as_html, as_text, changed_settings


def facts(learner):
    """The rows of its card."""
    cells = [cell.text for cell in ElementTree.fromstring(as_html(learner)).iter("td")]
    return dict(zip(cells[::2], cells[1::2], strict=True))


def without_colour(x):
    return x


class Tiny(torch.nn.Linear):
    """A network of the user's."""


@every_learner
def test_every_learner_shows_itself_before_and_after_its_first_batch(name):
    new, learner = make(name), taught(name)
    assert as_text(new).endswith("): no classes yet")
    assert as_text(new).startswith(f"{type(new).__name__}('")
    assert as_text(learner).endswith(f"{len(learner.classes)} classes, {learner.samples} samples")
    assert "\n" not in as_text(learner)
    assert "labels" not in facts(new)
    assert facts(learner)["device"] == "cpu"


def test_only_settings_that_differ_from_the_defaults_are_shown():
    assert as_text(CoPE(device="cpu")) == "CoPE('mlp'): no classes yet"
    learner = CoPE(device="cpu", seed=3, memory_size=50, momentum=CoPE.Settings().momentum)
    assert changed_settings(learner) == {"seed": "3", "memory_size": "50"}
    assert as_text(learner) == "CoPE('mlp', seed=3, memory_size=50): no classes yet"


def test_a_network_and_a_function_of_the_users_are_shown_by_name():
    learner = CoPE(Tiny(4, 2), device="cpu", augmentation=without_colour)
    assert as_text(learner) == "CoPE(Tiny(), augmentation=without_colour): no classes yet"


def test_a_card_lists_labels_exemplars_and_memory():
    learner = CoPE(hidden=8, memory_size=12, device="cpu")
    labels = ["<script>", "a\nb", "x" * 100, *range(9)]
    learner.observe(torch.randn(12, 6), labels)
    shown = facts(learner)
    assert shown["labels"] == f"'<script>', 'a\\nb', '{'x' * 38}…, 0, 1, 2, 3, 4, 5, 6, …"
    assert (shown["seen"], shown["exemplars"]) == ("12 classes, 12 samples", "12")
    assert shown["memory"] == f"{sum(learner.footprint().values()) / 1e6:.2f} MB"
    assert "<script>" not in as_html(learner)


def test_showing_a_learner_does_not_change_it():
    learner = taught("cope")
    before = copy.deepcopy(learner)
    as_text(learner), as_html(learner)
    same_state(learner.state_dict(), before.state_dict())
