"""RanPAC: random projection and ridge regression on fixed features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.checkpoint import State
from everlearn.core.fixed_features import FixedFeatureLearner, FixedFeatureSettings
from everlearn.core.state import under
from everlearn.memory.class_means import ClassMeans

__all__ = ["RanPAC", "RanPACSettings"]

RIDGES = tuple(10.0**power for power in range(-8, 9))  # the paper's candidates
HELD_OUT = 0.2  # the share of samples on which the ridge is chosen, as in the paper
FIRST, GROWTH = 200, 1.5  # samples when the ridge is chosen, and how many times as many until the next time
BLOCK = 256  # samples whose products are added to the Gram matrices together
LARGEST = 1e38  # the ridge that is tried last; scores that need a larger one are NaN
TEMPERATURE = 0.1  # of the probabilities: outputs are near 0 or 1


@dataclasses.dataclass(frozen=True)
class RanPACSettings(FixedFeatureSettings):
    """RanPAC's settings. Nothing is trained by gradients: learning rate and optimiser change nothing."""

    projection: int = 2000
    """M, random features; the paper has 10,000, which take 800 MB"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("projection", self.projection >= 1, "at least 1")


class RanPAC(FixedFeatureLearner):
    """Ridge regression of the classes on random features, h = ReLU(f W) with a random matrix W.

    Only sums over samples are stored: the Gram matrix of h and the sum of h of each class. The ridge λ is the one of
    10⁻⁸, …, 10⁸ with the smallest squared error on held-out samples, a random fifth. It is chosen when the stream has
    grown by half; predictions use the sums of all samples. The paper's adaptation of the network on the first
    task is left out. It is meant for features of a pretrained model: `RanPAC("identity")`, or with an `encoder`.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(200, 2)
    >>> y = (x[:, 0] * x[:, 1] > 0).int()  # no line divides these classes
    >>> learner = RanPAC("identity", projection=200)
    >>> learner.observe(x[:150], y[:150])
    >>> sum(a == b for a, b in zip(learner.predict(x[150:]), y[150:].tolist(), strict=True)) > 45
    True

    McDonnell, M. D. et al. RanPAC: Random Projections and Pre-trained Models for Continual Learning. NeurIPS 2023.
    """

    name = "ranpac"
    Settings = RanPACSettings
    settings: RanPACSettings
    class_means: ClassMeans  # of the random features of the samples that are not held out
    _held_out: ClassMeans | None = None  # the same of those that are
    _grams: Tensor  # HᵀH of both, `[2, M, M]`
    _waiting: tuple[
        Tensor, Tensor
    ]  # random features that are not in the Gram matrices yet, and which are held out
    _ridge = 0.0  # λ; 0 before it is chosen
    _chosen_at = 0.0  # samples, when it was
    _weights: Tensor | None = None  # for predictions, until something changes

    def add(self, features: Tensor, slots: Tensor) -> None:
        """Add a batch to the sums, and choose the ridge again if there are enough new samples."""
        assert self._held_out is not None
        random = self._random(features)
        held = (torch.rand(len(slots), generator=self.generator) < HELD_OUT).to(self.device)
        self.class_means.add(random[~held], slots[~held])
        self._held_out.add(random[held], slots[held])
        before, which = self._waiting
        self._waiting = torch.cat([before, random]), torch.cat([which, held])
        grown = self._samples() >= max(GROWTH * self._chosen_at, FIRST)
        if grown or len(self._waiting[1]) >= BLOCK:
            self._grams, self._waiting = self._all_grams(), (random[:0].clone(), held[:0].clone())
        if grown:
            self._ridge, self._chosen_at = self._best_ridge(), self._samples()

    def must_be_finite(self) -> list[Tensor]:
        """The Gram matrices, and what will be added to them, too."""
        assert self._held_out is not None
        grams = self._grams.diagonal(dim1=1, dim2=2)
        return [*super().must_be_finite(), self._held_out.means, grams, self._waiting[0].square()]

    def _random(self, features: Tensor) -> Tensor:
        return torch.relu(features @ self._projection)

    def _samples(self) -> float:
        assert self._held_out is not None
        return float(self.class_means.counts.sum() + self._held_out.counts.sum())

    def _all_grams(self) -> Tensor:
        """The Gram matrices of the samples that are not held out, and of those that are."""
        random, held = self._waiting
        if not len(held):
            return self._grams
        return torch.stack(
            [
                torch.addmm(gram, part.T, part)
                for gram, part in zip(self._grams, (random[~held], random[held]), strict=True)
            ]
        )

    def _best_ridge(self) -> float:
        """The candidate with the smallest squared error on held-out samples, tr WᵀGW − 2 tr WᵀC + n."""
        assert self._held_out is not None
        fitted, other = self._grams
        sums = _sums(self._held_out)
        errors = {}
        for ridge in RIDGES:
            weights = _solve(fitted, _sums(self.class_means), ridge)
            if weights is not None:
                error = float((weights * (other @ weights)).sum() - 2 * (weights * sums).sum())
                errors[ridge] = error if np.isfinite(error) else np.inf
        return min(errors, key=errors.__getitem__, default=self._ridge)

    def scores(self, x: Tensor) -> Tensor:
        """h W for each class seen, where W = (HᵀH + λI)⁻¹ HᵀY."""
        return self._random(self.features(x)) @ self._fitted() / TEMPERATURE

    def _fitted(self) -> Tensor:
        if self._weights is None:
            assert self._held_out is not None
            gram = self._all_grams().sum(0)
            ridge = self._ridge or float(gram.diagonal().mean()) or 1.0
            sums = _sums(self.class_means) + _sums(self._held_out)
            found = _solve(gram, sums, ridge)
            while found is None and ridge < LARGEST:  # rounding made the matrix indefinite
                ridge = 10 * ridge
                found = _solve(gram, sums, ridge)
            self._weights = torch.full_like(sums, torch.nan) if found is None else found
        return self._weights

    def invalidate(self) -> None:
        """Drop the weights: the sums are about to change."""
        super().invalidate()
        self._weights = None

    # Set-up, classes and state.

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network that gives this number of features; the seed determines the projection."""
        self.use(network)
        size = self.settings.projection
        generator = torch.Generator().manual_seed(self.seed)
        self._projection = torch.randn(features, size, generator=generator).to(self.device)
        self.class_means, self._held_out = (ClassMeans(size, self.device) for _ in range(2))
        self._grams = torch.zeros(2, size, size, device=self.device)
        nothing = torch.zeros(0, size, device=self.device)
        self._waiting = nothing, torch.zeros(0, dtype=torch.bool, device=self.device)

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        super().open_classes(classes)
        if self._held_out is not None:
            self._held_out.open_classes(classes)

    def forget_class(self, slot: int) -> None:
        """Remove the sums of a class; its samples stay in the Gram matrix, which has no classes."""
        super().forget_class(slot)
        if self._held_out is not None:
            self._held_out.forget(slot)

    def check_merge(self, other: Any) -> None:
        """Raise a ValueError if the other has another projection."""
        if other.seed != self.seed:
            raise ValueError(
                "RanPAC.merge takes a learner with the same seed, which determines the projection: "
                f"{self.seed} here, {other.seed} there"
            )

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Add the sums of the other, and choose the ridge again."""
        super().merge_from(other, slots)
        assert self._held_out is not None
        self._held_out.merge(other._held_out, slots)
        self._grams = self._all_grams() + other._all_grams().to(self.device)
        self._waiting = self._waiting[0][:0].clone(), self._waiting[1][:0].clone()
        self._ridge, self._chosen_at = self._best_ridge(), self._samples()

    def changing_parts(self) -> list[object]:
        """The objects whose attributes change while learning."""
        return [*super().changing_parts(), *([] if self._held_out is None else [self._held_out])]

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Compute the weights now."""
        super().copy_for_snapshot(frozen)
        frozen._weights = self._fitted() if self.labels else None

    def footprint(self) -> dict[str, int]:
        """Bytes by part."""
        if self._held_out is None:
            return super().footprint()
        tensors = (self._projection, self._grams, *self._waiting)
        return super().footprint() | {"sums": self._held_out.nbytes() + sum(part.nbytes for part in tensors)}

    def extra_state(self) -> State:
        """The sums of held-out samples, the Gram matrices and the ridge, too."""
        assert self._held_out is not None
        return super().extra_state() | {
            **{f"held_out.{name}": part for name, part in self._held_out.state().items()},
            "grams": self._grams.clone(),
            "waiting": self._waiting[0].clone(),
            "waiting.held_out": self._waiting[1].clone(),
            "ridge": torch.tensor([self._ridge, self._chosen_at], dtype=torch.float64),
        }

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        assert self._held_out is not None
        self._held_out.restore(under("held_out.", state))
        grams, random, held = state["grams"], state["waiting"], state["waiting.held_out"]
        ridge, chosen_at = state["ridge"].tolist()
        shapes_fit = grams.shape == self._grams.shape and random.shape == (
            len(held),
            self.settings.projection,
        )
        if not shapes_fit or held.dtype != torch.bool or not (ridge >= 0 and chosen_at >= 0):
            raise ValueError("its Gram matrices, waiting samples or ridge are not valid")
        self._grams, self._waiting = grams.to(self._grams), (random.to(self._grams), held.to(self.device))
        self._ridge, self._chosen_at = ridge, chosen_at


def _sums(held: ClassMeans) -> Tensor:
    """The sum of the random features of each class, `[M, classes]`."""
    return (held.means * held.counts[:, None]).T


def _solve(gram: Tensor, sums: Tensor, ridge: float) -> Tensor | None:
    """(G + λI)⁻¹ C; None if G + λI is not positive definite in this precision."""
    regularised = gram.clone()
    regularised.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(regularised)
    return None if bool(failed) else torch.cholesky_solve(sums, factor)
