"""OCM: online continual learning through mutual information maximisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, normalize

from everlearn.checkpoint import State
from everlearn.core.contrastive import ContrastiveSettings, install_projection, replay_by_class
from everlearn.core.images import SeveralViews
from everlearn.core.state import under
from everlearn.core.task_aware import TaskAwareLearner
from everlearn.losses.info_nce import class_info_nce, similarities_of, two_view_info_nce, version_owners
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks.frozen_copy import frozen_copy
from everlearn.networks.heads import ProjectedNetwork
from everlearn.training.strong_views import inner_rotations

__all__ = ["OCM"]


class OCM(TaskAwareLearner):
    """Maximises the mutual information between features and classes, and between old and new features.

    Every image comes in sixteen turned versions and a view of each. Contrastive losses compare those of B_n with each
    other and those of B_M with each other, in the sum of a projection and a random part of the features. From the
    second task on, the network of the end of the last task is kept: the projections and the logits of exemplars stay
    close to what it says, and the cross-entropy is that of exemplars alone. It is told t while it learns.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = OCM("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Guo, Y., Liu, B. and Zhao, D. Online Continual Learning through Mutual Information Maximization. ICML 2022.
    """

    name = "ocm"
    Settings = ContrastiveSettings
    settings: ContrastiveSettings
    Memory = ReservoirMemory
    networks = "one, and a teacher"
    images: SeveralViews
    _previous: ProjectedNetwork | None = None  # the network at the end of the last task

    def begin(self, x: Tensor) -> None:
        """Show the network the versions of each image, a view of each version, and two views of the image."""
        super().begin(x)
        versions = inner_rotations if self.settings.rotations else None
        self.images = SeveralViews(self.settings, x, self.device, views=3, versions=versions)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a projection beside the last layer."""
        install_projection(self, network, features)

    def replay_size(self, batch: int) -> int:
        """At most `per_class` exemplars for each class seen."""
        return replay_by_class(self, super().replay_size(batch))

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Two random starts of a part of the features, too."""
        wide = self.network.head.in_features - self.network.projection.out_features
        starts = torch.randint(wide + 1, (2,), generator=self.generator).numpy()
        return *super().draw_replay(batch), starts

    def forward_sizes(self, batch: int) -> set[int]:
        """The views of B_n pass by themselves in the first task, and with B_M later."""
        alone = self._previous is None or min(self.replay_size(batch), len(self.memory)) <= 1
        return {batch if alone else 2 * batch}

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step; x: `[copies, batch, ...]`, all versions, a view of each, two more views of the image."""
        old, old_slots, starts = replay
        versions = self.images.versions
        if self._previous is None or len(old_slots) <= self.may_reject:
            features, projections = self._embed(x[: 2 * versions].flatten(0, 1))
            loss = self._new_loss(similarities_of(projections, features, starts[0]), slots)
            self.descend(loss + cross_entropy(self.logits(x[2 * versions]), slots))
            return
        new = 2 * versions * len(slots)
        features, projections = self._embed(
            torch.cat([x[: 2 * versions].flatten(0, 1), old[: 2 * versions].flatten(0, 1)])
        )
        weight, temperature = self.settings.similarity, self.settings.temperature
        compared = similarities_of(projections[:new], features[:new], starts[0], weight)
        compared_old = similarities_of(projections[new:], features[new:], starts[1], weight)
        owners = version_owners(old_slots, versions)
        loss = self._new_loss(compared, slots) + class_info_nce(compared_old, owners.repeat(2), temperature)
        with torch.no_grad():
            before = normalize(self._previous.projection(self._previous.body(old[:versions].flatten(0, 1))))
            said = self._previous(old[2 * versions + 1])[:, : self.known]
        kept = projections[new : new + len(owners)] @ before.T
        loss = loss + class_info_nce(kept, owners, temperature)
        logits = self.logits(old[2 * versions])
        self.descend(loss + cross_entropy(logits, old_slots) + mse_loss(logits[:, : self.known], said))

    def _embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features and projections at unit length."""
        features = self.network.body(x)
        return normalize(features), normalize(self.network.projection(features))

    def _new_loss(self, similarities: Tensor, slots: Tensor) -> Tensor:
        owners = version_owners(slots, self.images.versions)
        return two_view_info_nce(similarities, owners, self.settings.temperature)

    # The network at the end of the last task.

    def end_task(self) -> None:
        """Keep a copy of the network."""
        super().end_task()
        self._previous = frozen_copy(self.network)

    def forget_class(self, slot: int) -> None:
        """Remove the logit of the copy, too."""
        old = slot < self.known
        super().forget_class(slot)
        if old and self._previous is not None:
            self._previous = frozen_copy(self._previous)
            with self.seeded():
                self._previous.forget(slot, self._previous.head.out_features - 1)
            self._previous.requires_grad_(False)

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r, and of the copy."""
        parts = [] if self._previous is None else list(self._previous.parameters())
        return super().footprint() | {"old network": sum(part.nbytes for part in parts)}

    def extra_state(self) -> State:
        """The copy, too."""
        state = super().extra_state()
        if self._previous is not None:
            weights = self._previous.state_dict()
            state |= {f"previous.{name}": part.clone() for name, part in weights.items()}
        return state

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        weights = under("previous.", state)
        if weights:
            copied: Any = frozen_copy(self.network)
            outputs, inputs = weights["head.weight"].shape  # fewer than now, if classes came since
            copied.head = nn.Linear(inputs, outputs, device="meta").to_empty(device=self.device)
            copied.load_state_dict(weights)
            self._previous = copied.requires_grad_(False)
