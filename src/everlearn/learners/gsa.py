"""GSA: gradient self-adaptation, against the imbalance of gradients between classes."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from everlearn.checkpoint import State
from everlearn.core.images import SeveralViews
from everlearn.core.settings import SoftmaxReplaySettings
from everlearn.core.task_aware import TaskAwareLearner
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.training.strong_views import inner_flips
from everlearn.transaction import assign

__all__ = ["GSA", "GSASettings"]


@dataclasses.dataclass(frozen=True)
class GSASettings(SoftmaxReplaySettings):
    """GSA's settings; `replayed` is the number of samples in the part that is learnt among all classes."""

    current: int = 22
    """exemplars of the running task that are learnt with each batch among its classes"""
    patience: int = 5
    """batches at the start of a task in which all samples weigh the same"""
    weight: float = 2.0
    """of the loss among all classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("current", self.current >= 0, "at least 0")
        self._check("patience", self.patience >= 0, "at least 0")
        self._check("weight", self.weight >= 0, "at least 0")


class GSA(TaskAwareLearner):
    """Two cross-entropies: the new samples among the classes of their task, and a balanced replay among all classes.

    In the second one, a sample weighs more if the logit of its class has been pushed up more than down so far: the
    rate is Σ (1 − p_c) over samples of the class c, divided by Σ p_c over all others. It is told t while it learns.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = GSA("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Guo, Y., Liu, B. and Zhao, D. Dealing with Cross-Task Class Discrimination in Online Continual Learning.
    CVPR 2023.
    """

    name = "gsa"
    Settings = GSASettings
    settings: GSASettings
    Memory = ReservoirMemory
    _pushed: Tensor | None = None  # Σ (1 − p_c) of samples of c, and Σ p_c of the others, `[2, outputs]`

    def begin(self, x: Tensor) -> None:
        """Show the network a view of each image, and one of its mirror image."""
        super().begin(x)
        self.images = SeveralViews(self.settings, x, self.device, versions=inner_flips)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with no pushes."""
        super().install(network, features)
        self._pushed = torch.zeros(2, self.network.head.out_features, device=self.device)

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Exemplars of the running task, then of earlier ones.

        Beside rows and slots: two arrays whose lengths say how many exemplars are of the running task, and how many
        samples of it are learnt with the earlier ones; whether samples weigh differently yet; and the number of
        classes seen.
        """
        size, classes = self.replay_size(batch), max(len(self.labels), 1)
        current, earlier_share = self.draw_of(True, self.settings.current), self.known / classes
        earlier = self.draw_of(False, int(size * earlier_share))
        joined = min(int(size * (1 - earlier_share)), batch + len(current[0]))
        rows, slots = (np.concatenate(parts) for parts in zip(current, earlier, strict=True))
        weighs, seen = self.task_batches >= self.settings.patience, len(self.labels)
        return rows, slots, current[1], np.zeros(joined, np.int64), np.array([weighs, seen], np.int64)

    def forward_sizes(self, batch: int) -> set[int]:
        """The batch; the balanced part passes by itself, if it has more than one sample."""
        return {batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on both losses. x: `[copies, batch, ...]`, the images and mirror images, then their views."""
        old, old_slots, current, joined, counts = replay
        versions, first = len(x) // 2, len(current)
        x, old = x[versions:], old[versions:]
        new = torch.cat([x, old[:, :first]], dim=1)
        owners = torch.cat([slots, current])
        logits = self.logits(new.flatten(0, 1))
        loss = cross_entropy(self.of_running_task(logits, owners, counts[1]), owners.repeat(versions))
        both = torch.cat([old[:, first:], new[:, : len(joined)]], dim=1).flatten(0, 1)
        both_owners = torch.cat([old_slots[first:], owners[: len(joined)]]).repeat(versions)
        if len(both) > self.may_reject and len(old_slots):  # nothing is replayed from an empty memory
            loss = loss + self.settings.weight * self._balanced(self.logits(both), both_owners, counts[0])
        self.descend(loss)

    def _balanced(self, logits: Tensor, slots: Tensor, weighs: Tensor) -> Tensor:
        """The cross-entropy, each sample weighted by the rate of its class, after the pushes of this batch."""
        assert self._pushed is not None
        log_probabilities = logits.log_softmax(1)
        own = log_probabilities.gather(1, slots[:, None])
        with torch.no_grad():
            probabilities = log_probabilities.exp()
            mine = torch.zeros_like(probabilities).scatter(1, slots[:, None], 1)
            pushes = torch.stack([(mine * (1 - probabilities)).sum(0), ((1 - mine) * probabilities).sum(0)])
            assign(self._pushed, slice(None), self._pushed + pushes)
            up, down = self._pushed
            rates = torch.where(weighs > 0, up / down.clamp(min=1e-12), 1.0)
            weights = 2 / (1 + (1 - rates[slots]).exp())
        return -(weights * own[:, 0]).mean()

    def learnt_tensors(self) -> list[Tensor]:
        """The pushes, too."""
        assert self._pushed is not None
        return [*super().learnt_tensors(), self._pushed]

    # Classes and state.

    def open_classes(self, classes: int) -> None:
        """Make room for the pushes of more classes."""
        super().open_classes(classes)
        assert self._pushed is not None
        more = self.network.head.out_features - self._pushed.shape[1]
        if more:
            self._pushed = torch.cat([self._pushed, self._pushed.new_zeros(2, more)], 1)
            self.tensors_replaced()

    def forget_class(self, slot: int) -> None:
        """Remove its pushes, too."""
        super().forget_class(slot)
        assert self._pushed is not None
        outputs = self.network.head.out_features
        left = torch.cat([self._pushed[:, :slot], self._pushed[:, slot + 1 :]], 1)[:, :outputs]
        self._pushed = left.new_zeros(2, outputs)
        self._pushed[:, : left.shape[1]] = left
        self.tensors_replaced()

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and of the pushes."""
        return super().footprint() | {"pushes": 0 if self._pushed is None else self._pushed.nbytes}

    def extra_state(self) -> State:
        """The pushes, too."""
        assert self._pushed is not None
        return super().extra_state() | {"pushed": self._pushed.clone()}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        assert self._pushed is not None
        self._pushed.copy_(state["pushed"].to(self.device))
