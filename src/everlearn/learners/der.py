"""DER++: dark experience replay, which also keeps what the network said about each exemplar."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.checkpoint import CheckpointError, State
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.prediction import in_chunks
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import weighted_cross_entropy
from everlearn.memory.base import write_rows
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import as_input

__all__ = ["DERPlusPlus", "DERPlusPlusSettings"]


@dataclasses.dataclass(frozen=True)
class DERPlusPlusSettings(SoftmaxReplaySettings):
    """DER++'s settings, with the paper's symbols."""

    distillation: float = 0.2
    """α, the weight of the squared distance to the logits stored with the exemplars"""
    rehearsal: float = 1.0
    """β, the weight of the cross-entropy of the exemplars"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("distillation", self.distillation >= 0, "at least 0")
        self._check("rehearsal", self.rehearsal >= 0, "at least 0")


class DERPlusPlus(Learner):
    """Dark experience replay++: exemplars keep the logits that the network gave when they came.

    A step adds three means: the cross-entropy of the batch, the squared distance of the logits of some exemplars to
    those stored with them, and the cross-entropy of other exemplars. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = DERPlusPlus("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Buzzega, P. et al. Dark Experience for General Continual Learning: a Strong, Simple Baseline. NeurIPS 2020.
    """

    name = "der++"
    Settings = DERPlusPlusSettings
    settings: DERPlusPlusSettings
    Memory = ReservoirMemory
    weighs_samples = True
    _stored: Tensor | None = None  # the logits of each row of the memory, `[rows, outputs]`
    _known: Tensor | None = None  # how many of these are of classes known when the row was written, `[rows]`

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Two independent draws, one after the other, and the rows of the first."""
        first, second = (self.memory.draw(self.replay_size(batch)) for _ in range(2))
        rows, slots = (np.concatenate(parts) for parts in zip(first, second, strict=True))
        return rows, slots, first[0]

    def forward_sizes(self, batch: int) -> set[int]:
        """The size of B_n; the replayed samples pass by themselves, if there is more than one."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        """One step on CE(B_n) + α ‖h(B'_M) − z‖² + β CE(B''_M); returns the logits of B_n before it."""
        old, old_slots, rows = replay
        logits: Tensor = self.network(as_input(x))
        loss = weighted_cross_entropy(self, self.head.among_open(logits), slots)
        half = len(rows)
        if half > self.may_reject:  # batch norm can't take a single sample
            loss = loss + self.settings.distillation * self._distance(as_input(old[:half]), rows)
            again = cross_entropy(self.logits(as_input(old[half:])), old_slots[half:])
            loss = loss + self.settings.rehearsal * again
        self.descend(loss)
        return logits.detach()

    def _distance(self, x: Tensor, rows: Tensor) -> Tensor:
        """The mean square of logits now minus logits then, over the classes known then."""
        assert self._stored is not None and self._known is not None
        logits: Tensor = self.network(x)
        known = torch.arange(logits.shape[1], device=logits.device) < self._known[rows][:, None]
        return ((logits - self._stored[rows]).square() * known).sum() / known.sum().clamp(min=1)

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        """Store the logits of the batch where its samples are stored."""
        if plan.keep is not None:
            assert self._stored is not None and self._known is not None
            write_rows(self._stored, plan.keep, outcomes[-1])
            write_rows(self._known, plan.keep, self.head.open.sum().expand(len(plan.keep)))

    def learnt_tensors(self) -> list[Tensor]:
        """The stored logits, too."""
        stored = [part for part in (self._stored, self._known) if part is not None]
        return [*super().learnt_tensors(), *stored]

    # Classes and state.

    def install(self, network: nn.Module, features: int) -> None:
        """Start with no logits."""
        super().install(network, features)
        rows = self.settings.memory_size + 1
        self._stored = torch.zeros(rows, self.network.head.out_features, device=self.device)
        self._known = torch.zeros(rows, dtype=torch.int64, device=self.device)

    def open_classes(self, classes: int) -> None:
        """Widen the stored logits with the head."""
        super().open_classes(classes)
        assert self._stored is not None
        more = self.network.head.out_features - self._stored.shape[1]
        if more:
            self._stored = torch.cat([self._stored, self._stored.new_zeros(len(self._stored), more)], 1)
            self.tensors_replaced()

    def forget_class(self, slot: int) -> None:
        """Remove its logits, and those of its exemplars: the memory moves the others to its first rows."""
        assert self._stored is not None and self._known is not None
        rows, slots = self.memory.kept()
        stays = torch.from_numpy(rows[slots != slot]).to(self.device)
        stored, known = self._stored[stays], self._known[stays]
        super().forget_class(slot)
        self._stored = self._stored.new_zeros(len(self._stored), self.network.head.out_features)
        self._known = torch.zeros_like(self._known)
        left = torch.cat([stored[:, :slot], stored[:, slot + 1 :]], 1)[:, : self._stored.shape[1]]
        self._stored[: len(stays), : left.shape[1]] = left
        self._known[: len(stays)] = known - (known > slot).long()
        self.tensors_replaced()

    def memory_edited(self, kept: NDArray[np.int64]) -> None:
        """Move the logits of the exemplars that are left with them, to the first rows."""
        assert self._stored is not None and self._known is not None
        rows = torch.from_numpy(kept).to(self.device)  # the rows of a reservoir are in the order of the index
        stored, known = torch.zeros_like(self._stored), torch.zeros_like(self._known)
        stored[: len(rows)], known[: len(rows)] = self._stored[rows], self._known[rows]
        self._stored, self._known = stored, known

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Ask the network again about every exemplar."""
        super().merge_from(other, slots)
        assert self._stored is not None and self._known is not None
        rows = torch.from_numpy(self.memory.kept()[0]).to(self.device)
        self._stored, self._known = torch.zeros_like(self._stored), torch.zeros_like(self._known)
        if len(rows):
            self._stored[rows] = in_chunks(self, self.memory.samples()[0], "merge", self.network)
            self._known[rows] = self.head.open.sum()
        self.tensors_replaced()

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and of the stored logits."""
        parts = [part for part in (self._stored, self._known) if part is not None]
        return super().footprint() | {"logits": sum(part.nbytes for part in parts)}

    def extra_state(self) -> State:
        """The logits, in the order of the exemplars."""
        assert self._stored is not None and self._known is not None
        rows = torch.from_numpy(self.memory.kept()[0]).to(self.device)
        return super().extra_state() | {"stored": self._stored[rows], "known": self._known[rows]}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned; the memory puts its exemplars into its first rows."""
        super().restore_extra(state)
        assert self._stored is not None and self._known is not None
        stored, known = state["stored"], state["known"]
        outputs = self._stored.shape[1]
        if stored.shape != (len(self.memory), outputs) or known.shape != (len(self.memory),):
            raise CheckpointError(
                f"the stored logits are {list(stored.shape)}, expected [{len(self.memory)}, {outputs}]"
            )
        self._stored[: len(stored)] = stored.to(self.device)
        self._known[: len(known)] = known.to(self.device)
