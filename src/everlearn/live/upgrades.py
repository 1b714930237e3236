"""Formats of what a live learner stores, and upgrades from older ones.

1: a snapshot has the kind and the result of every request.
2: of a request that observed a batch, which most do, it has the id alone.
"""

from __future__ import annotations

from collections.abc import Callable

from everlearn.checkpoint import State
from everlearn.live.model import record_in, with_record
from everlearn.live.results import OBSERVED

__all__ = ["FORMAT", "upgraded"]

FORMAT = 2


def upgraded(state: State, version: int) -> State:
    """A snapshot of an older format in the format of today. A snapshot that was upgraded before stays as it is."""
    for each in range(version, FORMAT):
        state = UPGRADES[each](state)
    return state


def _observed_by_id(state: State) -> State:
    record = record_in(state)
    requests = [
        each[0] if isinstance(each, list) and tuple(each[1:]) == OBSERVED else each
        for each in record["requests"]
    ]
    return with_record(state, record | {"requests": requests})


# By the format that they start from, to the next one.
UPGRADES: dict[int, Callable[[State], State]] = {1: _observed_by_id}
