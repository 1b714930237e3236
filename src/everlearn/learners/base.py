"""The contract that all learners share.

`observe` is the border to the host: it checks the input, maps labels to slots, draws what is random
and moves data to the device. `step` is the method itself, in tensors alone.

Here is how a learner learns. What it stands on (network, settings, room for classes) is in foundation.py; how it
predicts, in predicting.py; labels that come late, in late.py; forgetting and merging, in control.py; its state,
in state.py.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.learners.border import try_batch
from everlearn.learners.control import Controlled
from everlearn.learners.late import Asking
from everlearn.learners.predicting import NotLearntYet
from everlearn.learners.settings import Settings
from everlearn.learners.state import Stateful
from everlearn.memory.labels import Label, as_labels, shortened
from everlearn.randomness import DrawFrom
from everlearn.training.sgd import finite_norm
from everlearn.transaction import atomic, current

__all__ = ["Learner", "NotLearntYet", "Settings"]

LARGEST_TASK = 2**63 - 1


class Learner(Asking, Controlled, Stateful):
    """Learns from a stream of batches, and predicts at any moment.

    network: `"mlp"` or `"slim-resnet18"`, sized from the first batch; `"identity"` for samples that are embedded
        already; or an nn.Module that maps x to an embedding.
    seed: fixes initialisation, replay and memory.
    device: `"auto"` (a GPU if there is one), or a torch device by name.
    settings: the fields of the learner's `Settings`.
    """

    @atomic
    def observe(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from one batch, the first time it is seen."""
        self._observe(x, y, t)

    def _observe(self, x: Any, y: Any, t: Any) -> None:
        x, labels, new = self._accept(x, y)
        self._try(x)
        self._hear(t, "observe")
        self._meet(x, new)
        self._learn(x, self.prepare(labels))
        self.count(len(x))

    @atomic
    def revisit(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from a batch again, where the horizon is wider than a batch. Nothing is stored or counted."""
        x, labels, new = self._accept(x, y, "revisit")
        self._try(x)
        if new:
            raise ValueError(
                f"{type(self).__name__}.revisit got the label {shortened(new[0])}, which was never observed"
            )
        self._hear(t, "revisit")
        self._learn(x, self.prepare(labels, keep=False))

    def end_horizon(self) -> None:
        """The horizon D_t is over."""

    def _hear(self, t: Any, method: str) -> int | None:
        """The task that the batch is of, checked before anything changes if the learner needs to know it."""
        if "t" not in self.needs:
            return None
        name = type(self).__name__
        try:
            task = operator.index(t)
        except TypeError:
            raise ValueError(
                f"{name}.{method} must be told t, the task of the batch, as an integer, not {shortened(t)}: "
                f"{method}(x, y, t)"
            ) from None
        if abs(task) > LARGEST_TASK:
            raise ValueError(f"{name}.{method} takes a t of at most 64 bits, not one of {task.bit_length()}")
        return task

    def _accept(self, x: Any, y: Any, method: str = "observe") -> tuple[Tensor, list[Label], list[Label]]:
        """The batch, checked before anything changes: samples, labels, and those of the labels that are new."""
        x = self._samples(x, method)
        labels = as_labels(y)
        if len(labels) != len(x):
            raise ValueError(f"{type(self).__name__}.{method} got {len(x)} samples but {len(labels)} labels")
        new = self.labels.new(labels)
        classes = len(self.labels) + len(new)
        self._check_room(classes)
        return x, labels, new

    def _try(self, x: Tensor) -> None:
        """Let a network refuse a batch before anything changes: for its length, or for what is in it."""
        network = self._trained_with()
        if network is None or not self.may_refuse:
            return
        lengths = self.passed(len(x)) - self._tried
        with DrawFrom(torch.Generator()) as tried:
            try_batch(network, x.to(self.device), lengths)
        self._network_draws = self._network_draws or tried.drawn
        self._tried |= lengths

    def _trained_with(self) -> nn.Module | None:
        """What a batch passes in training mode, and what may refuse it."""
        return self.network

    @property
    def may_refuse(self) -> bool:
        """Whether the network may refuse a batch of a shape that is right: batch-norm does, if it is a single one."""
        return self.given not in ("mlp", "identity")

    def passed(self, batch: int) -> set[int]:
        """How many samples pass the network together, in training mode, when a batch of this size is learnt."""
        return {batch}

    def welcome(self, x: Any, y: Any) -> None:
        """Get ready for a batch with new labels without learning from it, after the same checks."""
        x, _, new = self._accept(x, y)
        self._meet(x, new)

    def _meet(self, x: Tensor, new: list[Label]) -> None:
        if self.sample_shape is None:
            self._begin(x)
        if new:
            self.labels.extend(new)
            self._open_classes(len(self.labels))

    def _learn(self, x: Tensor, decided: list[NDArray[np.int64]]) -> None:
        self._least = None
        on_device = [torch.from_numpy(part) for part in decided]
        if self.device.type != "cpu":
            on_device = [part.to(self.device, non_blocking=True) for part in on_device]
        self._prepare_network()
        drawing = DrawFrom(self.generator) if self._network_draws else nullcontext()
        # A caller may have switched gradients off.
        with drawing, torch.inference_mode(False), torch.enable_grad():
            (self._captured or self.learn)(x.to(self.device), *on_device)
        if self._finite_buffers and self.device.type == "cpu":
            finite_norm(self._finite_buffers)

    def _prepare_network(self) -> None:
        """Put the network into training mode, and let a transaction remember what a pass changes."""
        network, transaction = self.network, current()
        assert network is not None
        if not network.training:
            network.train()
        if transaction is not None and self._has_buffers:
            transaction.keep_buffers(network)

    def prepare(self, labels: list[Label], keep: bool = True) -> list[NDArray[np.int64]]:
        """What the host decides about a batch: its slots, the replay of each iteration, the rows that keep it.

        labels: all seen by now. On the device these are the arguments of `learn` after x.
        """
        slots = np.array(self.labels.slots(labels))
        if self.memory is None:
            return [slots]
        draws = [self.memory.draw(self.drawn(len(slots))) for _ in range(self.settings.iterations)]
        rows, old_slots = (np.array(parts) for parts in zip(*draws, strict=True))
        return [slots, rows, old_slots, *([self.memory.admit(slots)] if keep else [])]

    def drawn(self, batch: int) -> int:
        """How many exemplars are drawn from the memory for an iteration on a batch of this size."""
        return batch

    def shape(self, batch: int) -> tuple[Hashable, ...]:
        """What of the settings the shapes of a plan depend on, for a batch of this size: alike in a cohort."""
        return self.settings.iterations, self.drawn(batch)

    def count(self, samples: int) -> None:
        """A batch of so many samples was observed."""
        self.batches += 1
        self.samples += samples

    def learn(self, x: Tensor, slots: Tensor, *plan: Tensor) -> None:
        """All that is done with one batch, in tensors alone: what a CUDA graph captures.

        plan: of the replay the memory's rows and their slots, both `[iterations, replayed]`, and the rows
        that keep this batch, `[batch]`: as far as the learner has a memory, and the batch is kept.
        """
        rounds = range(self.settings.iterations)
        if self.memory is None:
            outcomes = [self.step(x, slots) for _ in rounds]
        else:
            recalled = self.memory.recall(plan[0])
            outcomes = [self.step(x, slots, recalled[i], plan[1][i]) for i in rounds]
        self._finish(x, slots, outcomes, plan)

    @torch.inference_mode()
    def _finish(
        self, x: Tensor, slots: Tensor, outcomes: list[Tensor | None], plan: tuple[Tensor, ...]
    ) -> None:
        """Settle what the iterations brought, and keep of the batch what is to be kept."""
        self.settle(slots, outcomes, *plan[1:2])
        if self.memory is not None and len(plan) == 3:
            self.memory.write(x, plan[2])

    @abstractmethod
    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor | None:
        """The method itself, one iteration, in tensors alone. What it returns is handed to `settle`.

        x, slots: the batch B_n and its classes. replay: the same two of B_M, if there is a memory.
        """

    def settle(self, slots: Tensor, outcomes: list[Tensor | None], *old_slots: Tensor) -> None:
        """What follows the last iteration on a batch, in tensors alone."""

    def _descend(self, loss: Tensor) -> None:
        """One step of plain SGD down a loss."""
        self._move(torch.autograd.grad(loss, self.parameters))

    def _move(self, gradients: tuple[Tensor, ...] | list[Tensor]) -> None:
        """One step of plain SGD against a gradient, given by parameter."""
        self.sgd.step(gradients)
