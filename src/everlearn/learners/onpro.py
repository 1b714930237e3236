"""OnPro: online prototype learning."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from everlearn.checkpoint import State
from everlearn.core.contrastive import ContrastiveSettings, install_projection, replay_by_class
from everlearn.core.images import ImageChanges, SeveralViews
from everlearn.core.task_aware import TaskAwareLearner
from everlearn.losses.info_nce import class_info_nce, similarities_of, two_view_info_nce, version_owners
from everlearn.losses.online_prototypes import class_pairs, mean_by_class, prototype_equilibrium_loss
from everlearn.memory.class_tables import draw_of_every_class
from everlearn.memory.reservoir import ReservoirMemory
from everlearn.networks import as_input
from everlearn.training.strong_views import inner_rotations
from everlearn.transaction import assign

__all__ = ["OnPro", "OnProSettings"]

FINE = 2**20  # how finely shares of a mixture are drawn


@dataclasses.dataclass(frozen=True)
class OnProSettings(ContrastiveSettings):
    """OnPro's settings; `augmentation` is that of all views."""

    prototype_temperature: float = 0.5
    """the temperature of the contrastive loss between prototypes"""
    any_mixed: float = 0.75
    """the share of exemplars that are mixed with any other; the rest are pairs of near classes"""
    mixed: float = 0.6
    """the probability that exemplars of any class are mixed in a step, and then that each is;
    and that a pair of classes is"""
    largest_share: float = 0.6
    """the largest share of another exemplar of any class"""
    concentration: float = 0.4
    """α of the Beta distribution of the shares in pairs of near classes"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("prototype_temperature", "concentration"):
            self._check(name, getattr(self, name) > 0, "above 0")
        for name in ("any_mixed", "mixed", "largest_share"):
            self._check(name, 0 <= getattr(self, name) <= 1, "between 0 and 1")


class OnPro(TaskAwareLearner):
    """Online prototype equilibrium and adaptive prototypical feedback, on top of OCM's contrastive losses.

    The mean projections of each class in the batch, and in the exemplars, attract those of another view and repel
    those of other classes. The exemplars of the next step are mixed, some of them in pairs of classes whose means are
    near: these are the classes that the network confuses. It is told t while it learns: the first task is learnt
    without replay, and the first batch of a task without mixing.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = OnPro("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Wei, Y. et al. Online Prototype Learning for Online Continual Learning. ICCV 2023.
    """

    name = "onpro"
    Settings = OnProSettings
    settings: OnProSettings
    Memory = ReservoirMemory
    _copies: SeveralViews  # of the batch and of the mixed exemplars
    _once: ImageChanges  # a view of the exemplars as they are
    _means: Tensor | None = None  # the mean projection of each class in the last replay, `[outputs, d]`

    def begin(self, x: Tensor) -> None:
        """Views are made in `step`, after mixing."""
        super().begin(x)
        versions = inner_rotations if self.settings.rotations else None
        self._copies = SeveralViews(self.settings, x, self.device, views=2, versions=versions)
        self._once, self.images = ImageChanges(self.settings, x, self.device), None

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a projection beside the last layer."""
        install_projection(self, network, features)
        size = self.network.projection.out_features
        self._means = torch.zeros(self.network.head.out_features, size, device=self.device)

    # What the host draws.

    def replay_size(self, batch: int) -> int:
        """At most `per_class` exemplars for each class seen; in the first task, for prototypes only, all."""
        size = super().replay_size(batch)
        return size if self.is_first_task else replay_by_class(self, size)

    def draw_replay(self, batch: int) -> tuple[NDArray[np.int64], ...]:
        """Rows and slots, two starts of a part of the features, what is mixed, and the numbers of all views.

        Nothing is mixed in the first task and in the first batch of a task.
        """
        rows, slots = super().draw_replay(batch)
        wide = self.network.head.in_features - self.network.projection.out_features
        starts = torch.randint(wide + 1, (2,), generator=self.generator).numpy()
        mixing = self.task_batches > 0 and not self.is_first_task and len(rows) > 1
        mixed = self._draw_mixing(len(rows)) if mixing else ()
        draws = (
            self._copies.draw(self.generator, 1, batch + len(rows)),
            self._once.draw(self.generator, 1, max(len(rows), 1)),
        )
        numbers = [part[0] for drawn in draws for part in drawn]
        return rows, slots, starts, *numbers, *mixed

    def _draw_mixing(self, count: int) -> tuple[NDArray[np.int64], ...]:
        """For mixtures of any exemplars: partners and shares. For pairs: keys, a table of exemplars, shares."""
        settings, outputs = self.settings, self.network.head.out_features
        first = int(count * settings.any_mixed)
        partners = torch.randperm(first, generator=self.generator)
        # One number says whether any are mixed, the others which of them.
        happens = torch.rand(1 + first, generator=self.generator) < settings.mixed
        shares = torch.rand(first, generator=self.generator) * settings.largest_share
        shares = (shares * (happens[0] & happens[1:]) * FINE).long()
        keys = torch.randint(2**40, (outputs * (outputs - 1) // 2,), generator=self.generator)
        rows, slots = draw_of_every_class(self.memory, outputs, count - first, self.generator)
        from scipy.special import betaincinv  # only here, since it takes a moment to import

        # Shares of a symmetric Beta distribution, by its inverse.
        uniform = torch.rand(count - first, generator=self.generator, dtype=torch.float64).numpy()
        drawn = betaincinv(settings.concentration, settings.concentration, uniform)
        pair_shares = (drawn * FINE).astype(np.int64)
        return partners.numpy(), shares.numpy(), keys.numpy(), rows, slots, pair_shares

    def forward_sizes(self, batch: int) -> set[int]:
        """The views of B_n pass by themselves in the first task, and with B_M later."""
        alone = self.is_first_task or min(self.replay_size(batch), len(self.memory)) <= 1
        return {batch if alone else 2 * batch}

    # The step.

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on the cross-entropy and the contrastive losses of samples and of prototypes."""
        old, old_slots, starts, *drawn = replay
        kinds = len(self._copies.changes)
        numbers, once, mixing = drawn[:kinds], drawn[kinds : 2 * kinds], drawn[2 * kinds :]
        replays = len(old_slots) > self.may_reject
        if self.is_first_task or not replays:
            copies, _ = self._copies.change(x, old, numbers, self.generator)
            loss, seen = self._contrast(copies, slots, starts[0], 1.0)
            loss = loss + cross_entropy(self.logits(copies[-1]), slots)
        else:
            mixed, others, shares = self._mix(as_input(old), old_slots, *mixing)
            copies, old_copies = self._copies.change(as_input(x), mixed, numbers, self.generator)
            loss, seen = self._contrast_both(copies, slots, old_copies, old_slots, others, shares, starts)
            logits = self.logits(old_copies[-1])
            each = [cross_entropy(logits, labels, reduction="none") for labels in others]
            loss = loss + ((1 - shares) * each[0] + shares * each[1]).mean()
        loss = loss + self._equilibrium(seen, slots)[0]
        if replays:
            view, _ = self._once.change(old, old[:0], once, self.generator)
            both = normalize(self._project(torch.cat([as_input(old), as_input(view)])))
            again, means = self._equilibrium(both.chunk(2), old_slots)
            loss = loss + again
            assert self._means is not None
            assign(self._means, slice(None), means.detach())
        self.descend(loss)

    def _project(self, x: Tensor) -> Tensor:
        projected: Tensor = self.network.projection(self.network.body(x))
        return projected

    def _mix(self, old: Tensor, slots: Tensor, *mixing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The exemplars of this step; the two classes of each, `[2, replayed]`; the share of the second."""
        if not mixing:
            return old, slots.expand(2, -1), torch.zeros(len(old), device=old.device)
        partners, shares, keys, table, table_slots, pair_shares = mixing
        first, count = len(partners), len(pair_shares)
        assert self._means is not None
        classes, pairs, some = class_pairs(self._means, keys, count)
        places = torch.arange(count, device=old.device)
        chosen = self.prepared(as_input(self.memory.recall(table[classes, places])))  # [2, count, ...]
        applied = some & (keys[pairs] % FINE < self.settings.mixed * FINE)
        share = torch.cat([shares, pair_shares * applied]) / FINE
        alone = old[first:].expand_as(chosen)
        ones = torch.where(_each(some, chosen[0]), chosen, alone)
        ends = torch.cat([torch.stack([old[:first], old[partners]]), ones], dim=1)
        owners = torch.where(some, table_slots[classes, places], slots[first:].expand(2, -1))
        owners = torch.cat([torch.stack([slots[:first], slots[partners]]), owners], dim=1)
        weight = _each(share, ends[0]).to(ends.dtype)
        return (1 - weight) * ends[0] + weight * ends[1], owners, share

    def _contrast(self, copies: Tensor, slots: Tensor, start: Tensor, weight: float) -> tuple[Tensor, Any]:
        """The contrastive loss of B_n by itself, and the projections of its images and of a view of each."""
        versions = self._copies.versions
        features = self.network.body(copies[: 2 * versions].flatten(0, 1))
        projections = normalize(self.network.projection(features))
        loss = self._new_loss(similarities_of(projections, normalize(features), start, weight), slots)
        return loss, self._plain(projections, len(slots))

    def _contrast_both(
        self, copies: Tensor, slots: Tensor, old: Tensor, old_slots: Tensor, *rest: Tensor
    ) -> tuple[Tensor, Any]:
        """The same of B_n and of the mixed exemplars, which pass the network together."""
        others, shares, starts = rest
        versions, weight = self._copies.versions, self.settings.similarity
        new = 2 * versions * len(slots)
        together = torch.cat([copies[: 2 * versions].flatten(0, 1), old[: 2 * versions].flatten(0, 1)])
        features = self.network.body(together)
        projections, features = normalize(self.network.projection(features)), normalize(features)
        compared = similarities_of(projections[:new], features[:new], starts[0], weight)
        compared_old = similarities_of(projections[new:], features[new:], starts[1], weight)
        # A mixture of two classes is a class of its own.
        own = self.network.head.out_features + torch.arange(len(shares), device=shares.device)
        owners = torch.where((shares > 0) & (others[0] != others[1]), own, others[0])
        owners = version_owners(owners, versions).repeat(2)
        loss = self._new_loss(compared, slots)
        loss = loss + class_info_nce(compared_old, owners, self.settings.temperature)
        return loss, self._plain(projections[:new], len(slots))

    def _plain(self, projections: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """The projections of the images as they are, and of a view of each."""
        half = len(projections) // 2
        return projections[:batch], projections[half : half + batch]

    def _new_loss(self, similarities: Tensor, slots: Tensor) -> Tensor:
        owners = version_owners(slots, self._copies.versions)
        return two_view_info_nce(similarities, owners, self.settings.temperature)

    def _equilibrium(self, views: Sequence[Tensor], slots: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of the prototypes of two views, and their mean."""
        outputs = self.network.head.out_features
        (one, present), (other, _) = (mean_by_class(view, slots, outputs) for view in views)
        loss = prototype_equilibrium_loss(one, other, present, self.settings.prototype_temperature)
        return loss, (one + other) / 2

    def learnt_tensors(self) -> list[Tensor]:
        """The means, too."""
        assert self._means is not None
        return [*super().learnt_tensors(), self._means]

    # Classes and state.

    def open_classes(self, classes: int) -> None:
        """Make room for the means of more classes."""
        super().open_classes(classes)
        assert self._means is not None
        more = self.network.head.out_features - len(self._means)
        if more:
            self._means = torch.cat([self._means, self._means.new_zeros(more, self._means.shape[1])])
            self.tensors_replaced()

    def forget_class(self, slot: int) -> None:
        """Remove its mean, too."""
        super().forget_class(slot)
        assert self._means is not None
        left = torch.cat([self._means[:slot], self._means[slot + 1 :]])[: self.network.head.out_features]
        self._means = left.new_zeros(self.network.head.out_features, left.shape[1])
        self._means[: len(left)] = left
        self.tensors_replaced()

    def footprint(self) -> dict[str, int]:
        """Bytes of M_r and of the means."""
        return super().footprint() | {"means": 0 if self._means is None else self._means.nbytes}

    def extra_state(self) -> State:
        """The means, too."""
        assert self._means is not None
        return super().extra_state() | {"means": self._means.clone()}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        assert self._means is not None
        self._means.copy_(state["means"].to(self.device))


def _each(values: Tensor, like: Tensor) -> Tensor:
    """Values for samples, `[samples]`, that fit samples `[samples, ...]`."""
    return values.view(-1, *[1] * (like.dim() - 1))
