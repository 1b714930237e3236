"""The rare changes of the class-balanced memory: another quota, forget a class, edit, merge, save and load the index.

In a state, keys start at 0 and −1 stands for none; in the memory, they start at 1 (class_balanced.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from everlearn.memory.ageing import ageing_keys, keys_of_another, quota_of
from everlearn.memory.base import LARGEST, Integers, remove_slot

if TYPE_CHECKING:
    from everlearn.memory.class_balanced import BalancedMemory

__all__ = ["edit", "forget", "index_state", "merge", "rebuild_index", "restore_index", "set_quota"]


def set_quota(memory: BalancedMemory, quota: int) -> None:
    """Rebuild the index for another quota; the samples stay in their rows."""
    seen = len(memory._counts)
    keys = memory._keys[: seen * memory._quota].reshape(seen, memory._quota)
    places = memory._places[: seen * memory._quota].reshape(seen, memory._quota)
    memory._keys, memory._places = np.zeros(memory.size, np.int64), np.zeros(memory.size, np.int64)
    if seen:
        order = np.argsort(-keys, axis=1)
        keys = np.take_along_axis(keys, order, 1)
        places = np.take_along_axis(places, order, 1)
        removed = keys[:, quota:]
        memory._free = memory._free + places[:, quota:][removed != 0].tolist()
        if removed.shape[1]:
            memory._dropped = np.maximum(memory._dropped, removed[:, 0])
        kept = min(quota, memory._quota)
        memory._keys[: seen * quota].reshape(seen, quota)[:, :kept] = keys[:, :kept]
        memory._places[: seen * quota].reshape(seen, quota)[:, :kept] = places[:, :kept]
        memory._counts = np.minimum(memory._counts, quota)
        smallest = np.where(memory._counts == quota, keys[:, kept - 1], 0)
        memory._floor = np.maximum(memory._dropped, smallest)
    memory._quota = quota


def forget(memory: BalancedMemory, slot: int) -> None:
    """Remove a class with all its exemplars and keys; the quota of the other classes grows."""
    rows, slots = memory.kept()
    index = index_state(memory)
    stays = slots != slot
    samples = memory._samples_in(rows[stays])
    keys, slots = index["keys"][stays], remove_slot(slots[stays], slot)
    dropped = np.delete(index["dropped"], slot)
    if quota_of(memory.size, len(dropped), memory.half_life) > memory._quota:
        dropped = _thresholds_with_more_room(memory, keys, slots, dropped)
    memory._replace_samples(samples)
    memory._arrived = np.delete(memory._arrived, slot)
    rebuild_index(memory, keys, slots, dropped)


def edit(memory: BalancedMemory, order: Integers, slots: Integers) -> Integers:
    """Keep only some of the exemplars, with new classes; returns the places of those that were kept.

    An exemplar that moves to another class gets a new key, and a place in that class even if others have larger
    keys: it is as if it had arrived there and been kept. A class has at most its quota.

    order: places among the exemplars. slots: the class of each, now.
    """
    rows, owners = memory.kept()
    index, classes = index_state(memory), len(memory._labels)
    lost = np.bincount(owners, minlength=classes) > np.bincount(
        slots[slots == owners[order]], minlength=classes
    )
    thresholds = _thresholds_with_more_room(memory, index["keys"], owners, index["dropped"])
    dropped = np.where(lost, thresholds, index["dropped"])
    keys, moved = index["keys"][order], slots != owners[order]
    keys[moved] = _keys_of_moved(memory, dropped, slots[moved])
    by_class = np.lexsort((-keys, ~moved, slots))  # class by class: moved exemplars, then the largest keys
    stays = by_class[_rank(slots[by_class]) < memory._quota]
    np.maximum.at(dropped, np.delete(slots, stays), np.delete(keys, stays))
    memory._replace_samples(memory._samples_in(rows[order[stays]]))
    rebuild_index(memory, keys[stays], slots[stays], dropped)
    return order[stays]


def _keys_of_moved(memory: BalancedMemory, dropped: Integers, slots: Integers) -> Integers:
    """Keys for exemplars that move to these classes; where exemplars age, like those of the newest samples."""
    if not memory.half_life:
        return _random_keys_above(memory, dropped[slots])
    keys = ageing_keys(memory._random_integers(len(slots)), memory._arrived[slots], memory.half_life) - 1
    return np.maximum(keys, dropped[slots] + 1)


def _rank(slots: Integers) -> Integers:
    """The number of earlier entries of the same class; the slots are sorted."""
    return np.arange(len(slots)) - np.searchsorted(slots, slots)


def _thresholds_with_more_room(
    memory: BalancedMemory, keys: Integers, slots: Integers, dropped: Integers
) -> Integers:
    """The thresholds of classes that get room for more exemplars.

    A class with n samples keeps m of them, each with probability m / n, and the next sample must be kept with the
    same probability. Its key is above the largest dropped key with probability (m + 1) / (n + 1), and above the
    smallest kept key with probability m / (n + 1). One of the two is drawn as the threshold: the first with a
    probability of about m / n, the share of all keys above it. Once the quota is full again, both are the same.
    """
    classes = len(dropped)
    if memory.half_life:
        return dropped
    full = np.bincount(slots, minlength=classes) == memory._quota
    draws = torch.rand(classes, dtype=torch.float64, generator=memory._generator).numpy()
    return np.where(full & (draws < dropped / LARGEST), _smallest(keys, slots, classes) - 1, dropped)


def _smallest(keys: Integers, slots: Integers, classes: int) -> Integers:
    """The smallest key of each class."""
    smallest = np.full(classes, LARGEST)
    np.minimum.at(smallest, slots, keys)
    return smallest


def merge(memory: BalancedMemory, other: BalancedMemory, slots: Integers) -> None:
    """Keep, for each class, the largest keys of both memories above the larger of both thresholds.

    The other memory holds all samples of a class whose keys are above its threshold. Their keys are drawn again
    above that threshold: they have the same distribution, but do not repeat keys that this memory drew from the
    same seed.

    slots: the slot in `memory` of each class of `other`.
    """
    mine, theirs = index_state(memory), index_state(other)
    (rows, owners), (other_rows, other_owners) = memory.kept(), other.kept()
    samples = memory._samples_in(rows)
    samples = torch.cat([samples, other._samples_in(other_rows).to(samples.device)])
    dropped = mine["dropped"].copy()
    if memory.half_life:
        drawn, other_dropped = (part - 1 for part in keys_of_another(memory, other, slots))
    else:
        drawn, other_dropped = _random_keys_above(memory, theirs["dropped"][other_owners]), theirs["dropped"]
    dropped[slots] = np.maximum(dropped[slots], other_dropped)
    keys, owners = np.append(mine["keys"], drawn), np.append(owners, slots[other_owners])
    order = np.lexsort((-keys, owners))  # class by class, the largest key first
    keys, owners = keys[order], owners[order]
    stays = (keys > dropped[owners]) & (_rank(owners) < memory._quota)
    np.maximum.at(dropped, owners[~stays], keys[~stays])
    memory._replace_samples(samples[torch.from_numpy(order[stays]).to(samples.device)])
    rebuild_index(memory, keys[stays], owners[stays], dropped)


def _random_keys_above(memory: BalancedMemory, thresholds: Integers) -> Integers:
    room = LARGEST - 1 - thresholds
    shares = torch.rand(len(room), dtype=torch.float64, generator=memory._generator).numpy()
    return thresholds + 1 + np.minimum((shares * room).astype(np.int64), room - 1)


def rebuild_index(memory: BalancedMemory, keys: Integers, slots: Integers, dropped: Integers) -> None:
    """Index exemplars that are in the first rows, class by class."""
    classes = len(dropped)
    counts = np.bincount(slots, minlength=classes)
    full = counts == quota_of(memory.size, classes, memory.half_life)
    floor = np.where(full, np.maximum(dropped, _smallest(keys, slots, classes)), dropped)
    _load_index(memory, {"keys": keys, "counts": counts, "dropped": dropped, "floor": floor}, len(keys))


def index_state(memory: BalancedMemory) -> dict[str, Integers]:
    """The index as a state holds it."""
    keys = memory._keys[memory._entries()[0]]
    ages = {"arrived": memory._arrived} if memory.half_life else {}
    return ages | {
        "keys": keys - 1,
        "counts": memory._counts,
        "dropped": memory._dropped - 1,
        "floor": memory._floor - 1,
    }


def restore_index(memory: BalancedMemory, index: dict[str, Integers], samples: int) -> None:
    """Load an index that `index_state` returned, of `samples` exemplars that are in the first rows."""
    classes = len(memory._labels)
    if index["counts"].shape != (classes,):
        raise ValueError(
            f"the memory has counts of shape {list(index['counts'].shape)}, expected {classes} classes"
        )
    if memory.half_life:
        if index["arrived"].shape != (classes,) or (index["arrived"] < 0).any():
            raise ValueError("the memory has invalid counts of the samples that arrived")
        memory._arrived = index["arrived"]
    _load_index(memory, index, samples)


def _load_index(memory: BalancedMemory, index: dict[str, Integers], samples: int) -> None:
    keys, memory._counts = index["keys"] + 1, index["counts"]
    memory._dropped, memory._floor = index["dropped"] + 1, index["floor"] + 1
    counts = memory._counts
    counted = counts.ndim == 1 and counts.sum() == samples and (counts >= 0).all()
    shapes = {part.shape for part in (counts, memory._dropped, memory._floor)}
    sized = keys.shape == (samples,) and samples <= memory.size and len(counts) <= memory.size
    if not (counted and sized and len(shapes) == 1):
        raise ValueError(
            f"a memory of size {memory.size} can't hold {samples} exemplars of {len(counts)} classes"
        )
    memory._quota = quota_of(memory.size, len(counts), memory.half_life)
    if samples and counts.max() > memory._quota:
        raise ValueError(f"a class has {counts.max()} exemplars, but at most {memory._quota} are allowed")
    entries, _ = memory._entries()
    memory._keys, memory._places = np.zeros(memory.size, np.int64), np.zeros(memory.size, np.int64)
    memory._keys[entries] = keys
    memory._places[entries] = np.arange(samples)
    memory._used, memory._free = samples, []
