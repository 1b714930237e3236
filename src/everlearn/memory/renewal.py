"""Exemplars that no longer hold lose their place in the class-balanced memory to the next samples of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from everlearn.memory.base import LARGEST, Integers
from everlearn.memory.class_balanced_changes import index_state, rebuild_index

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from everlearn.memory.class_balanced import BalancedMemory

__all__ = ["older_half", "remove"]


def remove(memory: BalancedMemory, gone: NDArray[np.bool_]) -> None:
    """Remove exemplars; their classes begin anew with what is left, as if it had just arrived.

    So the next samples of such a class fill its free places, and where exemplars do not age, all that it keeps later
    is a uniform sample of what was left and what came since.

    gone: whether each of the exemplars that `kept` returns is removed.
    """
    rows, owners = memory.kept()
    index = index_state(memory)
    begins_anew = np.bincount(owners[gone], minlength=len(memory._counts)) > 0
    keys = index["keys"].copy()
    if not memory.half_life:
        fresh = begins_anew[owners]
        keys[fresh] = memory._random_integers(int(fresh.sum())) % (LARGEST - 1)
    dropped = np.where(begins_anew, -1, index["dropped"])  # −1 stands for none
    memory._replace_samples(memory._samples_in(rows[~gone]))
    rebuild_index(memory, keys[~gone], owners[~gone], dropped)


def older_half(memory: BalancedMemory, classes: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each exemplar is in the half of its class with the smaller keys, of these classes.

    Where exemplars age, these are the older ones, by and large; else any.
    """
    owners = memory.kept()[1]
    order: Integers = np.lexsort((index_state(memory)["keys"], owners))
    rank = np.empty(len(owners), np.int64)
    rank[order] = np.arange(len(owners)) - np.searchsorted(owners, owners)
    older: NDArray[np.bool_] = classes[owners] & (rank < memory._counts[owners] // 2)
    return older
