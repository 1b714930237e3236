"""What holds for every learner, one function for each promise.

A check raises an AssertionError that says what is wrong. It returns a sentence if it does not apply to the learner.
"""

from __future__ import annotations

import copy
import functools
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from everlearn.core.learner import Learner, NotLearntYet
from everlearn.learners import load
from everlearn.memory.labels import Label
from everlearn.networks import is_own
from everlearn.testing.samples import Subject, assert_same_state, batches, teach

__all__ = ["CHECKS", "Check"]

Check = Callable[[Subject], str | None]

# What a user may send by mistake, and a part of the sentence that answers it.
BAD_BATCHES: dict[str, tuple[Any, Any]] = {
    "of shape [2, 5] but the network takes [*, 6]": (torch.zeros(2, 5), ["a", "b"]),
    "of shape [6], but it takes a batch": (torch.zeros(6), ["a"]),
    "NaN or infinite values": (torch.tensor([[0, 0, 0, 0, 0, math.nan]]), ["a"]),
    "or infinite values in x": (torch.tensor([[0, 0, 0, 0, 0, math.inf]]), ["a"]),
    "got an empty batch": (torch.zeros(0, 6), []),
    "got 2 samples but 3 labels": (torch.zeros(2, 6), ["a", "b", "c"]),
    "a label is a str, int": (torch.zeros(2, 6), ["a", object()]),
    "y is a sequence of labels": (torch.zeros(2, 6), {"a", "b"}),
    "for each sample, not {'a': 1, 'b': 2}": (torch.zeros(2, 6), {"a": 1, "b": 2}),
    "of shape [], but it takes a batch": (torch.tensor(3.0), ["a"]),
    "array of numbers, not str": ("hello", ["a"]),
    "but this learner began with torch.float32": (torch.zeros(2, 6, dtype=torch.uint8), ["a", "b"]),
}


