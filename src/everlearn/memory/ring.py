"""M_r by task: one ring buffer per task, with the most recent samples of the task.

The memory is shared equally by the tasks, whose number is known from the start. Once a ring is full, each new sample
replaces the oldest one.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory, remove_slot
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["RingMemory"]


class RingMemory(ReplayMemory):
    """The ⌊size / tasks⌋ most recent samples of each task.

    tasks: the number of tasks that the stream has.
    """

    def __init__(self, size: int, tasks: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.quota = size // tasks
        self.tasks: list[int] = []  # the tasks seen so far; task i uses ring i
        self.running = 0  # the task of the samples that arrive now
        self._came: Integers = np.zeros(tasks, np.int64)  # samples that ever arrived at each ring
        self._rows: Integers = np.zeros((tasks, self.quota), np.int64)  # the row of each place of a ring
        self._slots: Integers = np.zeros((tasks, self.quota), np.int64)  # the class of each place

    def __len__(self) -> int:
        """The number of exemplars."""
        return int(self._filled().sum())

    def open_classes(self, classes: int) -> None:
        """Nothing to do: the memory is shared by the tasks."""

    def room(self, task: int) -> bool:
        """Whether this task has a ring or can get one."""
        return task in self.tasks or len(self.tasks) < len(self._came)

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are stored)."""
        rows, slots = self.kept()
        chosen = torch.randperm(len(rows), generator=self._generator)[:count].numpy()
        return rows[chosen], slots[chosen]

    def admit(self, slots: Integers) -> Integers:
        """Choose the row where each new sample of the running task is stored; the last row means not stored.

        If the batch is longer than the ring, its last samples are stored.
        """
        if self.running not in self.tasks:
            self.tasks = [*self.tasks, self.running]
        ring = self.tasks.index(self.running)
        taken, free = self._filled()[ring], len(self)
        numbers = self._came[ring] + np.arange(len(slots))[-self.quota :]
        places = numbers % self.quota
        fresh = places[places >= taken]
        assign(self._rows, (ring, fresh), free + np.arange(len(fresh)))
        assign(self._slots, (ring, places), slots[-self.quota :])
        assign(self._came, ring, self._came[ring] + len(slots))
        passed = np.full(len(slots) - len(places), self.size)
        return np.concatenate([passed, self._rows[ring, places]])

    def past(self) -> list[tuple[Integers, Integers]]:
        """Rows and slots of each task seen so far except the running one."""
        return [self._ring(ring) for ring, task in enumerate(self.tasks) if task != self.running]

    def _ring(self, ring: int) -> tuple[Integers, Integers]:
        filled = self._filled()[ring]
        return self._rows[ring, :filled], self._slots[ring, :filled]

    def _filled(self) -> Integers:
        return np.minimum(self._came, self.quota)

    # State.

    def kept(self) -> tuple[Integers, Integers]:
        filled = np.arange(self.quota) < self._filled()[:, None]  # [tasks, quota]
        return self._rows[filled], self._slots[filled]

    def _index_state(self) -> dict[str, Integers]:
        return {"slots": self.kept()[1], "came": self._came, "tasks": np.array(self.tasks, np.int64)}

    def _restore_index(self, index: dict[str, Integers], samples: int) -> None:
        self._came, self.tasks = index["came"], index["tasks"].tolist()
        if self._came.shape != (len(self._rows),) or (self._came < 0).any():
            raise ValueError(
                f"the memory has {len(self._rows)} rings, but the state counts {self._came.tolist()} samples"
            )
        if (
            index["tasks"].ndim != 1
            or len(set(self.tasks)) < len(self.tasks)
            or len(self.tasks) > len(self._rows)
        ):
            raise ValueError(
                f"the memory has {len(self._rows)} rings, but the state has the tasks {self.tasks}"
            )
        if not len(self) == samples == len(index["slots"]):
            raise ValueError(
                f"rings of size {self.quota} with {self._came.tolist()} arrived samples can't hold {samples}"
            )
        filled = np.arange(self.quota) < self._filled()[:, None]
        self._rows[filled] = np.arange(samples)
        self._slots[filled] = index["slots"]

    # Forget and merge.

    def forget(self, slot: int) -> None:
        """Remove a class with all its exemplars. A task without exemplars is forgotten too."""
        _, slots = self.kept()
        stays = np.flatnonzero(slots != slot)
        self.edit(stays, remove_slot(slots[stays], slot))

    def edit(self, order: Integers, slots: Integers) -> Integers:
        """Keep only some of the exemplars, with new classes. A task without exemplars is forgotten."""
        rows, _ = self.kept()
        place, slot_of = (
            {row: i for i, row in enumerate(rows.tolist())},
            dict(zip(order.tolist(), slots.tolist(), strict=True)),
        )
        rings = {task: self._by_age(ring)[0] for ring, task in enumerate(self.tasks)}
        left = {
            task: [place[row] for row in by_age.tolist() if place[row] in slot_of]
            for task, by_age in rings.items()
        }
        left = {task: places for task, places in left.items() if places}
        kept = np.array([each for places in left.values() for each in places], np.int64)
        if self.rows is not None:
            self._replace_samples(self._samples_in(rows[kept]))
        self.tasks, self._came = list(left), np.zeros_like(self._came)
        self._came[: len(left)] = [len(places) for places in left.values()]
        filled = np.arange(self.quota) < self._filled()[:, None]
        self._rows[filled] = np.arange(len(kept))
        self._slots[filled] = [slot_of[each] for each in kept.tolist()]
        return kept

    def _by_age(self, ring: int) -> tuple[Integers, Integers]:
        """Rows and slots of a ring, the oldest first."""
        filled, came = self._filled()[ring], self._came[ring]
        places = (np.arange(filled) + (came if came > filled else 0)) % self.quota
        return self._rows[ring, places], self._slots[ring, places]

    def merge(self, other: RingMemory, slots: Integers) -> None:
        """Add the other's exemplars to the rings of their tasks, the oldest first."""
        running = self.running
        for ring, task in enumerate(other.tasks):
            rows, classes = other._by_age(ring)
            self.running = task
            samples = other._samples_in(rows)
            self.write(samples, torch.from_numpy(self.admit(slots[classes])).to(samples.device))
        self.running = running
