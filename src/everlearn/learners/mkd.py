"""MKD: momentum knowledge distillation, on top of experience replay."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn import foreach
from everlearn.checkpoint import State
from everlearn.core.images import SeveralViews
from everlearn.core.learner import Learner
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.softmax import weighted_cross_entropy
from everlearn.core.state import under
from everlearn.losses.distillation import distillation_loss
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import SoftmaxNetwork
from everlearn.networks.frozen_copy import frozen_copy
from everlearn.transaction import current

__all__ = ["MKD", "MKDSettings"]

CORRECTED_EVERY = 10  # batches


@dataclasses.dataclass(frozen=True)
class MKDSettings(SoftmaxReplaySettings):
    """MKD's settings; `augmentation` is that of the view that the teacher sees."""

    teacher_rate: float = 0.01
    """α, how much of the teacher is replaced by the network in each iteration"""
    distillation: float = 5.5
    """λ, the weight of the distillation"""
    temperature: float = 4.0
    """T, the temperature of the distillation"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("teacher_rate", 0 < self.teacher_rate < 1, "above 0 and below 1")
        self._check("distillation", self.distillation >= 0, "at least 0")
        self._check("temperature", self.temperature > 0, "above 0")


class MKD(Learner):
    """Experience replay that also learns from a slowly moving average of its own weights.

    The teacher sees a view of each sample of B_n and B_M; the network follows it on that view and on the sample
    itself. Predictions are by the mean of the weights of both. It needs no task.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(80, 8) + 5 * torch.tensor([1.0, -1.0] * 40)[:, None]
    >>> y = ["high", "low"] * 40
    >>> learner = MKD("mlp", memory_size=10, hidden=16, learning_rate=0.2, seed=0)
    >>> for start in range(0, 80, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Michel, N. et al. Rethinking Momentum Knowledge Distillation in Online Continual Learning. ICML 2024.
    """

    name = "mkd"
    Settings = MKDSettings
    settings: MKDSettings
    Memory = ReservoirMemory
    networks = "one, and a teacher"
    weighs_samples = True
    _teacher: SoftmaxNetwork | None = None
    _merged: Any = None  # the network of predictions, until something changes

    def begin(self, x: Tensor) -> None:
        """Show the networks each image and a view of it."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device)

    def use(self, network: nn.Module) -> None:
        """Train this network; the teacher takes over what it has, and new rows of the last layer as they are."""
        super().use(network)
        before, self._teacher = self._teacher, frozen_copy(self.network)
        with torch.no_grad():
            for name, part in self._teacher.named_parameters():
                if before is None:  # at first it is nearly nothing
                    part.mul_(self.settings.teacher_rate / (1 - self.settings.teacher_rate))
                else:
                    old = before.get_parameter(name)
                    shared = tuple(slice(min(sizes)) for sizes in zip(part.shape, old.shape, strict=True))
                    part[shared] = old[shared]

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Rows and slots, and how far the bias of the teacher is corrected."""
        corrected = np.array([max(1, self.batches // CORRECTED_EVERY)])
        return *super().draw_replay(batch), corrected

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on CE + λ · distillation on the view and on the sample; then the teacher follows."""
        old, old_slots, corrected = replay
        samples, view = torch.cat([x, old], dim=1)
        assert self._teacher is not None
        with torch.no_grad():
            taught = self.head.among_open(self._teacher(view))
        logits, plain = self.logits(view), self.logits(samples)
        temperature = self.settings.temperature
        distance = (distillation_loss(part, taught, temperature) for part in (logits, plain))
        loss = weighted_cross_entropy(self, logits, torch.cat([slots, old_slots]), len(old_slots))
        self.descend(loss + self.settings.distillation * sum(distance) / 2)
        self._follow(corrected)

    @torch.no_grad()
    def _follow(self, corrected: Tensor) -> None:
        """θ' ← (1 − α) θ' + α θ / (1 − α^n), where n counts batches in tens."""
        assert self._teacher is not None
        rate = self.settings.teacher_rate
        weights: list[Tensor] = list(self._teacher.parameters())
        transaction = current()
        if transaction is not None:
            transaction.keep(weights)
        foreach.mul_(weights, 1 - rate)
        current_weights: list[Tensor] = list(self.network.parameters())
        foreach.add_(weights, foreach.mul(current_weights, rate / (1 - rate ** corrected[0])))

    def learnt_tensors(self) -> list[Tensor]:
        """The teacher, too."""
        assert self._teacher is not None
        return [*super().learnt_tensors(), *self._teacher.parameters()]

    # Predicting.

    @property
    def predictor(self) -> Any:
        """A network with the mean of the weights of both, and the statistics of the trained one."""
        if self._merged is None and self.network is not None:
            merged = copy.deepcopy(super().predictor).requires_grad_(False)
            assert self._teacher is not None
            with torch.no_grad():
                for part, other in zip(merged.parameters(), self._teacher.parameters(), strict=True):
                    part.add_(other).div_(2)
            self._merged = merged.eval()
        return self._merged

    def invalidate(self) -> None:
        """Drop the network of predictions, too."""
        super().invalidate()
        self._merged = None

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Copy the network of predictions."""
        frozen._merged = copy.deepcopy(self.predictor)

    # Classes and state.

    def forget_class(self, slot: int) -> None:
        """Remove the logit of the teacher, too."""
        assert self._teacher is not None
        teacher = frozen_copy(self._teacher)
        super().forget_class(slot)
        with self.seeded():
            teacher.forget(slot, self.network.head.out_features)
        self._teacher = teacher.requires_grad_(False)

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and of the teacher."""
        parts = [] if self._teacher is None else list(self._teacher.parameters())
        return super().footprint() | {"teacher": sum(part.nbytes for part in parts)}

    def extra_state(self) -> State:
        """The teacher, too."""
        assert self._teacher is not None
        weights = self._teacher.state_dict()
        return super().extra_state() | {f"teacher.{name}": part.clone() for name, part in weights.items()}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        assert self._teacher is not None
        self._teacher.load_state_dict(under("teacher.", state))
