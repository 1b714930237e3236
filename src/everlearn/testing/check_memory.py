"""Promises about what a learner stores: forgetting, merging, and its size."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from everlearn.core.learner import Learner
from everlearn.testing.requirements import require, require_same_state, state_copy
from everlearn.testing.samples import Subject, batches, samples, teach

__all__ = ["bounded_memory", "bytes_stay_bytes", "forgetting", "merging"]

STRETCH = 15  # batches, after which the size is measured


def forgetting(subject: Subject) -> str | None:
    """A class that is forgotten is gone, and can be learnt again."""
    if not subject.kind.can_forget:
        return "it can't forget a class"
    learner, x = subject.taught(), samples(40)
    learner.end_horizon()
    counts = _counts(learner)
    learner.forget("b")
    left = _counts(learner)
    counts.pop("b", None)
    require(left == counts, f"the memory has {left} after forget('b'), in place of {counts}")
    require(learner.classes == ["a", "c"], f"classes are {learner.classes} after a, b, c and forget('b')")
    require("b" not in learner.predict(x), "predict gives a class that was forgotten")
    for i, (more, y) in enumerate(batches(seed=3)):
        teach(learner, more, y, 3 + i // 4)
    require(learner.classes == ["a", "c", "b"], f"classes are {learner.classes} after b came again")
    return None


def _counts(learner: Learner) -> dict[Any, int]:
    return {} if learner.memory is None else dict(learner.memory.counts())


def merging(subject: Subject) -> str | None:
    """Another learner that is merged brings its classes, and is not changed."""
    learner, other = subject.taught(), subject.make()
    for i, (x, y) in enumerate(batches(labels=("c", "d"), seed=1)):
        teach(other, x, y, i // 2)
    before, theirs = state_copy(learner), state_copy(other)
    allowed: list[None] = []
    check_merge = learner.check_merge
    # The last check before anything is merged: what fails after it is no refusal.
    vars(learner)["check_merge"] = lambda given: allowed.append(check_merge(given))
    try:
        learner.merge(other)
    except ValueError as refused:
        if allowed:
            raise
        require_same_state(theirs, other.state_dict(), "merge")
        require_same_state(before, learner.state_dict(), "a refused merge")
        return f"it can't be merged: {refused}"
    require_same_state(theirs, other.state_dict(), "merge")
    seen = learner.classes
    require(seen == ["a", "b", "c", "d"], f"classes are {seen} after a merge with c and d")
    return None


def bounded_memory(subject: Subject) -> None:
    """The memory is told in bytes by part, and stores no more samples than it may."""
    learner = subject.make()
    held, told = [], []
    for i, (x, y) in enumerate(batches(count=3 * STRETCH)):
        teach(learner, x, y, i // STRETCH)
        if i % STRETCH == STRETCH - 1:
            learner.end_horizon()
            held.append(_held(learner))
            told.append(_told(learner))
    stored = sum(_counts(learner).values())
    limit = getattr(learner.settings, "memory_size", stored)
    require(stored <= limit, f"it stores {stored} samples, and memory_size is {limit}")
    hidden = np.diff(np.subtract(held, told))  # growth that the footprint does not tell
    require(
        hidden.min() < STRETCH * x.nbytes // 2,
        f"it grows from {held[0]:,} to {held[-1]:,} bytes in {2 * STRETCH} batches, and its footprint from "
        f"{told[0]:,} to {told[-1]:,}: it stores more than it tells",
    )


def _told(learner: Learner) -> int:
    """The sum of the footprint."""
    footprint = learner.footprint()
    wrong = {part: size for part, size in footprint.items() if type(size) is not int or size < 0}
    require(not wrong, f"footprint gives {wrong}, which are no numbers of bytes")
    return sum(footprint.values())


def _held(learner: Learner) -> int:
    """Bytes of all tensors, arrays and lists that a learner holds, which are those that a copy of it needs."""
    found: dict[int, Any] = {}
    copy.deepcopy(learner, found)
    parts = list(found.values())
    storages = {part.untyped_storage() for part in parts if isinstance(part, Tensor)}
    tensors = {each.data_ptr(): each.nbytes() for each in storages}
    arrays = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    lists = sum(sys.getsizeof(part) for part in parts if isinstance(part, list))
    return sum(tensors.values()) + arrays + lists


def bytes_stay_bytes(subject: Subject) -> str | None:
    """Images of bytes are kept as bytes."""
    if subject.network_is_own:
        return "its network is your own"
    learner = subject.make()
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        x = torch.randint(0, 256, (4, 1, 3, 3), dtype=torch.uint8, generator=generator)
        teach(learner, x, [0, 1, 2, 3])
    if learner.memory is None:
        return "it has no memory of samples"
    kept, labels = learner.memory.samples()
    require(kept.dtype == torch.uint8, f"bytes are kept as {kept.dtype}")
    counted = sum(learner.memory.counts().values())
    require(
        len(kept) == len(labels) == counted,
        f"the memory gives {len(kept)} samples, {len(labels)} labels and counts of {counted}",
    )
    return None
