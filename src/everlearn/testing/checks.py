"""What holds for every learner, one function for each promise.

A check raises an AssertionError that says what is wrong. It returns a sentence if it does not apply to the learner.
"""

from __future__ import annotations

from collections.abc import Callable

from everlearn.testing.check_capture import host_reads
from everlearn.testing.check_learning import bad_batches, failing_step, revisiting, same_seed
from everlearn.testing.check_memory import bounded_memory, bytes_stay_bytes, forgetting, merging
from everlearn.testing.check_prediction import (
    before_the_first_label,
    labels_of_any_kind,
    many_classes,
    prediction_changes_nothing,
    probabilities,
    snapshots,
)
from everlearn.testing.check_state import copying, earlier_states, resuming
from everlearn.testing.samples import Subject

__all__ = ["CHECKS", "Check"]

Check = Callable[[Subject], str | None]

CHECKS: tuple[Check, ...] = (
    labels_of_any_kind,
    many_classes,
    probabilities,
    before_the_first_label,
    same_seed,
    prediction_changes_nothing,
    resuming,
    earlier_states,
    bad_batches,
    failing_step,
    revisiting,
    forgetting,
    merging,
    snapshots,
    copying,
    bounded_memory,
    bytes_stay_bytes,
    host_reads,
)
