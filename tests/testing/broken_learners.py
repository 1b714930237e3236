"""Learners that each break one promise, and some that keep them all, or fail in other ways."""

import random
from contextlib import suppress

import numpy as np
import torch
from torch import nn

from everlearn.learners.reservoir import Reservoir
from everlearn.memory.reservoir import ReservoirMemory


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
    """Adds up its samples; `add` says how it does so."""

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
    """Keeps the exemplars of a class that is forgotten, as another class."""

    def forget_class(self, slot):
        self.memory._slots[self.memory._slots == slot] = 0
        super().forget_class(slot)


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


class Negative(Reservoir):
    """Its probabilities sum to 1, and one is negative."""

    def predict_proba(self, x):
        return super().predict_proba(x) + np.array([-2, 1, 1])


class AliasState(SumInPlace):
    """Gives away the very tensor that it changes in place."""

    def extra_state(self):
        return super().extra_state() | ({} if self.network is None else {"total": self.total})


class AliasPredict(AliasState):
    """Changes it in predictions, too."""

    def scores(self, x):
        self.total += 1
        return super().scores(x)


class PredictMutates(Reservoir):
    """Counts its predictions, which change what it learns, and does not save the number."""

    asked = 0

    def scores(self, x):
        self.asked += 1
        return super().scores(x)

    def step(self, x, slots, *replay):
        super().step(x * (1 + self.asked), slots, *replay)


class Moody(Reservoir):
    """Counts its predictions, which change later ones."""

    asked = 0

    def scores(self, x):
        self.asked += 1
        return super().scores(x) / self.asked


class HiddenBias(NewSum):
    """Does not save a tensor that only predictions use."""

    def extra_state(self):
        return {key: part for key, part in super().extra_state().items() if key != "total"}

    def restore_extra(self, state):
        super().restore_extra(state | {"total": torch.zeros(1)})

    def add(self, value):
        self.total = self.total + 1

    def scores(self, x):
        return super().scores(x) * (1 + self.total)


class PredictGlobal(Reservoir):
    """Draws from the global generator in predictions."""

    def scores(self, x):
        torch.rand(1)
        return super().scores(x)


class EndGlobal(Reservoir):
    """Draws from the global generator at the end of a horizon."""

    def end_horizon(self):
        torch.rand(1)


class DrawPython(Reservoir):
    """Draws from the global generator of Python."""

    def step(self, x, slots, *replay):
        random.random()
        super().step(x, slots, *replay)


class EndForgetful(Reservoir):
    """Counts its horizons, which change what it learns, and does not save the number."""

    horizons = 0

    def end_horizon(self):
        self.horizons += 1

    def step(self, x, slots, *replay):
        super().step(x * (1 + self.horizons), slots, *replay)


class Deaf(Reservoir):
    """Hides errors."""

    def observe(self, x, y, t=None, sample_weight=None):
        with suppress(InterruptedError):
            super().observe(x, y, t, sample_weight)


class BadMerge(Reservoir):
    """Fails in the middle of a merge."""

    def merge_from(self, other, slots):
        np.zeros(3) + np.zeros(4)


class HoardList(Reservoir):
    """Keeps every sample in a list."""

    def install(self, network, features):
        super().install(network, features)
        self.everything = []

    def step(self, x, slots, *replay):
        self.everything = [*self.everything, x]
        super().step(x, slots, *replay)


class HoardState(Reservoir):
    """Keeps every sample in a tensor that it saves."""

    def install(self, network, features):
        super().install(network, features)
        self.everything = torch.zeros(0, features)

    def step(self, x, slots, *replay):
        self.everything = torch.cat([self.everything, torch.zeros(len(x), self.everything.shape[1])])
        super().step(x, slots, *replay)

    def extra_state(self):
        held = {} if self.network is None else {"everything": self.everything.clone()}
        return super().extra_state() | held

    def restore_extra(self, state):
        super().restore_extra(state)
        if self.network is not None:
            self.everything = state["everything"].clone()


