"""The checks of a learner: each fails for a learner that breaks its promise, and for no other reason."""

import json

import pytest
import torch
from torch import nn

from everlearn import Finetune
from everlearn.cli import main
from everlearn.learners.reservoir import Reservoir
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.testing import CHECKS, Subject, check_learner


class Closed(Reservoir):
    """Has room for twenty classes."""

    def open_classes(self, classes):
        if classes > 20:
            raise IndexError("no room")
        super().open_classes(classes)


class Guessing(Reservoir):
    """Predicts a label of its own."""

    def predict(self, x):
        return ["?" for _ in super().predict(x)]


class Overconfident(Reservoir):
    """Its probabilities sum to more than 1."""

    def predict_proba(self, x):
        return super().predict_proba(x) * 2


class Eager(Reservoir):
    """Predicts before anything was learnt."""

    def predict(self, x):
        return super().predict(x) if self.classes else [0] * len(x)


class Gambling(Reservoir):
    """Draws from the global generator."""

    def step(self, x, slots, *replay):
        super().step(x + torch.rand(1), slots, *replay)


class Restless(Reservoir):
    """Moves its weights when it is asked."""

    def scores(self, x):
        with torch.no_grad():
            self.parameters[0].mul_(1.5)
        return super().scores(x)


class Forgetful(Reservoir):
    """Counts its steps, which change what it learns, and does not save the number."""

    steps = 0

    def step(self, x, slots, *replay):
        self.steps += 1
        super().step(x * self.steps, slots, *replay)


class Sum(Reservoir):
    """Adds up its samples; `ways` says how it does so."""

    def install(self, network, features):
        super().install(network, features)
        self.total = torch.zeros(1)

    def step(self, x, slots, *replay):
        super().step(x, slots, *replay)
        self.add(x.sum())

    def extra_state(self):
        held = {} if self.network is None else {"total": self.total.clone()}
        return super().extra_state() | held

    def restore_extra(self, state):
        super().restore_extra(state)
        if self.network is not None:
            self.total = state["total"].clone()


class NewSum(Sum):
    """Replaces its tensor, as it should."""

    def add(self, value):
        self.total = self.total + value


class SumInPlace(Sum):
    """Changes its tensor in place, so that nothing can undo it."""

    def add(self, value):
        self.total += value


class Hasty(Reservoir):
    """Counts a batch before it is checked."""

    def observe(self, x, y, t=None, sample_weight=None):
        self.batches += 1
        super().observe(x, y, t, sample_weight)


class Hoarder(Reservoir):
    """Stores what it revisits."""

    def plan(self, labels, keep=True):
        return super().plan(labels, True)


class Clinging(Reservoir):
    """Keeps the exemplars of a class that is forgotten."""

    def forget_class(self, slot):
        self.head.forget(slot)


class Thief(Reservoir):
    """Changes the learner that it takes in."""

    def merge_from(self, other, slots):
        super().merge_from(other, slots)
        with torch.no_grad():
            other.parameters[0].mul_(2)


class Shared(Reservoir):
    """Moves its predictions by what it has seen, and shares that with its snapshots."""

    def install(self, network, features):
        super().install(network, features)
        self.seen = torch.zeros(1)

    def step(self, x, slots, *replay):
        super().step(x, slots, *replay)
        self.seen += len(x)

    def scores(self, x):
        scores = super().scores(x)
        return scores * self.seen


class Tied(Reservoir):
    """Shares its weights and its memory with its copies."""

    def __copy__(self):
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other


class Approximate(Reservoir):
    """Tells its memory in kilobytes."""

    def footprint(self):
        return {part: size / 1000 for part, size in super().footprint().items()}


class Floating(Reservoir):
    """Gives its exemplars as floats."""

    class Memory(ReservoirMemory):
        def samples(self):
            x, labels = super().samples()
            return x.float(), labels


BROKEN = {
    "many_classes": Closed,
    "labels_of_any_kind": Guessing,
    "probabilities": Overconfident,
    "before_the_first_label": Eager,
    "same_seed": Gambling,
    "prediction_changes_nothing": Restless,
    "resuming": Forgetful,
    "failing_step": SumInPlace,
    "bad_batches": Hasty,
    "revisiting": Hoarder,
    "forgetting": Clinging,
    "merging": Thief,
    "snapshots": Shared,
    "copying": Tied,
    "bounded_memory": Approximate,
    "bytes_stay_bytes": Floating,
}

for kind in [*BROKEN.values(), NewSum]:
    kind.name = kind.__name__.lower()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_learner_that_breaks_a_promise_fails_its_check(check):
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check(Subject(BROKEN[check.__name__]))


@pytest.mark.parametrize("kind", [Reservoir, NewSum, Finetune])
def test_a_learner_that_keeps_them_passes(kind):
    check_learner(kind)


def test_the_first_broken_promise_is_raised_with_the_class_and_the_part():
    with pytest.raises(AssertionError, match=r"SumInPlace: A step that fails .* changed the state: total"):
        check_learner(SumInPlace)


def test_a_network_of_ones_own_is_made_anew_for_each_check():
    made = []

    def network():
        made.append(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)))
        return made[-1]

    check_learner(Reservoir, network, learning_rate=0.01)
    assert len(made) > 20


def test_a_setting_reaches_the_learner():
    with pytest.raises(AssertionError, match="learning_rate must be above 0, not -1"):
        check_learner(Reservoir, learning_rate=-1)


def test_the_command_lists_every_promise_and_fails_if_one_is_broken(capsys):
    assert main(["check", "test_checks:Hoarder"]) == 1
    printed = capsys.readouterr().out
    assert "✓ Prediction changes nothing.\n" in printed
    assert (
        "✗ A batch that is revisited is neither stored nor counted.\n  revisit changed the state: memory."
        in printed
    )
    assert f"test_checks:Hoarder: {len(CHECKS) - 1} kept, 1 broken, 0 that do not apply" in printed


def test_the_command_as_json(capsys):
    assert main(["check", "finetune", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["learner"] == "finetune" and len(told["checks"]) == len(CHECKS)
    by_promise = {check["promise"]: check for check in told["checks"]}
    assert by_promise["Prediction changes nothing."] == {
        "promise": "Prediction changes nothing.",
        "kept": True,
        "why": None,
    }
    assert by_promise["Images of bytes are kept as bytes."]["kept"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["copee"], "there is no learner 'copee'; did you mean 'cope'?"),
        (["cope", "--set", "hidden=-3"], "hidden must be at least 1, not -3"),
        (["cope", "--network", "mpl"], "there is no network 'mpl'; did you mean 'mlp'?"),
    ],
)
def test_a_mistake_is_one_sentence(words, said, capsys):
    assert main(["check", *words]) == 2
    assert said in capsys.readouterr().err
