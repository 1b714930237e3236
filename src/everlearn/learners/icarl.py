"""iCaRL: herded exemplars, distillation, and the nearest mean of exemplars."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, normalize

from everlearn.checkpoint import State
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.prediction import in_chunks
from everlearn.core.settings import SoftmaxMemorySettings
from everlearn.core.softmax import weighted_cross_entropy
from everlearn.encoders import Features
from everlearn.memory.herded import HerdedMemory, herd
from everlearn.memory.labels import Label
from everlearn.networks import SoftmaxNetwork, as_input
from everlearn.streams.horizon import Horizon
from everlearn.transaction import atomic

__all__ = ["ICaRL", "ICaRLSettings"]


@dataclasses.dataclass(frozen=True)
class ICaRLSettings(SoftmaxMemorySettings):
    """iCaRL's settings; where no benchmark is named, the defaults are Split-MNIST's."""

    strength: float = 1.0
    """weight of the distillation loss"""
    original: bool = False
    """features and loss of the original paper: penultimate layer at unit length, sigmoids, exemplars replayed"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("strength", self.strength >= 0, "at least 0")
        typical = "None for iCaRL: herded exemplars are too typical of their classes to calibrate it on"
        self._check("unknown", self.unknown is None, typical)


class ICaRL(Learner):
    """Incremental classifier and representation learning: predicts the class whose exemplars' mean is nearest.

    When a task ends, herding selects the samples of each class whose mean is nearest to the mean of the class; until
    then all samples of the task are stored. Distillation preserves the network's output for the exemplars.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = ICaRL("mlp", memory_size=20, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.end_horizon()
    >>> learner.predict(x[:4]), learner.memory.counts()
    (['high', 'low', 'high', 'low'], {'high': 10, 'low': 10})

    Rebuffi, S.-A. et al. iCaRL: Incremental Classifier and Representation Learning. CVPR 2017.
    The default is the variant of Lopez-Paz, D. and Ranzato, M. Gradient Episodic Memory. NeurIPS 2017.
    """

    name = "icarl"
    needs = frozenset({"t"})
    horizon = Horizon("task")
    Settings = ICaRLSettings
    Memory = HerdedMemory
    weighs_samples = True
    settings: ICaRLSettings
    memory: HerdedMemory

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        self._running: int | None = None  # the current task
        self._old_logits = torch.empty(
            0, 0, device=self.device
        )  # of each exemplar, at the end of the last task
        self._old: SoftmaxNetwork | None = (
            None  # the network at the end of the last task; only with `original`
        )
        self._known = 0  # the number of classes at the end of the last task
        self._means: tuple[Tensor, Tensor] | None = None  # of the exemplars, until something changes

    # Learning.

    def check_task(self, t: Any, method: str) -> int | None:
        """The task of the batch; a new one ends the last one."""
        task = super().check_task(t, method)
        if method == "observe":
            if self._running is not None and task != self._running:
                self._end_horizon()
            self._running = task
        return task

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, the exemplars of each iteration, and the rows where the batch is stored."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        memory = self.memory
        draws = [
            memory.draw(len(slots)) if self.settings.original else memory.draw_of_each()
            for _ in range(self.settings.iterations)
        ]
        rows, old_slots = (np.array(parts) for parts in zip(*draws, strict=True))
        horizon = memory.horizon
        kept = memory.admit(slots) if keep else None
        if memory.horizon is not horizon:
            self.tensors_replaced()  # there was no room for the batch
        return Plan(slots, rows, old_slots, kept)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Do the steps on a batch, and store it until the horizon ends. Tensor operations only."""
        new = self.prepared(x)
        self.sample_weights = plan.weights
        for rows, old_slots in zip(plan.rows, plan.old_slots, strict=True):
            old = self.prepared(self.memory.recall(rows))
            if self.settings.original:
                self._sigmoid_step(as_input(torch.cat([new, old])), torch.cat([plan.slots, old_slots]))
            else:
                self.step(new, plan.slots, old, self._old_logits[rows])
        if plan.keep is not None:
            self.memory.write(x, plan.keep)

    def open_classes(self, classes: int) -> None:
        """Make room for new classes; with `original`, a step depends on their number."""
        super().open_classes(classes)
        self.tensors_replaced()

    def invalidate(self) -> None:
        """Drop the means of the exemplars, too."""
        super().invalidate()
        self._means = None

    def forward_sizes(self, batch: int) -> set[int]:
        """The size of the batch; with `original`, plus as many exemplars."""
        return {batch + (min(batch, len(self.memory)) if self.settings.original else 0)}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One SGD step on CE(B_n) + strength · KL(old ‖ new), over one exemplar of each class that has any.

        The divergence is the mean over exemplars and outputs. replay: the exemplars, and their old logits.
        """
        loss = weighted_cross_entropy(self, self.logits(as_input(x)), slots)
        old, old_logits = replay
        if len(old) > 1:  # batch norm can't take a single sample
            logits = self.logits(as_input(old))[:, : old_logits.shape[1]]  # only the old outputs
            divergence = (
                kl_div(logits.log_softmax(1), old_logits.softmax(1), reduction="sum") / logits.numel()
            )
            loss = loss + self.settings.strength * divergence
        self.descend(loss)

    def _sigmoid_step(self, x: Tensor, slots: Tensor) -> None:
        """The step of the original paper: sigmoids, with the old network's outputs as targets of the old classes."""
        logits = self.network(x)[:, : self._outputs()]
        targets = (slots[:, None] == torch.arange(logits.shape[1], device=slots.device)).float()
        if self._old is not None:
            with torch.no_grad():
                targets[:, : self._known] = self._old(x)[:, : self._known].sigmoid()
        loss = binary_cross_entropy_with_logits(logits, targets, reduction="none")
        weights = torch.ones_like(loss[0])
        weights[: self._known] = self.settings.strength
        losses = (loss * weights).sum(1, keepdim=True)
        batch = 0 if self.sample_weights is None else len(self.sample_weights)
        each = self.weights(batch, len(losses) - batch)
        self.descend((losses if each is None else losses * each).mean())

    @atomic
    def end_horizon(self) -> None:
        """End the task: select exemplars by herding, truncate the other lists, store the logits of all exemplars."""
        self._end_horizon()

    def _end_horizon(self) -> None:
        self.settle()  # before the samples are read
        if self.network is None or not self.memory.refresh(self._herd):
            return
        self.invalidate()
        self.tensors_replaced()
        self._known = len(self.labels)
        if self.settings.original:
            assert isinstance(self.network, SoftmaxNetwork)
            self._old = copy.deepcopy(self.network).eval().requires_grad_(False)
        else:
            self._old_logits = in_chunks(
                self, Features(self.memory.samples()[0]), "end_horizon", self._open_logits
            )

    def _herd(self, samples: Tensor, count: int) -> Tensor:
        return herd(self.embed(Features(samples)), count, self.settings.original)

    # Predicting.

    def features(self, x: Tensor) -> Tensor:
        """The logits; with `original`, the input of the last layer at unit length."""
        return normalize(super().features(x)) if self.settings.original else self._open_logits(x)

    def scores(self, x: Tensor) -> Tensor:
        """The negative distance to the mean of each class, −‖f − μ‖; −∞ for a class without exemplars."""
        slots, means = self.class_means()
        if not len(slots):
            return torch.zeros(x.shape[0], len(self.labels), device=self.device)
        scores = torch.full((x.shape[0], len(self.labels)), -torch.inf, device=self.device)
        features = self.features(x)
        scores[:, slots] = -torch.cdist(features, means, compute_mode="donot_use_mm_for_euclid_dist")
        return scores

    def class_means(self) -> tuple[Tensor, Tensor]:
        """The slots of the classes with exemplars, and the mean features of these."""
        if self._means is None:
            x, labels = self.memory.samples()
            if not labels:
                return torch.empty(0, dtype=torch.int64), torch.empty(0, 0)
            places = torch.tensor(self.labels.slots(labels), device=self.device)
            features = self.embed(Features(x))
            slots = torch.tensor(sorted(set(places.tolist())), device=self.device)
            means = torch.stack([features[places == slot].mean(0) for slot in slots])
            self._means = slots, normalize(means) if self.settings.original else means
        return self._means

    def _open_logits(self, x: Tensor) -> Tensor:
        return self.logits(x)[:, : self._outputs()]

    def _outputs(self) -> int:
        """The number of outputs that are used."""
        return max(self.settings.outputs, len(self.labels))

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Copy the means."""
        frozen._means = self.class_means() if self.labels else None

    def forget_class(self, slot: int) -> None:
        """Remove the old logits of its exemplars and of its output, too."""
        if len(self._old_logits):
            kept = self.memory.samples()[1]
            stays = torch.tensor([place != slot for place in self.labels.slots(kept)], dtype=torch.bool)
            others = torch.arange(self._old_logits.shape[1], device=self.device) != slot
            self._old_logits = self._old_logits[stays.to(self.device)][:, others]
        super().forget_class(slot)
        if slot < self._known:
            self._known -= 1
            if self._old is not None:
                self._old = copy.deepcopy(self._old)
                self._old.forget(slot, self._old.head.out_features - 1)
                self._old.requires_grad_(False)

    def memory_edited(self, kept: NDArray[np.int64]) -> None:
        """Keep the old logits of the exemplars that are left."""
        if len(self._old_logits):
            exemplars = torch.from_numpy(kept[kept < len(self._old_logits)]).to(self.device)
            self._old_logits = self._old_logits[exemplars]

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Add the other's samples to the current horizon and end it, so that all exemplars are selected again."""
        samples, owners = other.memory.stored()
        rows = torch.from_numpy(self.memory.admit(slots[owners])).to(self.device)
        self.memory.write(samples.to(self.device), rows)
        self._end_horizon()

    # Resources and state.

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r, of the old logits or the old network, and, beyond M, of all samples of the current task."""
        old = [] if self._old is None else [*self._old.parameters(), *self._old.buffers()]
        held = {"old network": sum(part.nbytes for part in old)} if self.settings.original else {}
        held = held or {"logits": self._old_logits.nbytes}
        return super().footprint() | held | {"horizon": self.memory.horizon_nbytes()}

    def extra_state(self) -> State:
        """The current task, and the old logits or the old network."""
        running = [] if self._running is None else [self._running]
        state = super().extra_state() | {
            "running": torch.tensor(running),
            "known": torch.tensor([self._known]),
        }
        if self._old is not None:
            return state | {f"old.{name}": part.clone() for name, part in self._old.state_dict().items()}
        return state | {"said": self._old_logits.clone()}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        self._running = next(iter(state["running"].tolist()), None)
        self._known = int(state["known"])
        weights = {name[4:]: part for name, part in state.items() if name.startswith("old.")}
        if not weights:
            self._old_logits = state["said"].to(self.device)
            return
        self._old = copy.deepcopy(self.network)
        assert isinstance(self._old, SoftmaxNetwork)
        outputs, inputs = weights["head.weight"].shape  # fewer than now, if there are new classes since
        self._old.head = nn.Linear(inputs, outputs, device=self.device)
        self._old.load_state_dict(weights)
        self._old.eval().requires_grad_(False)
