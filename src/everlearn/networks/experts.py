"""Experts, each a generative and a discriminative model, as columns of a progressive network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from everlearn.networks.autoencoder import Decoder, Gaussian, Likelihood, evidence_bound, flat
from everlearn.networks.progressive import (
    FILTERS,
    Column,
    convolutional_column,
    mlp_column,
    own_column,
    residual_column,
)

__all__ = ["NEVER", "Expert", "Experts", "Features"]

LARGEST_LOG = 20.0  # of a variance
NEVER = -1e4  # log-probability of a class that is newer than the expert

Features = list[Tensor]
"""Of all columns up to one, stage by stage."""


class Generative(nn.Module):
    """p(x), by a variational auto-encoder."""

    def __init__(self, encoder: Column, latent: int, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.posterior = nn.Linear(encoder.features, 2 * latent)

    def forward(self, x: Tensor, noise: Tensor, before: Features) -> tuple[Tensor, Features]:
        """The bound on log p(x), `[samples]`, and the features. before: those of the predecessors."""
        after = self.encoder(x, before)
        mean, log_variance = self.posterior(after[-1]).chunk(2, 1)
        # Keep the variance within float32, also for samples far from the training data.
        posterior = Gaussian(mean, log_variance.clamp(-LARGEST_LOG, LARGEST_LOG))
        return evidence_bound(flat(x), self.decoder, posterior, noise), after


class Discriminative(nn.Module):
    """p(y | x), over the classes seen when the expert was added."""

    def __init__(self, body: Column, classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(body.features, classes)

    def forward(self, x: Tensor, before: Features) -> tuple[Tensor, Features]:
        """log p(y | x), `[samples, classes]`, and the features. before: those of the predecessors."""
        after = self.body(x, before)
        return self.head(after[-1]).log_softmax(1), after


class Expert(nn.Module):
    """One expert: p(x) and p(y | x)."""

    def __init__(self, generative: Generative, discriminative: Discriminative) -> None:
        super().__init__()
        self.generative, self.discriminative = generative, discriminative

    @property
    def classes(self) -> int:
        """The number of classes seen when it was added."""
        return self.discriminative.head.out_features


class Experts(nn.Module):
    """Experts in the order in which they were added, for samples of one shape.

    name: the network's name, which determines the type of the columns.
    own: instead, a user's network that the columns copy, and its number of features.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        likelihood: Likelihood,
        name: str = "mlp",
        own: tuple[nn.Module, int] | None = None,
    ) -> None:
        super().__init__()
        if name == "slim-resnet18" and (min(shape[1:]) < 16 or shape[1] % 4 or shape[2] % 4):
            raise ValueError(
                f"the experts take images of at least 16 x 16 whose sides are multiples of 4, not {list(shape)}"
            )
        self.shape, self.likelihood, self.name = shape, likelihood, name
        self.template = None if own is None else own[0]
        self.template_features = 0 if own is None else own[1]
        self.all = nn.ModuleList()

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Expert]:
        return iter(cast(Iterable[Expert], self.all))

    def grow(self, hidden: int, added: int, latent: int, classes: int) -> Expert:
        """Add an expert for this many classes. hidden, added: units of an MLP, in the first and in later experts."""
        number, shape = len(self), self.shape
        convolutional = self.template is None and self.name == "slim-resnet18"
        if self.template is not None:
            encoder, body = (own_column(number, self.template, self.template_features) for _ in range(2))
        elif convolutional:
            encoder, body = convolutional_column(number, shape), residual_column(number, shape)
        else:
            encoder, body = (mlp_column(number, shape, hidden, added) for _ in range(2))
        units = FILTERS[0] if convolutional else hidden
        decoder = Decoder(latent, shape, self.likelihood, units, convolutional)
        expert = Expert(Generative(encoder, latent, decoder), Discriminative(body, classes))
        self.all.append(expert)
        return expert

    def log_probabilities(self, x: Tensor, noise: Tensor, classes: int) -> tuple[Tensor, Tensor]:
        """Bounds on log p(x), `[samples, experts]`, and log p(y | x), `[samples, experts, classes]`."""
        bounds, posteriors = [x.new_zeros(len(x), 0)], [x.new_zeros(len(x), 0, classes)]
        generative: Features = []
        discriminative: Features = []
        for expert in self:
            bound, after = expert.generative(x, noise, generative)
            generative = [part.detach() for part in after]
            logs, after = expert.discriminative(x, discriminative)
            discriminative = [part.detach() for part in after]
            bounds.append(bound[:, None])
            posteriors.append(pad(logs, (0, classes - logs.shape[1]), value=NEVER)[:, None])
        return torch.cat(bounds, 1), torch.cat(posteriors, 1)

    @torch.no_grad()
    def features(self, x: Tensor) -> tuple[Features, Features]:
        """The features of all generative and of all discriminative columns."""
        generative: Features = []
        discriminative: Features = []
        for expert in self:
            generative = expert.generative.encoder(x, generative)
            discriminative = expert.discriminative.body(x, discriminative)
        return generative, discriminative
