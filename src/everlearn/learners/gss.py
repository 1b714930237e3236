"""GSS: keep samples whose gradients point in different directions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from everlearn.core.execution import run_part
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import SoftmaxMemorySettings
from everlearn.memory.labels import Label
from everlearn.memory.scored import ScoredMemory
from everlearn.networks import MLP, SoftmaxNetwork, as_input
from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite
from everlearn.transaction import current, suspended

__all__ = ["GSS", "GSSSettings"]

# Several gradients, by parameter: `[gradients, rows, columns]` each. One matrix for all would need a copy.
Gradients = list[Tensor]

BATCH = 10  # batch size for the samples of a memory that is merged
FIRST_SCORE = 0.1  # the score of samples while the memory is empty


@dataclasses.dataclass(frozen=True)
class GSSSettings(SoftmaxMemorySettings):
    """GSS's settings; where no benchmark is named, the defaults are Split-MNIST's."""

    iterations: int = 1
    """steps per batch, each followed by a step on as many exemplars"""
    comparisons: int = 10
    """n, parts of the memory with whose gradients those of new samples are compared"""
    comparison_size: int = 10
    """exemplars in each of these parts"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("comparisons", self.comparisons >= 1, "at least 1")
        self._check("comparison_size", self.comparison_size >= 1, "at least 1")


