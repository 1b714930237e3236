"""Streaming linear discriminant analysis on fixed features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.arrays import in_float64
from everlearn.checkpoint import State
from everlearn.core.fixed_features import FixedFeatureLearner, FixedFeatureSettings
from everlearn.memory.class_means import ClassMeans

__all__ = ["SLDA", "SLDASettings"]


@dataclasses.dataclass(frozen=True)
class SLDASettings(FixedFeatureSettings):
    """SLDA's settings. Nothing is trained: learning rate, iterations and optimiser change nothing."""

    shrinkage: float = 1e-4
    """ε, the share of the identity in the covariance that is inverted"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("shrinkage", 0 < self.shrinkage <= 1, "above 0 and at most 1")


class SLDA(FixedFeatureLearner):
    """Deep streaming linear discriminant analysis: running class means, and one running covariance for all classes.

    Each sample updates the mean of its class and the covariance; predictions are linear, with the inverse of the
    covariance. It is meant for features of a pretrained model: `SLDA("identity")`, or with an `encoder`.

    >>> _ = torch.manual_seed(0)
    >>> y = torch.arange(200) % 2
    >>> x = torch.randn(200, 2) * torch.tensor([10.0, 0.1]) + y[:, None]  # only the second number tells them apart
    >>> learner = SLDA("identity")
    >>> learner.observe(x[:100], y[:100])
    >>> sum(a == b for a, b in zip(learner.predict(x[100:]), y[100:].tolist(), strict=True))
    100

    Hayes, T. L. and Kanan, C. Lifelong Machine Learning with Deep Streaming Linear Discriminant Analysis. CVPR
    Workshops 2020.
    """

    name = "slda"
    Settings = SLDASettings
    settings: SLDASettings
    class_means: ClassMeans
    _scatter: Tensor  # t Σ_t, `[d, d]`, of all samples counted
    _counted = 0.0  # t
    _linear: tuple[Tensor, Tensor] | None = (
        None  # weights and biases for predictions, until something changes
    )

    def add(self, features: Tensor, slots: Tensor) -> None:
        """Count samples one after another, as in the paper.

        Σ_{t+1} = (t Σ_t + Δ_t) / (t + 1) with Δ_t = t (z − μ_y)(z − μ_y)ᵀ / (t + 1), where μ_y is the mean of the
        class before z; then μ_y moves. The products of a batch are one product of matrices.
        """
        apart = torch.empty_like(features)
        means, counts = self.class_means.means.clone(), self.class_means.counts.clone()
        for i, slot in enumerate(slots.tolist()):
            apart[i] = features[i] - means[slot]
            counts[slot] += 1
            means[slot] += apart[i] / counts[slot]
        t = self._counted + torch.arange(len(slots), device=features.device)
        self._scatter = torch.addmm(self._scatter, (apart * (t / (t + 1))[:, None]).T, apart)
        self._counted += len(slots)
        self.class_means.means, self.class_means.counts = means, counts

    def must_be_finite(self) -> list[Tensor]:
        """The covariance, too."""
        return [*super().must_be_finite(), self._scatter.diagonal()]

    def scores(self, x: Tensor) -> Tensor:
        """wᶜ·f + bᶜ with wᶜ = Λ μ_c and bᶜ = −μ_c·Λ μ_c / 2, where Λ = ((1 − ε) Σ + ε I)⁻¹."""
        weights, biases = self._weights()
        return self.features(x) @ weights + biases

    def _weights(self) -> tuple[Tensor, Tensor]:
        if self._linear is None:
            shrinkage, means = self.settings.shrinkage, self.class_means.means
            covariance = (1 - shrinkage) * in_float64(self._scatter) / max(self._counted, 1)
            covariance.diagonal().add_(shrinkage)
            weights = torch.linalg.inv(covariance).to(means) @ means.T  # [d, classes]
            self._linear = weights, -(means.T * weights).sum(0) / 2
        return self._linear

    def invalidate(self) -> None:
        """Drop the weights: the statistics are about to change."""
        super().invalidate()
        self._linear = None

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network that gives this number of features."""
        super().install(network, features)
        self._scatter = torch.zeros(features, features, device=self.device)

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Count the other's samples, too; the covariance is that of both, each around its own means."""
        super().merge_from(other, slots)
        self._scatter = self._scatter + other._scatter.to(self.device)
        self._counted += other._counted

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Compute the weights now."""
        super().copy_for_snapshot(frozen)
        frozen._linear = self._weights() if self.labels else None

    def footprint(self) -> dict[str, int]:
        """Bytes by part."""
        held = {"covariance": self._scatter.nbytes} if self.network is not None else {}
        return super().footprint() | held

    def extra_state(self) -> State:
        """The covariance, too."""
        counted = torch.tensor(self._counted, dtype=torch.float64)
        return super().extra_state() | {"scatter": self._scatter.clone(), "counted": counted}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        super().restore_extra(state)
        scatter, counted = state["scatter"], float(state["counted"])
        if scatter.shape != self._scatter.shape or not counted >= 0:
            raise ValueError(
                f"its covariance is {list(scatter.shape)} of {counted} samples, "
                f"expected {list(self._scatter.shape)}"
            )
        self._scatter, self._counted = scatter.to(self._scatter), counted