class Overfull(Reservoir):
    """Stores twice as many samples as it may."""

    def make_memory(self):
        return ReservoirMemory(2 * self.settings.memory_size, self.labels, self.generator)


class ReadsItem(Reservoir):
    """Its step reads the value of a tensor."""

    def step(self, x, slots, *replay):
        super().step(x * (2 if x.float().sum().item() > 0 else 1), slots, *replay)


class ReadsList(Reservoir):
    """Its step reads the values of a tensor as a list."""

    def step(self, x, slots, *replay):
        super().step(x * len(set(slots.tolist())), slots, *replay)


class ReadsEagerly(ReadsItem):
    """The same, and says so."""

    tensors_alone = False


class LacksKey(Reservoir):
    """Has a defect that raises an error."""

    def step(self, x, slots, *replay):
        return {}["means"]


class BareAssert(Reservoir):
    """Has an assertion that says nothing."""

    def step(self, x, slots, *replay):
        assert len(x) > 10


class OneSample(Reservoir):
    """Refuses a first batch."""

    def step(self, x, slots, *replay):
        raise ValueError("one sample at a time")


# A check, a learner that breaks its promise, and what the check says about it.
BROKEN = [
    ("labels_of_any_kind", Guessing, r"labels that were never seen: {'\?'}"),
    ("many_classes", Closed, "no room"),
    ("probabilities", Overconfident, "the rows of predict_proba sum to"),
    ("probabilities", Negative, "predict_proba gives negative numbers"),
    ("before_the_first_label", Eager, "predict gives labels before any was seen"),
    ("same_seed", Gambling, "observe draws from the global generator of torch"),
    ("same_seed", PredictGlobal, "predict draws from the global generator of torch"),
    ("same_seed", EndGlobal, "end_horizon draws from the global generator of torch"),
    ("same_seed", DrawPython, "observe draws from the global generator of Python"),
    ("prediction_changes_nothing", Restless, "predict changed the state: network"),
    ("prediction_changes_nothing", AliasPredict, "predict changed the state: total"),
    ("prediction_changes_nothing", PredictMutates, "predictions between batches changed the state: network"),
    ("prediction_changes_nothing", Moody, "predictions between batches changed predict_proba"),
    ("resuming", Forgetful, "a stop after 1 batches changed the state: network"),
    ("resuming", HiddenBias, "save and load after 1 batches changed predict_proba"),
    ("resuming", EndForgetful, "a stop after 2 batches changed the state: network"),
    ("earlier_states", AliasState, "what state_dict returned changes when the learner goes on: total"),
    ("bad_batches", Hasty, r"a refused batch \(.*\) changed the state: meta"),
    ("failing_step", SumInPlace, "a step that failed changed the state: total"),
    ("failing_step", AliasState, "a step that failed changed the state: total"),
    ("failing_step", Deaf, "observe hides an error of step"),
    ("revisiting", Hoarder, "revisit changed the state: memory"),
    ("forgetting", Clinging, r"the memory has .* after forget\('b'\)"),
    ("merging", Thief, "merge changed the state: network"),
    ("merging", BadMerge, "operands could not be broadcast"),
    ("snapshots", Shared, "a snapshot changes when the learner goes on"),
    ("copying", Tied, "teaching a copy changed the state"),
    ("bounded_memory", Approximate, "footprint gives .* which are no numbers of bytes"),
    ("bounded_memory", Overfull, "it stores 60 samples, and memory_size is 30"),
    ("bounded_memory", HoardList, "it stores more than it tells"),
    ("bounded_memory", HoardState, "it stores more than it tells"),
    ("bytes_stay_bytes", Floating, "bytes are kept as torch.float32"),
    ("host_reads", ReadsItem, r"the host needs the values of a tensor \(item\)"),
    ("host_reads", ReadsList, r"the host needs the values of a tensor \(tolist\)"),
]

for kind in [*(kind for _, kind, _ in BROKEN), NewSum, ReadsEagerly, LacksKey, BareAssert, OneSample]:
    kind.name = kind.__name__.lower()


def small_network():
    """A network of one's own, for six numbers."""
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
