"""The structure that holds what `Learner.plan` decides for a batch, on the host and on the device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import torch

from everlearn.core.settings import ReplaySettings

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Plan", "plan_shape"]


@dataclasses.dataclass(slots=True)  # a frozen one takes four times as long to make, with every batch
class Plan:
    """The decisions for one batch: numpy arrays on the host, tensors on the device; None for what is not needed.

    They do not depend on the weights, so that a step on the device is tensors alone. A plan is not changed.
    """

    slots: Any
    """the class of each sample, `[batch]`"""
    rows: Any = None
    """the memory's rows that each iteration replays, `[iterations, replayed]`"""
    old_slots: Any = None
    """their classes, `[iterations, replayed]`"""
    keep: Any = None
    """the memory's row for each sample of the batch, `[batch]`; None if the batch is not stored"""
    changes: tuple[Any, ...] = ()
    """how each image is changed, one `[iterations, batch + replayed]` for each kind of change"""
    age: Any = None
    """batches since the newest class came, `[1]`"""
    seeds: Any = None
    """a seed for the random numbers of each iteration, `[iterations]`"""
    weights: Any = None
    """how much each sample of the batch counts in the loss, `[batch]`; None if all count the same"""
    extra: tuple[Any, ...] = ()
    """integers that `draw_replay` gives besides rows and slots, `[iterations, ...]` each"""

    def weighted(self, weights: Any) -> Plan:
        """The plan with these weights of the samples, if there are any."""
        return self if weights is None else dataclasses.replace(self, weights=weights)

    def arrays(self) -> list[Any]:
        """All arrays, in the order of the fields."""
        fields = (
            self.slots,
            self.rows,
            self.old_slots,
            self.keep,
            *self.changes,
            self.age,
            self.seeds,
            self.weights,
        )
        return [part for part in (*fields, *self.extra) if part is not None]

    def form(self) -> Hashable:
        """Which arrays it has: a plan can take the place of another one of the same form and shapes."""
        parts = (getattr(self, field.name) for field in dataclasses.fields(self))
        return tuple(len(part) if isinstance(part, tuple) else part is None for part in parts)

    def filled(self, arrays: list[Any]) -> Plan:
        """A plan of the same form with these arrays."""
        given = iter(arrays)
        return self._mapped(lambda part: next(given))

    def on(self, device: torch.device) -> Plan:
        """The plan as tensors on a device; on the CPU they share memory with the arrays."""
        if device.type == "cpu":
            return self._mapped(torch.from_numpy)
        # `mps` may read the host's memory after it was freed, if it is not waited for.
        waits = device.type != "cuda"
        return self._mapped(lambda part: torch.from_numpy(part).to(device, non_blocking=not waits))

    def _mapped(self, change: Callable[[Any], Any]) -> Plan:
        """The plan with every array changed by a function."""
        return Plan(
            change(self.slots),
            None if self.rows is None else change(self.rows),
            None if self.old_slots is None else change(self.old_slots),
            None if self.keep is None else change(self.keep),
            tuple(map(change, self.changes)),
            None if self.age is None else change(self.age),
            None if self.seeds is None else change(self.seeds),
            None if self.weights is None else change(self.weights),
            tuple(map(change, self.extra)),
        )


def plan_shape(learner: Learner, batch: int) -> tuple[Hashable, ...]:
    """The settings that determine the shapes of a plan for a batch of this size: equal in a cohort."""
    shape = learner.settings.iterations, learner.replay_size(batch)
    settings = learner.settings
    if not isinstance(settings, ReplaySettings):
        return shape
    return (
        *shape,
        settings.augmentation,
        settings.colour > 0,
        settings.cutout > 0,
        settings.mixing > 0,
        getattr(settings, "turned", 0) > 0,
        bool(settings.averaging),
    )