def labels_of_any_kind(subject: Subject) -> None:
    """Labels of any kind come in any order, at any time."""
    learner = subject.make(missing_labels="class")
    kinds: list[Label] = ["word", 7, 2.5, None, b"bytes", (1, "pair"), False, "new", -3, ""]
    for i, label in enumerate(kinds):
        teach(learner, torch.randn(2, 6), [label, kinds[i // 2]], i // 3)
        assert learner.classes == kinds[: i + 1], f"classes are {learner.classes} after {kinds[: i + 1]}"
        strange = set(learner.predict(torch.randn(4, 6))) - set(learner.classes)
        assert not strange, f"predict gives labels that were never seen: {strange}"
    shape = learner.predict_proba(torch.randn(4, 6)).shape
    assert shape == (4, len(kinds)), f"predict_proba gives {shape} for 4 samples of {len(kinds)} classes"


def many_classes(subject: Subject) -> None:
    """There is room for more classes than at first."""
    learner = subject.make(memory_size=200)
    for start in range(0, 80, 4):
        teach(learner, torch.randn(4, 6), list(range(start, start + 4)), start // 20)
    assert learner.classes == list(range(80)), f"80 classes were observed, and classes are {learner.classes}"
    shape = learner.predict_proba(torch.randn(3, 6)).shape
    assert shape == (3, 80), f"predict_proba gives {shape} for 3 samples of 80 classes"


def probabilities(subject: Subject) -> None:
    """Probabilities are a distribution, whose largest is the prediction."""
    learner, x = subject.taught(), torch.randn(50, 6)
    rows = learner.predict_proba(x)
    assert np.allclose(rows.sum(1), 1, rtol=1e-5), f"the rows of predict_proba sum to {rows.sum(1)}"
    largest = [learner.classes[i] for i in rows.argmax(1)]
    assert largest == learner.predict(x), "predict is not the class with the largest of predict_proba"


def before_the_first_label(subject: Subject) -> None:
    """Before the first label, predict says what to do."""
    learner = subject.make()
    said = _refusal(NotLearntYet, lambda: learner.predict(torch.randn(2, 6)))
    assert said is not None, "predict gives labels before any was seen"
    assert "observe a batch first" in said, f"the error does not say what to do: {said!r}"


def _refusal(kind: type[Exception], call: Callable[[], Any]) -> str | None:
    """What an error of this kind says, or None if the call raises none."""
    try:
        call()
    except kind as error:
        return str(error)
    return None


def same_seed(subject: Subject) -> None:
    """The same seed gives the same numbers, and the global generator is not used."""
    before = torch.get_rng_state()
    try:
        torch.manual_seed(1)
        untouched = torch.get_rng_state()
        first = subject.taught().state_dict()
        assert torch.equal(torch.get_rng_state(), untouched), "it draws from torch's global generator"
        torch.manual_seed(2)
        assert_same_state(first, subject.taught().state_dict(), "a second run with the same seed")
    finally:
        torch.set_rng_state(before)


def prediction_changes_nothing(subject: Subject) -> None:
    """Prediction changes nothing."""
    learner = subject.taught()
    before = learner.state_dict()
    learner.predict(torch.randn(20, 6))
    learner.predict_proba(torch.randn(20, 6))
    assert_same_state(before, learner.state_dict(), "predict")


def resuming(subject: Subject) -> None:
    """A run that is stopped at any batch, saved, loaded and resumed is bit-identical."""
    everything = list(batches())
    for stop in (0, 1, 3, 5):
        whole, first = subject.make(), subject.make()
        for i, (x, y) in enumerate(everything):
            teach(whole, x, y, i // 2)
            if i < stop:
                teach(first, x, y, i // 2)
        second = _loaded(subject, first)
        assert_same_state(first.state_dict(), second.state_dict(), f"save and load after {stop} batches")
        for i, (x, y) in enumerate(everything[stop:], stop):
            teach(second, x, y, i // 2)
        assert_same_state(whole.state_dict(), second.state_dict(), f"a stop after {stop} batches")


def _loaded(subject: Subject, learner: Learner) -> Learner:
    network: str | nn.Module | None = subject.new_network()
    if isinstance(network, str) and not is_own(network):
        network = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.safetensors"
        learner.save(path)
        return load(path, network=network, device="cpu", learner=subject.kind)


def bad_batches(subject: Subject) -> None:
    """A batch that can't be learnt gets one sentence, and changes nothing."""
    learner = subject.taught()
    before = learner.state_dict()
    for sentence, (x, y) in BAD_BATCHES.items():
        said = _refusal(ValueError, functools.partial(teach, learner, x, y))
        assert said is not None, f"a batch was learnt that should be refused: '... {sentence} ...'"
        assert sentence in said and "\n" not in said, f"expected '... {sentence} ...', got {said!r}"
        assert_same_state(before, learner.state_dict(), f"a refused batch ('... {sentence} ...')")


def failing_step(subject: Subject) -> None:
    """A step that fails after it was done is undone."""
    learner = subject.taught()
    before, step = learner.state_dict(), learner.step

    def failing(*arguments: Any) -> None:
        step(*arguments)
        raise InterruptedError

    vars(learner)["step"] = failing
    if _refusal(InterruptedError, lambda: teach(learner, *next(batches(seed=9)), 2)) is not None:
        assert_same_state(before, learner.state_dict(), "a step that failed")


def revisiting(subject: Subject) -> None:
    """A batch that is revisited is neither stored nor counted."""
    learner = subject.taught()
    before = learner.state_dict()
    counted = (learner.batches, learner.samples)
    learner.revisit(*next(batches(seed=5)), 2 if "t" in learner.needs else None)
    assert (learner.batches, learner.samples) == counted, "revisit counts its samples"
    stored = [key for key in before if key.startswith("memory.")]
    kept = {key: learner.state_dict()[key] for key in stored}
    assert_same_state({key: before[key] for key in stored}, kept, "revisit")


def forgetting(subject: Subject) -> str | None:
    """A class that is forgotten is gone, and can be learnt again."""
    if not subject.kind.can_forget:
        return "it can't forget a class"
    learner, x = subject.taught(), torch.randn(40, 6)
    learner.end_horizon()
    counts = {} if learner.memory is None else learner.memory.counts()
    learner.forget("b")
    left = {} if learner.memory is None else learner.memory.counts()
    counts.pop("b", None)
    assert left == counts, f"the memory has {left} after forget('b'), in place of {counts}"
    assert learner.classes == ["a", "c"], f"classes are {learner.classes} after a, b, c and forget('b')"
    assert "b" not in learner.predict(x), "predict gives a class that was forgotten"
    for i, (more, y) in enumerate(batches(seed=3)):
        teach(learner, more, y, 3 + i // 4)
    assert learner.classes == ["a", "c", "b"], f"classes are {learner.classes} after b came again"
    return None


def merging(subject: Subject) -> str | None:
    """Another learner that is merged brings its classes, and is not changed."""
    learner, other = subject.taught(), subject.make()
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=1)):
        teach(other, x, y, i // 2)
    before, theirs = learner.state_dict(), other.state_dict()
    said = _refusal(ValueError, lambda: learner.merge(other))
    assert_same_state(theirs, other.state_dict(), "merge")
    if said is not None:
        assert_same_state(before, learner.state_dict(), "a refused merge")
        return f"it can't be merged: {said}"
    assert learner.classes == ["a", "b", "c", "d"], (
        f"classes are {learner.classes} after a merge with c and d"
    )
    return None


def snapshots(subject: Subject) -> None:
    """A snapshot predicts the same while the learner goes on."""
    learner, x = subject.taught(), torch.randn(40, 6)
    learner.end_horizon()
    snapshot = learner.snapshot()
    labels, rows = snapshot.predict(x), snapshot.predict_proba(x)
    assert labels == learner.predict(x), "a snapshot does not predict what the learner does"
    for i, (more, y) in enumerate(batches(labels=("d", "e", "f"), seed=4)):
        teach(learner, more, y, 3 + i // 4)
    learner.end_horizon()
    assert (snapshot.predict_proba(x) == rows).all(), "a snapshot changes when the learner goes on"


def copying(subject: Subject) -> None:
    """A copy learns what the learner would have learnt, and the learner is not changed."""
    learner = subject.taught()
    before = learner.state_dict()
    other = copy.copy(learner)
    assert_same_state(before, other.state_dict(), "copy.copy")
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=4)):
        teach(other, x, y, 3 + i // 4)
    assert_same_state(before, learner.state_dict(), "teaching a copy")
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=4)):
        teach(learner, x, y, 3 + i // 4)
    assert_same_state(other.state_dict(), learner.state_dict(), "teaching a copy, then the learner")


def bounded_memory(subject: Subject) -> None:
    """The memory is told in bytes by part, and stores no more samples than it may."""
    learner = subject.make()
    for i, (x, y) in enumerate(batches(count=20)):
        teach(learner, x, y, i // 10)
    learner.end_horizon()
    wrong = {part: size for part, size in learner.footprint().items() if type(size) is not int or size < 0}
    assert not wrong, f"footprint gives {wrong}, which are no numbers of bytes"
    stored = 0 if learner.memory is None else sum(learner.memory.counts().values())
    limit = getattr(learner.settings, "memory_size", stored)
    assert stored <= limit, f"it stores {stored} samples, and memory_size is {limit}"


def bytes_stay_bytes(subject: Subject) -> str | None:
    """Images of bytes are kept as bytes."""
    if not isinstance(subject.network, str):
        return "its network is your own"
    learner = subject.make()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.randint(0, 256, (4, 1, 3, 3), dtype=torch.uint8, generator=generator)
        teach(learner, x, [0, 1, 2, 3])
    if learner.memory is None:
        return "it has no memory of samples"
    kept, labels = learner.memory.samples()
    assert kept.dtype == torch.uint8, f"bytes are kept as {kept.dtype}"
    assert len(kept) == len(labels) == sum(learner.memory.counts().values())
    return None


CHECKS: tuple[Check, ...] = (
    labels_of_any_kind,
    many_classes,
    probabilities,
    before_the_first_label,
    same_seed,
    prediction_changes_nothing,
    resuming,
    bad_batches,
    failing_step,
    revisiting,
    forgetting,
    merging,
    snapshots,
    copying,
    bounded_memory,
    bytes_stay_bytes,
)
