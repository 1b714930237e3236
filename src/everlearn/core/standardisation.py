"""Online standardisation: every feature with mean 0 and standard deviation 1 over the samples seen so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.arrays import as_arrays
from everlearn.checkpoint import State
from everlearn.networks import as_input
from everlearn.transaction import current

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Standardisation", "prepared_samples"]

MEMORY = 10_000  # samples: older ones fade, so that a scale that changes is followed
WILD = 20.0  # standard deviations; a value farther out counts as if it were there
LARGEST = 6.0  # standard deviations; what the network is given is at most this
WARM_UP = 20  # samples before which no value is called an outlier


class Standardisation:
    """Running mean and variance of every feature, and samples scaled by them.

    An outlier moves them no farther than one of 20 standard deviations would, and the network gets values of at
    most 6 in either direction. A feature that has been constant so far is only centred.

    count: how many samples were seen. mean, variance: of each feature, in float64.

    >>> scale = Standardisation((2,), torch.device("cpu"))
    >>> scale.update(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scale(torch.tensor([[3.0, 5.0]])).tolist()
    [[1.0, 0.0]]
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.count = 0
        precise = torch.float32 if device.type == "mps" else torch.float64  # which mps does not have
        self.mean = torch.zeros(shape, dtype=precise, device=device)
        self.variance = torch.zeros(shape, dtype=precise, device=device)
        self._factor = torch.ones(shape, dtype=precise, device=device)  # by which samples are scaled

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Add a batch; a transaction can undo it."""
        xp, (values, mean, variance) = as_arrays(as_input(x).to(self.mean), self.mean, self.variance)
        if self.count >= WARM_UP:
            limit = WILD * xp.sqrt(variance)
            limit = xp.where(limit > 0, limit, xp.inf)
            values = xp.maximum(xp.minimum(values, mean + limit), mean - limit)
        # The weighted mean and variance of both groups, as in Chan et al. 1983.
        size = len(values)
        share = max(size / (self.count + size), min(size / MEMORY, 1.0))
        new = values.sum(0) / size
        spread = ((values - new) ** 2).sum(0) / size
        apart = new - mean
        self._assign(
            torch.as_tensor(mean + share * apart),
            torch.as_tensor((1 - share) * (variance + share * apart * apart) + share * spread),
        )
        self.count += size

    def _assign(self, mean: Tensor, variance: Tensor) -> None:
        """Replace the tensors, so that a transaction can go back; a CUDA graph reads the same ones every time."""
        xp, (spread,) = as_arrays(variance)
        factor = torch.as_tensor(1 / xp.sqrt(xp.where(spread > 0, spread, 1.0)))
        if not mean.is_cuda:
            self.mean, self.variance, self._factor = mean, variance, factor
            return
        transaction = current()
        if transaction is not None:
            transaction.keep([self.mean, self.variance, self._factor])
        self.mean.copy_(mean)
        self.variance.copy_(variance)
        self._factor.copy_(factor)

    def __call__(self, x: Tensor) -> Tensor:
        """Samples as the network gets them, in float32."""
        return ((as_input(x) - self.mean) * self._factor).clamp_(-LARGEST, LARGEST).float()

    def scaled(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same for an array, on the CPU."""
        values: NDArray[np.float64] = (rows - self.mean.numpy()) * self._factor.numpy()
        np.minimum(values, LARGEST, out=values)
        np.maximum(values, -LARGEST, out=values)
        return values.astype(np.float32)

    def merge(self, other: Standardisation) -> None:
        """Add the samples that another one has seen."""
        both = self.count + other.count
        share = other.count / both if both else 0.0
        apart = other.mean.to(self.mean.device) - self.mean
        theirs = other.variance.to(self.mean.device)
        self._assign(
            self.mean + share * apart,
            (1 - share) * (self.variance + share * apart * apart) + share * theirs,
        )
        self.count = both

    def copy(self) -> Standardisation:
        """A copy."""
        new = Standardisation(tuple(self.mean.shape), self.mean.device)
        new.count = self.count
        new._assign(self.mean.clone(), self.variance.clone())
        return new

    def nbytes(self) -> int:
        """Bytes held."""
        return self.mean.nbytes + self.variance.nbytes

    def state(self) -> State:
        """Its tensors, by name."""
        return {
            "standardisation.count": torch.tensor(self.count),
            "standardisation.mean": self.mean.clone(),
            "standardisation.variance": self.variance.clone(),
        }

    def restore(self, state: State) -> None:
        """Load the tensors that `state` returned; raises a ValueError if they do not fit."""
        count, mean, variance = (state[f"standardisation.{name}"] for name in ("count", "mean", "variance"))
        fits = mean.shape == variance.shape == self.mean.shape and count.shape == ()
        if not fits or not _is_valid(int(count), mean, variance):
            raise ValueError("its standardisation has another shape than the samples, or invalid values")
        self.count = int(count)
        self._assign(mean.to(self.mean), variance.to(self.mean))


def _is_valid(count: int, mean: Tensor, variance: Tensor) -> Any:
    return (
        0 <= count < 2**62 and mean.isfinite().all() and variance.isfinite().all() and (variance >= 0).all()
    )


def prepared_samples(learner: Learner, x: Tensor) -> Tensor:
    """Samples as the network gets them: standardised, if the learner does that."""
    return x if learner.standardisation is None else learner.standardisation(x)