class GSS(Learner):
    """Gradient-based sample selection, the greedy version: it stores samples whose gradients differ.

    The score of a sample is the largest cosine between its gradient and those of random parts of the memory. Once
    the memory is full, samples of a batch whose gradient points against all of them replace exemplars of high score.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = GSS("mlp", memory_size=20, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Aljundi, R. et al. Gradient based sample selection for online continual learning. NeurIPS 2019.
    """

    name = "gss"
    tensors_alone = False  # which samples are stored depends on gradients, and is decided on the host
    tensor_parts = ("_guarded_steps", "_gradients", "_cosines")
    Settings = GSSSettings
    settings: GSSSettings
    Memory = ScoredMemory
    weighs_samples = True
    memory: ScoredMemory

    # Learning.

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of the batch; the next |B_M| of a permutation of the memory for each iteration; empty rows."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        rows, old_slots = self.memory.draw(len(self.memory))
        replayed = min(len(slots), len(rows))
        turns = np.arange(self.settings.iterations * replayed).reshape(self.settings.iterations, replayed)
        turns %= max(len(rows), 1)
        return Plan(slots, rows[turns], old_slots[turns], self.memory.admit(slots) if keep else None)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Do the steps on a batch, then select the samples to store."""
        steps = dataclasses.replace(plan, keep=None)
        if "_guarded_steps" not in self.part_graphs or plan.keep is None:
            super().learn(x, steps)
        else:
            self._replay_steps(x, steps)
        if plan.keep is not None:
            self._select(x, plan.slots, plan.keep)

    def _replay_steps(self, x: Tensor, plan: Plan) -> None:
        """The steps as a CUDA graph. The samples are selected on the host, which can wait for the outcome."""
        transaction = current()
        if transaction is not None:
            transaction.keep(self.learnt_tensors())
        (refused,) = run_part(self, "_guarded_steps", x, plan)
        if bool(refused):
            raise NotFinite

    def _guarded_steps(self, x: Tensor, plan: Plan) -> list[Tensor]:
        """The steps, and whether they were refused since a result is not finite. Tensor operations only."""
        guard = FiniteGuard(self)
        with suspended():  # the weights are remembered already
            guard(x, plan)
        return [guard.refused]

    def forward_sizes(self, batch: int) -> set[int]:
        """The size of B_n; B_M is not larger."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """A step of cross-entropy on B_n, then another on B_M."""
        old, old_slots = replay
        self.fit(x, slots, self.weights(len(x), 0))
        if len(old) > self.may_reject:  # batch norm can't take a single sample
            self.fit(old, old_slots)

    # Selecting.

    def _select(self, x: Tensor, slots: Tensor, rows: Tensor) -> None:
        """Store samples while there is room; the rest competes. In evaluation mode, to keep batch norm unchanged."""
        assert self.network is not None
        transaction = current()
        if transaction is not None:
            transaction.flush()
        room = self.memory.size - len(self.memory)
        self.network.eval()
        try:
            if room:
                first, their_slots = x[:room], slots[:room]
                self.memory.enter(first, their_slots, self._scores(first, their_slots), rows[:room])
            if len(x) > room:
                self._compete(x[room:], slots[room:])
        finally:
            self.network.train()

    def _scores(self, x: Tensor, slots: Tensor) -> Tensor:
        """The scores of new samples, against parts of the memory drawn for them."""
        if not len(self.memory):
            return torch.full((len(x),), FIRST_SCORE)
        rows, owners = self._comparison_parts()
        return self._similarity(x, slots, self._gradients_of_parts(self.memory.recall(rows), owners))

    def _compete(self, x: Tensor, slots: Tensor) -> None:
        """Let new samples replace exemplars, if their mean gradient points against those of the memory."""
        comparison = self._opposed_gradients(x, slots)
        if not comparison:
            return
        victims = self._victims(len(x))
        if not len(victims):
            return
        x, slots = x[: len(victims)], slots[: len(victims)]
        new = self._similarity(x, slots, comparison)
        # Replaced with probability (s_i + 1) / ((s_i + 1) + (s_new + 1)).
        old = self.memory.scores[victims]
        chance = torch.rand(len(victims), generator=self.generator)
        won = (chance * (old + new + 2) < old + 1).nonzero()[:, 0]
        there = won.to(self.device)
        self.memory.enter(x[there], slots[there], new[won], victims[won].to(self.device))

    def _opposed_gradients(self, x: Tensor, slots: Tensor) -> Gradients:
        """G, if the mean gradient of these samples points against all of it; otherwise nothing.

        Where the gradients of G are computed one after the other, the first one that is not opposed is the last.
        """
        mean = self._gradients_of_parts(x[None], slots[None])
        rows, owners = self._comparison_parts()
        together = len(rows) if self._all_at_once(owners) else 1
        found: list[Gradients] = []
        for part, its_owners in zip(torch.split(rows, together), torch.split(owners, together), strict=True):
            gradients = self._gradients_of_parts(self.memory.recall(part), its_owners)
            if bool((run_part(self, "_cosines", *mean, *gradients)[0] >= 0).any()):
                return []
            found.append(gradients)
        return [torch.cat(same) for same in zip(*found, strict=True)]

    def _victims(self, count: int) -> Tensor:
        """The rows of `count` exemplars, drawn by score; fewer if fewer are above the lowest score."""
        scores = self.memory.scores
        weights = (scores - scores.min()) / (scores.max() - scores.min() + 0.01)
        count = min(count, int(weights.count_nonzero()))
        if not count:
            return torch.zeros(0, dtype=torch.int64)
        return torch.multinomial(weights, count, generator=self.generator)

    def _similarity(self, x: Tensor, slots: Tensor, comparison: Gradients) -> Tensor:
        """The largest cosine of each sample's gradient with those of `comparison`, on the host.

        At most `comparisons` samples at a time, which bounds the memory for their gradients.
        """
        few = self.settings.comparisons
        alone = zip(torch.split(x[:, None], few), torch.split(slots[:, None], few), strict=True)
        each = (self._gradients_of_parts(*part) for part in alone)
        cosines = [run_part(self, "_cosines", *gradients, *comparison)[0] for gradients in each]
        return torch.cat(cosines).amax(1).clamp(-1, 1).cpu()

    def _comparison_parts(self) -> tuple[Tensor, Tensor]:
        """The rows and classes of disjoint random parts of the memory, `[parts, size]`; G has their gradients."""
        size = min(self.settings.comparison_size, len(self.memory))
        parts = min(self.settings.comparisons, len(self.memory) // size)
        rows, slots = (torch.from_numpy(part).to(self.device) for part in self.memory.draw(parts * size))
        return rows.view(parts, size), slots.view(parts, size)

    def _gradients_of_parts(self, x: Tensor, slots: Tensor) -> Gradients:
        return run_part(self, "_gradients", x, slots)

    def _cosines(self, *gradients: Tensor) -> list[Tensor]:
        """The cosines of several gradients with others, given after them. Tensor operations only."""
        half = len(gradients) // 2
        return [_cosines(list(gradients[:half]), list(gradients[half:]))]

    def _gradients(self, x: Tensor, slots: Tensor) -> Gradients:
        """The gradient of the mean cross-entropy of each part, by parameter. Tensor operations only.

        x, slots: the samples and classes of the parts, `[parts, size, …]`.
        """
        network, head = self.network, self.head
        assert network is not None and head is not None

        def loss(weights: dict[str, Tensor], x: Tensor, slots: Tensor) -> Tensor:
            return cross_entropy(head.among_open(functional_call(network, weights, (x,))), slots)

        weights = {name: part.detach() for name, part in network.named_parameters() if part.requires_grad}
        x = self.prepared(as_input(x))
        if self._all_at_once(slots):
            gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, slots)
        else:
            each = [grad(loss)(weights, *part) for part in zip(x, slots, strict=True)]
            gradients = {name: torch.stack([part[name] for part in each]) for name in weights}
        return [
            part.reshape(len(part), part.shape[1:2].numel(), part.shape[2:].numel())
            for part in gradients.values()
        ]

    def _all_at_once(self, slots: Tensor) -> bool:
        """Whether the gradients of these parts are computed by `vmap`, not one after the other."""
        if not isinstance(self.given, str):  # it may not support a user's network, such as a GRU
            return False
        # On a CPU, grouped convolutions of several samples take 1.6 times as long as one after the other.
        assert isinstance(self.network, SoftmaxNetwork)
        return self.device.type != "cpu" or slots.shape[1] == 1 or isinstance(self.network.body, MLP)

    # Merge.

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Select from the other's exemplars by their gradients here, as if they arrived in a stream."""
        samples, labels = other.memory.samples()
        owners = torch.from_numpy(slots[other.labels.slots(labels)]).to(self.device)
        for x, part in zip(
            torch.split(samples.to(self.device), BATCH), torch.split(owners, BATCH), strict=True
        ):
            rows = torch.from_numpy(self.memory.admit(part.cpu().numpy())).to(self.device)
            self._select(x, part, rows)

    # Resources.

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r, of its scores, and of the gradients while samples are compared."""
        weights = sum(part.nbytes for part in self.parameters)
        scores, gradients = self.memory.scores.nbytes, 2 * self.settings.comparisons * weights
        return super().footprint() | {"scores": scores, "gradients": gradients}


def _cosines(gradients: Gradients, others: Gradients) -> Tensor:
    """The cosine of each gradient with each of the others, `[gradients, others]`; 0 where one has no length."""
    # Row by row of each parameter, then the sum: on a CPU twice as fast as products of such long vectors.
    pairs = zip(gradients, others, strict=True)
    products = torch.stack([torch.einsum("irc,jrc->rij", a, b).sum(0) for a, b in pairs]).sum(0)
    return (products / torch.outer(_lengths(gradients), _lengths(others))).nan_to_num()


def _lengths(gradients: Gradients) -> Tensor:
    lengths: Tensor = torch.stack([part.flatten(1).norm(dim=1) for part in gradients]).norm(dim=0)
    return lengths
