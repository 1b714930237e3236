"""Delete samples from a learner's memory, correct their labels, and train a fresh network from what remains."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.core.class_means import refresh_means
from everlearn.core.forget import copy_before_writing
from everlearn.core.learner import Learner
from everlearn.core.setup import prepare_classes
from everlearn.core.state import restore_memory
from everlearn.core.validation import check_room
from everlearn.encoders import Features
from everlearn.label_json import Label
from everlearn.live.results import Corrected, Deleted
from everlearn.live.sample_index import SampleIndex
from everlearn.memory.base import Integers
from everlearn.randomness import DrawFrom, on_cpu
from everlearn.transaction import atomic

__all__ = ["KEPT", "can_rebuild", "correct", "delete", "memory_of", "rebuild"]

PASSES, STEPS = 10, 300  # over the memory, and batches at least, to train a fresh network
BATCH = 10
KEPT = "the weights keep what they learnt from these samples; rebuild=True trains a fresh network from the memory"
REBUILT = "the network was trained anew from the samples in memory"


class EditableMemory(Protocol):
    """A memory of samples that can be edited."""

    def stored(self) -> tuple[Tensor, Integers]:
        """All samples, and the slot of each."""

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the samples, with new classes; returns those that were kept."""


def memory_of(learner: Learner) -> EditableMemory | None:
    """The memory in which a learner stores samples, if it has one."""
    memory: EditableMemory | None = learner.memory
    return getattr(learner, "short_term", None) if memory is None else memory


def delete(learner: Learner, index: SampleIndex, ids: Sequence[Label], anew: bool = False) -> Deleted:
    """Remove all samples that were learnt or asked under these ids from the memory and the waiting samples.

    anew: whether a fresh network is trained from the samples that remain.
    """
    found, slots = _find(learner, index, ids)
    waiting = [key for key in ids if key in learner.waiting.samples]
    stays = np.setdiff1d(np.arange(len(slots)), list(found))
    with _rebuilt(learner, anew):
        forgotten = _edit(learner, stays, slots[stays], waiting) if found or waiting else []
    index.remove(set(ids))
    held = {*found.values(), *waiting}
    missing = [key for key in ids if key not in held]
    return Deleted(len(found), len(waiting), missing, forgotten, anew, REBUILT if anew else KEPT)


def correct(
    learner: Learner, index: SampleIndex, ids: Sequence[Label], labels: Sequence[Label], anew: bool = False
) -> Corrected:
    """Give the samples in the memory that were learnt under these ids other labels."""
    right = dict(zip(ids, labels, strict=True))
    with _rebuilt(learner, anew):
        found, forgotten = _relabel(learner, index, right)
    missing = [key for key in ids if key not in found]
    return Corrected(len(found), missing, forgotten, anew, REBUILT if anew else KEPT)


@contextmanager
def _rebuilt(learner: Learner, anew: bool) -> Iterator[None]:
    """A context for a change that a new training follows, if `anew`; if that fails, nothing has changed."""
    before = learner.state_dict() if anew else None
    try:
        yield
        if anew:
            rebuild(learner)
    except BaseException:
        if before is not None:
            learner.load_state_dict(before)
        raise


def _find(learner: Learner, index: SampleIndex, ids: Sequence[Label]) -> tuple[dict[int, Label], Integers]:
    """The places in the memory of the samples with these ids, and the slot of every sample there."""
    memory = memory_of(learner)
    if memory is None:
        return {}, np.zeros(0, np.int64)
    samples, slots = memory.stored()
    return index.find(set(ids), samples), slots


@atomic
def _relabel(
    learner: Learner, index: SampleIndex, right: dict[Label, Label]
) -> tuple[list[Label], list[Label]]:
    """Give samples the right labels, by id; returns the ids that were found, and the classes that were forgotten."""
    found, slots = _find(learner, index, list(right))
    new = learner.labels.new(right[key] for key in found.values())
    if new:  # their room in the memory is taken from other classes, so the samples are found again
        check_room(learner, len(learner.labels) + len(new))
        copy_before_writing(learner)
        prepare_classes(learner, torch.empty(0), new)
        found, slots = _find(learner, index, list(right))
    if not found:
        return [], []
    slots = slots.copy()
    for place, key in found.items():
        slots[place] = learner.labels.slot(right[key])
    return list(found.values()), _edit(learner, np.arange(len(slots)), slots, [])


