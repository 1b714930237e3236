"""Learners that are told t while they learn: which classes belong to the running task, and when it ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.checkpoint import CheckpointError, State
from everlearn.core.learner import Learner
from everlearn.core.softmax import UNSEEN

__all__ = ["TaskAwareLearner"]


class TaskAwareLearner(Learner):
    """A learner that treats the classes of the running task and those before it differently.

    A class belongs to the task in which it came first. Predictions never use t.
    """

    needs = frozenset({"t"})
    known = 0  # how many classes came before the running task; their slots are the first ones
    task_batches = 0  # batches observed in the running task
    _running: int | None = None  # the running task

    def check_task(self, t: Any, method: str) -> int | None:
        """The task of the batch; a new one ends the last one."""
        task = super().check_task(t, method)
        if method == "observe" and task != self._running:
            if self._running is not None:
                self.end_task()
            self._running = task
        return task

    def end_task(self) -> None:
        """Called when a task is over, before the first batch of the next one."""
        self.known, self.task_batches = len(self.labels), 0
        self.tensors_replaced()  # what a graph has recorded depends on the number of known classes

    @property
    def is_first_task(self) -> bool:
        """Whether no task has ended yet."""
        return self.known == 0

    def count(self, samples: int) -> None:
        """Count an observed batch, also in its task."""
        super().count(samples)
        self.task_batches += 1

    def draw_of(self, running: bool, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and slots of up to `count` random exemplars of the running task, or of those before it."""
        rows, slots = self.memory.kept()
        wanted = np.flatnonzero((slots >= self.known) == running)
        order = torch.randperm(len(wanted), generator=self.generator).numpy()
        chosen = wanted[order[:count]]
        return rows[chosen], slots[chosen]

    def of_running_task(self, logits: Tensor, slots: Tensor, seen: Tensor) -> Tensor:
        """The logits with all masked but those of the running task's classes, and of these slots.

        seen: the number of classes seen so far. In the first task no logit is masked, so that outputs of classes
        still to come, where there are any from the start, learn to be small.
        """
        if self.is_first_task:
            return logits
        place = torch.arange(logits.shape[1], device=logits.device)
        running = (place >= self.known) & (place < seen)
        return torch.where(running.scatter(0, slots, True), logits, UNSEEN)

    def forget_class(self, slot: int) -> None:
        """Count one class less, too."""
        super().forget_class(slot)
        self.known -= slot < self.known

    def extra_state(self) -> State:
        """The running task, too."""
        running = [] if self._running is None else [self._running]
        counts = torch.tensor([self.known, self.task_batches])
        return super().extra_state() | {"running": torch.tensor(running), "task": counts}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        self._running = next(iter(state["running"].tolist()), None)
        self.known, self.task_batches = state["task"].tolist()
        if not (0 <= self.known <= len(self.labels) and 0 <= self.task_batches <= self.batches):
            raise CheckpointError(
                f"this state has {self.known} classes and {self.task_batches} batches of earlier tasks, "
                f"but {len(self.labels)} classes and {self.batches} batches in all"
            )
