"""GEM: no step may raise the loss on the memory of a past task."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from everlearn.arrays import in_float64
from everlearn.core.execution import run_part
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import SoftmaxMemorySettings
from everlearn.core.softmax import weighted_cross_entropy
from everlearn.memory.labels import Label
from everlearn.memory.ring import RingMemory
from everlearn.networks import MLP, SoftmaxNetwork, as_input
from everlearn.training.passes import gradients_of

__all__ = ["GEM", "GEMSettings", "multipliers"]

RIDGE = 1e-3  # added to the diagonal of G Gᵀ


@dataclasses.dataclass(frozen=True)
class GEMSettings(SoftmaxMemorySettings):
    """GEM's settings; where no benchmark is named, the defaults are Split-MNIST's."""

    tasks: int = 5
    """T, the number of tasks; the memory holds |M| / T samples of each"""
    margin: float = 0.5
    """γ, the least weight of each past task's gradient in a projected step"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("tasks", self.tasks >= 1, "at least 1")
        self._check("margin", self.margin >= 0, "at least 0")
        self._check(
            "memory_size", self.memory_size >= self.tasks, f"at least 1 for each of {self.tasks} tasks"
        )


class GEM(Learner):
    """Gradient episodic memory: the step that is nearest to the gradient and harms no past task.

    Each task keeps its most recent samples. Where the gradient of a batch points against that of a past
    task's memory, it is projected by a small quadratic program. It needs the task of each batch, and their number.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = GEM("mlp", memory_size=20, tasks=2, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=start // 20)
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Lopez-Paz, D. and Ranzato, M. Gradient Episodic Memory for Continual Learning. NeurIPS 2017.
    """

    name = "gem"
    weighs_samples = True
    needs = frozenset({"t", "tasks"})
    tensors_alone = False  # the quadratic program is solved on the host
    tensor_parts = ("_gradient", "_gradients_at_once")
    Settings = GEMSettings
    settings: GEMSettings
    memory: RingMemory

    def make_memory(self) -> RingMemory:
        """Make a memory with a ring for each task."""
        return RingMemory(self.settings.memory_size, self.settings.tasks, self.labels, self.generator)

    def check_task(self, t: Any, method: str) -> int | None:
        """The task of the batch; raises a ValueError if there is no ring left for it."""
        task = super().check_task(t, method)
        assert task is not None
        if not self.memory.room(task):
            raise ValueError(
                f"GEM.{method} got t={task}, but it was created with tasks={self.settings.tasks} and has seen "
                f"{self.memory.tasks}: set tasks to the number of tasks"
            )
        self.memory.running = task
        return task

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, and the rows where it is stored."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        return Plan(slots, keep=self.memory.admit(slots) if keep else None)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Store the batch, unless it is revisited, and then learn from it."""
        self.sample_weights = plan.weights
        if plan.keep is not None:
            self.memory.write(x, plan.keep)
        rings = [ring for ring in self.memory.past() if len(ring[0]) > self.may_reject]
        past = [[torch.from_numpy(part).to(self.device) for part in ring] for ring in rings]
        memories = [
            (self.prepared(as_input(self.memory.recall(rows))), old_slots) for rows, old_slots in past
        ]
        for _ in range(self.settings.iterations):
            self.step(self.prepared(x), plan.slots, *(part for memory in memories for part in memory))

    def forward_sizes(self, batch: int) -> set[int]:
        """The batch alone."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """θ ← θ − lr · (g + Gᵀ v), with v = 0 if no past task's gradient, a row of G, points against g.

        replay: the samples and slots of each past task's memory, in turn.
        """
        past = self._past_gradients(list(replay[::2]), list(replay[1::2]))  # G, [tasks, parameters]
        if self.sample_weights is None:
            (gradient,) = run_part(self, "_gradient", as_input(x), slots)  # g, [parameters]
        else:
            gradient = self._flat_gradient(weighted_cross_entropy(self, self.logits(as_input(x)), slots))
        if len(past) and bool((past @ gradient < 0).any()):
            gradient = gradient + multipliers(past, gradient, self.settings.margin).to(gradient) @ past
        parts = torch.split(gradient, [part.numel() for part in self.parameters])
        # One vector has one type; a network may have several.
        self.sgd.step([part.view_as(own).to(own) for part, own in zip(parts, self.parameters, strict=True)])

    def _past_gradients(self, xs: list[Tensor], slots: list[Tensor]) -> Tensor:
        """The gradient on each memory, `[tasks, parameters]`.

        For an MLP, all memories are computed at once. For other networks they are computed one by one: with batch
        norm in training mode, a gradient depends on all samples of the forward pass.
        """
        assert isinstance(self.network, SoftmaxNetwork)
        if len(xs) > 1 and isinstance(self.network.body, MLP):
            # Shorter memories are padded with samples that the loss ignores.
            padded = pad_sequence(xs, True), pad_sequence(slots, True, -1)  # [tasks, samples, ...]
            return run_part(self, "_gradients_at_once", *padded)[0]
        gradients = [run_part(self, "_gradient", *memory)[0] for memory in zip(xs, slots, strict=True)]
        return torch.stack(gradients) if gradients else torch.empty(0, 0)

    def _gradient(self, x: Tensor, slots: Tensor) -> list[Tensor]:
        """The gradient of the mean cross-entropy, as one vector. Tensor operations only."""
        return [self._flat_gradient(cross_entropy(self.logits(x), slots))]

    def _flat_gradient(self, loss: Tensor) -> Tensor:
        return torch.cat([part.flatten() for part in gradients_of(loss, self.parameters)])

    def _gradients_at_once(self, x: Tensor, slots: Tensor) -> list[Tensor]:
        """The gradient on each memory, `[tasks, parameters]`. Tensor operations only.

        x, slots: the memories, `[tasks, samples, ...]`; a slot of -1 is padding.
        """
        network, head = self.network, self.head
        assert network is not None and head is not None
        trained = {name: part.detach() for name, part in network.named_parameters() if part.requires_grad}

        def loss(weights: dict[str, Tensor], x: Tensor, slots: Tensor) -> Tensor:
            logits: Tensor = functional_call(network, weights, (x,))
            return cross_entropy(head.among_open(logits), slots, ignore_index=-1)

        gradients = vmap(grad(loss), (None, 0, 0))(trained, x, slots)
        return [torch.cat([gradients[name].flatten(1) for name in trained], 1)]

    def check_merge(self, other: Any) -> None:
        """Raise a ValueError if both have more tasks together than rings."""
        tasks = list(dict.fromkeys(self.memory.tasks + other.memory.tasks))
        if len(tasks) > self.settings.tasks:
            raise ValueError(
                f"GEM.merge would make {len(tasks)} tasks, {tasks}, but it was created with "
                f"tasks={self.settings.tasks}: set tasks to the number of tasks"
            )

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r, and of a gradient for each task while a step is projected."""
        model = sum(part.nbytes for part in self.parameters)
        return super().footprint() | {"gradients": self.settings.tasks * model}


def multipliers(past: Tensor, gradient: Tensor, margin: float) -> Tensor:
    """v = argmin ½ vᵀ P v + (G g)ᵀ v subject to v ≥ γ, with P = G Gᵀ + ridge · I.

    With v = γ + u, P = L Lᵀ and c = P γ + G g this is argmin ‖Lᵀ u + L⁻¹ c‖² subject to u ≥ 0: non-negative
    least squares.

    past: G, `[tasks, parameters]`. gradient: g, `[parameters]`.
    """
    from scipy.optimize import nnls

    exact = in_float64(past)
    gram = (exact @ exact.T).cpu() + RIDGE * torch.eye(len(past), dtype=torch.float64)
    linear = gram.sum(1) * margin + (exact @ in_float64(gradient)).cpu()
    lower = torch.linalg.cholesky(gram)
    target = -torch.linalg.solve_triangular(lower, linear[:, None], upper=False)[:, 0]
    above, _ = nnls(lower.T.numpy(), target.numpy())
    return torch.from_numpy(above) + margin