@atomic
def _edit(learner: Learner, order: Integers, slots: Integers, waiting: Sequence[Label]) -> list[Label]:
    """Keep these samples of the memory, with these classes; returns the labels of classes that were forgotten."""
    learner.invalidate()
    learner.waiting.remove(waiting)
    memory = memory_of(learner)
    forgotten: list[Label] = []
    if memory is not None and learner.sample_shape is not None:
        copy_before_writing(learner)
        _, before = memory.stored()
        learner.memory_edited(memory.edit(order, slots))
        if not learner.has_head and learner.can_forget:  # it predicts by the mean of each class's samples
            _, after = memory.stored()
            labels = learner.classes
            forgotten = [labels[slot] for slot in np.setdiff1d(before, after).tolist()]
            for label in forgotten:
                learner.forget(label)
        refresh_means(learner)
    return forgotten


def can_rebuild(learner: Learner) -> None:
    """Raise a ValueError if no fresh network can be trained from the learner's memory."""
    name = type(learner).__name__
    if learner.memory is None:
        raise ValueError(
            f"{name} has no replay memory, so rebuild=True has nothing to train a fresh network from"
        )
    if learner.needs:
        raise ValueError(
            f"{name} needs the task of each batch, which its memory does not hold: rebuild=True can't be used"
        )
    if isinstance(learner.given, nn.Module):
        _fresh(learner.given, learner.seed)


def rebuild(learner: Learner) -> None:
    """Train a fresh network from the samples in the memory, which stays as it is."""
    settings = vars(learner.settings)
    given = _fresh(learner.given, learner.seed) if isinstance(learner.given, nn.Module) else learner.given
    twin = type(learner)(
        given, seed=learner.seed, device=str(learner.device), encoder=learner.encoder, **settings
    )
    state = learner.state_dict()
    samples, labels = learner.memory.samples()
    twin.columns, twin.unlabelled = learner.columns, learner.unlabelled
    if labels:
        twin.input_kind = learner.input_kind
        twin.begin(torch.zeros(2, *samples.shape[1:], dtype=samples.dtype))
        twin.labels.extend(learner.classes)
        twin.open_classes(len(learner.labels))
        restore_memory(twin, state)
        if learner.standardisation is not None:
            twin.standardisation = learner.standardisation.copy()
        if twin.calibration is not None and learner.calibration is not None:
            twin.calibration.merge(learner.calibration, np.arange(len(learner.labels)))
        for _ in range(max(PASSES, -(-STEPS * BATCH // len(labels)))):
            for part in torch.split(torch.randperm(len(labels), generator=twin.generator), BATCH):
                twin.revisit(Features(samples[part.to(samples.device)]), [labels[i] for i in part.tolist()])
        refresh_means(twin)
    learner.load_state_dict(_with_counts_of(learner, twin.state_dict()))


def _with_counts_of(learner: Learner, state: State) -> State:
    """A state with the waiting samples and the counts of a learner."""
    meta: dict[str, Any] = json.loads(state["meta"])
    meta |= {"batches": learner.batches, "samples": learner.samples}
    return {**state, **learner.waiting.state(), "meta": json.dumps(meta)}


def _fresh(network: nn.Module, seed: int) -> nn.Module:
    """A copy of a user's network with new weights; a ValueError if it has parameters that can't be reset."""
    network = copy.deepcopy(network)
    for name, module in network.named_modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            with on_cpu(network), DrawFrom(torch.Generator().manual_seed(seed)):
                reset()
        elif any(True for _ in module.parameters(recurse=False)):
            raise ValueError(
                f"rebuild=True needs fresh weights, but {name or 'the network'} ({type(module).__name__}) has no "
                "method reset_parameters: add one"
            )
    return network
