"""Variational auto-encoders: a latent Gaussian, what it decodes to, and the bound on the evidence.

log p(x) ≥ E_q[log p(x | z)] − KL(q(z | x) ‖ p(z)), where q and p(z) are Gaussians without correlations.

Kingma, D. P. and Welling, M. Auto-Encoding Variational Bayes. ICLR 2014.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

__all__ = ["Decoder", "Gaussian", "Likelihood", "evidence_bound", "flat", "log_normal"]

Likelihood = Literal["bits", "grey", "real"]
"""The distribution of a value, given the decoder's output: Bernoulli with this log-odds (`bits`), or Gaussian with
variance 1 around its sigmoid (`grey`, for values from 0 to 1) or around the output itself (`real`)."""


def flat(x: Tensor) -> Tensor:
    """Samples as rows of numbers, the form that is decoded."""
    return x.reshape(len(x), -1).float()


class Gaussian(NamedTuple):
    """Gaussians without correlations, a row each.

    >>> import torch
    >>> one = Gaussian(torch.ones(1, 2), torch.zeros(1, 2))
    >>> one.divergence(), one.divergence(one)
    (tensor([1.]), tensor([0.]))
    """

    mean: Tensor
    log_variance: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """Samples of each, from standard normal noise of shape `[draws, rows or 1, d]`."""
        return self.mean + (self.log_variance / 2).exp() * noise

    def divergence(self, prior: Gaussian | None = None) -> Tensor:
        """KL(self ‖ prior), row by row; from the standard normal, if there is no other prior."""
        if prior is None:
            twice = self.log_variance.exp() + self.mean.square() - 1 - self.log_variance
        else:
            shift = (self.mean - prior.mean).square()
            ratio = self.log_variance - prior.log_variance
            twice = ratio.exp() + shift * (-prior.log_variance).exp() - 1 - ratio
        return twice.sum(1) / 2


class Decoder(nn.Module):
    """p(x | z): what a latent vector decodes to, and how likely samples are given it.

    latent: the size of z. shape: of a sample. likelihood: see `Likelihood`.
    hidden: units in each of two hidden layers; or, with `convolutional`, filters before the last layer, for
    images whose sides can be halved twice.
    """

    def __init__(
        self,
        latent: int,
        shape: tuple[int, ...],
        likelihood: Likelihood,
        hidden: int,
        convolutional: bool = False,
    ) -> None:
        super().__init__()
        self.likelihood = likelihood
        values = math.prod(shape)
        if convolutional:
            channels, height, width = shape
            quarter = (2 * hidden, height // 4, width // 4)
            layers: list[nn.Module] = [
                nn.Linear(latent, 4 * hidden),
                nn.ReLU(),
                nn.Linear(4 * hidden, math.prod(quarter)),
                nn.ReLU(),
                nn.Unflatten(1, quarter),
                nn.ConvTranspose2d(2 * hidden, hidden, 4, 2, 1),
                nn.ReLU(),
                nn.ConvTranspose2d(hidden, channels, 4, 2, 1),
                nn.Flatten(),
            ]
        else:
            layers = [
                nn.Linear(latent, hidden),
                nn.ReLU(),
                nn.Linear(hidden, hidden),
                nn.ReLU(),
                nn.Linear(hidden, values),
            ]
        self.layers = nn.Sequential(*layers)

    def forward(self, z: Tensor) -> Tensor:
        """The decoding of latent vectors, `[..., latent]` to `[..., values]`: before any sigmoid."""
        decoded: Tensor = self.layers(z.flatten(0, -2))
        return decoded.view(*z.shape[:-1], -1)

    def means(self, z: Tensor) -> Tensor:
        """The expected sample of each latent vector, as a row of values."""
        decoded: Tensor = self(z)
        return decoded if self.likelihood == "real" else decoded.sigmoid()

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z) of samples as rows, `[rows, values]`, given latents `[draws, rows, d]`: `[draws, rows]`."""
        decoded = self(z)
        if self.likelihood == "bits":
            targets = x.expand_as(decoded)
            return -binary_cross_entropy_with_logits(decoded, targets, reduction="none").sum(-1)
        means = decoded if self.likelihood == "real" else decoded.sigmoid()
        return log_normal((means - x).square().sum(-1), x.shape[1])


def log_normal(squares: Tensor, values: int) -> Tensor:
    """The log-density of a Gaussian with variance 1 at this squared distance, in this number of dimensions."""
    return -(squares + values * math.log(2 * math.pi)) / 2


def evidence_bound(
    x: Tensor, decoder: Decoder, posterior: Gaussian, noise: Tensor, prior: Gaussian | None = None
) -> Tensor:
    """The bound on log p(x) of samples as rows, its expectation the mean over the draws of `noise`: `[rows]`."""
    return decoder.log_likelihood(x, posterior.draw(noise)).mean(0) - posterior.divergence(prior)
