"""MIR: replay the samples that the next step would harm most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from everlearn import foreach
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import weighted_cross_entropy
from everlearn.memory.labels import Label
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import as_input
from everlearn.training.passes import gradients_of

__all__ = ["MIR", "MIRSettings"]


@dataclasses.dataclass(frozen=True)
class MIRSettings(SoftmaxReplaySettings):
    """MIR's settings; where no benchmark is named, the defaults are Split-MNIST's."""

    candidates: int = 50
    """C, exemplars drawn for each step, of which the |B_n| most interfered ones are replayed"""
    other_classes: bool = False
    """draw candidates only of classes that the batch does not have, as its released code does with tasks"""
    track_candidates: bool = False
    """scoring the candidates updates the running statistics of batch norm, as in its released code"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("candidates", self.candidates >= 1, "at least 1")


class MIR(Learner):
    """Maximally interfered retrieval: it replays the candidates whose loss the next step would increase most.

    A virtual step on the batch gives the loss of each candidate after it. The actual step follows the sum of the
    mean gradients of the batch and of the chosen exemplars. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = MIR("mlp", memory_size=20, candidates=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Aljundi, R. et al. Online Continual Learning with Maximally Interfered Retrieval. NeurIPS 2019.
    """

    name = "mir"
    Settings = MIRSettings
    settings: MIRSettings
    Memory = ReservoirMemory
    weighs_samples = True

    _in_batch: NDArray[np.int64] = np.zeros(0, np.int64)  # the classes of the batch that is planned

    @property
    def draws_vary(self) -> bool:  # type: ignore[override]
        """Whether the number of candidates depends on the classes of the batch."""
        return self.settings.other_classes

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """Decide what is done with a batch; its classes may be left out of the candidates."""
        self._in_batch = np.unique(self.labels.slots(labels))
        return super().plan(labels, keep)

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Rows and slots of the candidates, uniform, without replacement; fewer if there are fewer."""
        if not self.settings.other_classes:
            return super().draw_replay(batch)
        rows, slots = self.memory.kept()
        others = np.flatnonzero(~np.isin(slots, self._in_batch))
        drawn = torch.randperm(len(others), generator=self.generator)[: self.replay_size(batch)].numpy()
        return rows[others[drawn]], slots[others[drawn]]

    def replay_size(self, batch: int) -> int:
        """The number of candidates, at least the number of replayed exemplars."""
        return max(self.settings.candidates, super().replay_size(batch))

    def forward_sizes(self, batch: int) -> set[int]:
        """The size of B_n; with at least two candidates, at least two are replayed."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """θ ← θ − lr · (g + ∇CE(B_M)), with g = ∇CE(B_n) and B_M the candidates that −lr · g harms most."""
        candidates, their_slots = as_input(replay[0]), replay[1]
        gradients = self._gradients(as_input(x), slots, weighted_cross_entropy)
        if len(candidates) > self.may_reject:  # batch norm can't take a single sample
            interference = self._interference(candidates, their_slots, gradients)
            chosen = interference.topk(min(super().replay_size(len(x)), len(candidates))).indices
            replayed = self._gradients(candidates[chosen], their_slots[chosen])
            gradients = tuple(foreach.add(gradients, replayed))
        self.sgd.step(gradients)

    def _gradients(self, x: Tensor, slots: Tensor, weighted: Any = None) -> tuple[Tensor, ...]:
        logits = self.logits(x)
        loss = cross_entropy(logits, slots) if weighted is None else weighted(self, logits, slots)
        return gradients_of(loss, self.parameters)

    @torch.no_grad()
    def _interference(self, x: Tensor, slots: Tensor, gradients: tuple[Tensor, ...]) -> Tensor:
        """CE(x; θ − lr · g) − CE(x; θ) of each sample."""
        virtual = foreach.add(self.parameters, gradients, alpha=-self.settings.learning_rate)
        if self.settings.track_candidates:
            before = cross_entropy(self.logits(x), slots, reduction="none")
        else:
            before = self._losses(x, slots, self.parameters)
        return self._losses(x, slots, virtual) - before

    def _losses(self, x: Tensor, slots: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """The cross-entropy of each sample under these parameters.

        In training mode, but with copies of the buffers: the statistics of batch norm do not change.
        """
        assert self.head is not None
        trained = [name for name, part in self.network.named_parameters() if part.requires_grad]
        buffers = {name: part.clone() for name, part in self.network.named_buffers()}
        weights = dict(zip(trained, parameters, strict=True)) | buffers
        logits: Tensor = functional_call(self.network, weights, (x,))
        return cross_entropy(self.head.among_open(logits), slots, reduction="none")

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r, and of the virtual parameters and buffers while candidates are scored."""
        buffers = [] if self.network is None else list(self.network.buffers())
        return super().footprint() | {"model copies": sum(part.nbytes for part in self.parameters + buffers)}
