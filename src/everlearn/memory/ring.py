"""M_r by task: a ring for each, which keeps the task's most recent samples.

The memory is shared out equally among the tasks that are announced, from the start. A ring is
written round and round: once it is full, each new sample takes the place of the oldest.
"""

from __future__ import annotations

import numpy as np
import torch

from everlearn.memory.base import Integers, ReplayMemory, without
from everlearn.memory.labels import LabelTable
from everlearn.transaction import assign

__all__ = ["RingMemory"]


class RingMemory(ReplayMemory):
    """The ⌊size / tasks⌋ most recent samples of each task.

    tasks: how many there will be.
    """

    def __init__(self, size: int, tasks: int, labels: LabelTable, generator: torch.Generator) -> None:
        super().__init__(size, labels, generator)
        self.quota = size // tasks
        self.tasks: list[int] = []  # the tasks met, each with the ring of the same number
        self.running = 0  # the task whose samples come now
        self._came: Integers = np.zeros(tasks, np.int64)  # samples that ever came to each ring
        self._rows: Integers = np.zeros((tasks, self.quota), np.int64)  # where each place of a ring lies
        self._slots: Integers = np.zeros((tasks, self.quota), np.int64)  # the class of each place

    def __len__(self) -> int:
        """How many exemplars are kept."""
        return int(self._filled().sum())

    def open_classes(self, classes: int) -> None:
        """Nothing changes: it is the tasks that share the memory."""

    def room(self, task: int) -> bool:
        """Whether this task has a ring or can get one."""
        return task in self.tasks or len(self.tasks) < len(self._came)

    def draw(self, count: int) -> tuple[Integers, Integers]:
        """Rows and slots of `count` exemplars, uniform, without replacement (fewer if fewer are kept)."""
        rows, slots = self.kept()
        chosen = torch.randperm(len(rows), generator=self._generator)[:count].numpy()
        return rows[chosen], slots[chosen]

    def admit(self, slots: Integers) -> Integers:
        """Decide where each new sample of the running task is kept: its row, the last row for nowhere.

        Of a batch longer than the ring the end stays.
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
        """Rows and slots of each task met but the running one."""
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

    def _book(self) -> dict[str, Integers]:
        return {"slots": self.kept()[1], "came": self._came, "tasks": np.array(self.tasks, np.int64)}

    def _reopen(self, book: dict[str, Integers], samples: int) -> None:
        self._came, self.tasks = book["came"], book["tasks"].tolist()
        if self._came.shape != (len(self._rows),) or (self._came < 0).any():
            raise ValueError(f"there are {len(self._rows)} rings, and {self._came.tolist()} came")
        if (
            book["tasks"].ndim != 1
            or len(set(self.tasks)) < len(self.tasks)
            or len(self.tasks) > len(self._rows)
        ):
            raise ValueError(f"there are {len(self._rows)} rings for the tasks {self.tasks}")
        if not len(self) == samples == len(book["slots"]):
            raise ValueError(
                f"rings of {self.quota} to which {self._came.tolist()} came can't keep {samples}"
            )
        filled = np.arange(self.quota) < self._filled()[:, None]
        self._rows[filled] = np.arange(samples)
        self._slots[filled] = book["slots"]

    # Control.

    def forget(self, slot: int) -> None:
        """Drop a class with all its exemplars. A task that has none left is as if it had never come."""
        rings = {task: self._by_age(ring) for ring, task in enumerate(self.tasks)}
        left = {task: rows[slots != slot] for task, (rows, slots) in rings.items()}
        left = {task: rows for task, rows in left.items() if len(rows)}
        classes = {task: without(slots[slots != slot], slot) for task, (_, slots) in rings.items()}
        rows = np.concatenate([*left.values(), np.zeros(0, np.int64)])
        if self.rows is not None:
            self._lay_out(self._in_rows(rows))
        self.tasks, self._came = list(left), np.zeros_like(self._came)
        self._came[: len(left)] = [len(part) for part in left.values()]
        filled = np.arange(self.quota) < self._filled()[:, None]
        self._rows[filled] = np.arange(len(rows))
        self._slots[filled] = np.concatenate([*(classes[task] for task in left), np.zeros(0, np.int64)])

    def _by_age(self, ring: int) -> tuple[Integers, Integers]:
        """Rows and slots of a ring, the oldest first."""
        filled, came = self._filled()[ring], self._came[ring]
        places = (np.arange(filled) + (came if came > filled else 0)) % self.quota
        return self._rows[ring, places], self._slots[ring, places]

    def merge(self, other: RingMemory, slots: Integers) -> None:
        """What the other keeps comes to the rings of its tasks, the oldest first."""
        running = self.running
        for ring, task in enumerate(other.tasks):
            rows, classes = other._by_age(ring)
            self.running = task
            samples = other._in_rows(rows)
            self.write(samples, torch.from_numpy(self.admit(slots[classes])).to(samples.device))
        self.running = running
