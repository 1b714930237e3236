"""CoPE: Continual Prototype Evolution."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from everlearn.arrays import Array, in_type_of, takes_arrays, unit_rows
from everlearn.core.class_means import prediction_prototypes
from everlearn.core.learned_prototypes import fit_with_prototypes
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import BalancedReplaySettings
from everlearn.core.whitening import whitened_scores
from everlearn.losses import Gradient, ppp_loss
from everlearn.memory.class_balanced import BalancedMemory
from everlearn.memory.labels import Label
from everlearn.memory.prototypes import Prototypes
from everlearn.networks import embedding_network, to_unit_length

__all__ = ["CoPE", "CoPESettings"]


@dataclasses.dataclass(frozen=True)
class CoPESettings(BalancedReplaySettings):
    """The settings of CoPE, with the paper's symbols."""

    memory_size: int = 2000
    """|M_r|, exemplars in the replay memory, shared equally by the classes seen"""
    temperature: float = 0.1
    """τ, the temperature of the PPP-loss"""
    momentum: float = 0.99
    """α, the momentum of the prototypes"""
    class_means: bool | None = None
    """the prototype of a class is the mean of all its features, which suits fixed ones; None: for embeddings"""
    whiten: bool | None = None
    """compare features by their covariance within classes, where prototypes are class means; None: for embeddings"""
    embedding: int | None = None
    """d, the size of the embedding; by default the network's own (MLP 100, slim ResNet18 256)"""
    renormalise: bool | None = None
    """prototypes have unit length after each update, as in the paper's text, not its released code; None: for rows"""
    pseudo_prototypes: bool | None = None
    """p̂, use the samples of a batch as proxies of their class in the loss; None: for all inputs but rows"""
    gradient: Gradient = "released"
    """where gradients flow through pseudo-prototypes: released (repellor only), full, or detached"""
    reference_batch: int | None = None
    """weight the negative pairs as if B had this many samples, so that the loss does not grow with the batch"""
    learn_prototypes: bool = False
    """prototypes follow the gradient of the cross-entropy over them, in place of the PPP-loss and the momentum"""
    recalibrate: bool = False
    """predict with prototypes computed from the memory, at the first prediction after each batch"""
    recalibrate_every: int = 1
    """batches after which these are computed again, at the next prediction"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("memory_size", self.memory_size >= 1, "at least 1")
        self._check("temperature", self.temperature > 0, "above 0")
        self._check("momentum", 0 <= self.momentum <= 1, "between 0 and 1")
        self._check("embedding", self.embedding is None or self.embedding >= 1, "at least 1")
        self._check("recalibrate_every", self.recalibrate_every >= 1, "at least 1")
        size = self.reference_batch
        self._check("reference_batch", size is None or size >= 1, "at least 1")
        self._check("turned", not self.turned or self.learn_prototypes, "0 unless learn_prototypes is set")
        self._check("gradient", self.gradient in get_args(Gradient), "released, full or detached")

    before: ClassVar[dict[str, Any]] = {"renormalise": True}


class CoPE(Learner):
    """Nearest-prototype prediction in a unit-length embedding, with prototypes that evolve with the stream.

    Each batch is joined with a class-balanced batch from the replay memory. The PPP-loss pulls samples towards the
    prototype of their class and away from the others, and the prototypes follow with high momentum.

    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CoPE("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']
    >>> learner.memory.counts()
    {'high': 5, 'low': 5}

    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution: Learning Online from Non-Stationary
    Data Streams. ICCV 2021.
    """

    name = "cope"
    Settings = CoPESettings
    Memory = BalancedMemory
    has_head = False
    weighs_samples = embeds_in_step = True  # the latter: `step` returns the embeddings of B before the step
    settings: CoPESettings
    memory: BalancedMemory
    prototype_memory: Prototypes

    # A batch, in the paper's order.

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        """One SGD step on the PPP-loss of B = B_n ∪ B_M; returns the embeddings of B before the step."""
        old, old_slots = replay
        both, slots = torch.cat([x, old]), torch.cat([slots, old_slots])
        weights = self.weights(len(x), len(old))
        if self.settings.learn_prototypes and not self.options.class_means:
            return fit_with_prototypes(self, both, slots, weights)
        prototypes, seen = self.prototype_memory.in_use()
        return self.fit_embedding(
            both,
            ppp_loss,
            weights,
            slots=slots,
            prototypes=prototypes,
            temperature=self.settings.temperature,
            seen=seen,
            pseudo_prototypes=self.options.pseudo_prototypes,
            gradient=self.settings.gradient,
            repellor=(self.settings.reference_batch or len(both)) / len(both),  # the weight of negative pairs
        )

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        """Equation 1: move the prototypes towards the mean features of all replayed samples and of the last B_n."""
        batch = len(plan.slots)
        if self.options.class_means:
            self.prototype_memory.add(outcomes[-1][:batch], plan.slots, self.options.whiten)
        if self.options.class_means or self.settings.learn_prototypes:
            return
        features = torch.cat([*(part[batch:] for part in outcomes[:-1]), outcomes[-1]])
        slots = torch.cat([*plan.old_slots[:-1], plan.slots, plan.old_slots[-1]])
        self.prototype_memory.move(features, slots, self.settings.momentum, self.options.renormalise)

    def features(self, x: Tensor) -> Tensor:
        """f_θ(x), of unit length."""
        return to_unit_length(self.predictor(x))[0]

    @takes_arrays
    def scores_of(self, output: Array) -> Array:
        """f·p^c/τ for each class seen; the nearest prototype has the largest score."""
        if self.options.whiten:
            return whitened_scores(self, output, self.settings.temperature)
        # The evolving p^c, unless settings ask for means of features in their place.
        prototypes = in_type_of(output, prediction_prototypes(self))
        return unit_rows(output) @ prototypes.T / self.settings.temperature

    @property
    def prototypes(self) -> dict[Label, Tensor]:
        """The evolving prototype p^c of each class seen; with `recalibrate`, predictions use others."""
        vectors = self.prototype_memory.vectors.clone() if self.classes else ()
        return dict(zip(self.classes, vectors, strict=False))

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """Build the named network; its output is the embedding."""
        return embedding_network(name, shape, self.settings.hidden, self.settings.embedding)

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network whose embeddings have this size."""
        self.use(network)
        self.prototype_memory = Prototypes(
            features, self.device, self.generator, self.settings.recalibrate_every > 1
        )
