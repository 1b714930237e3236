"""CN-DPM: a mixture of experts that grows when no expert explains the data."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from everlearn.checkpoint import State
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import Settings
from everlearn.memory.labels import Label
from everlearn.memory.short_term import ShortTermMemory
from everlearn.networks import as_input, truncate, trunk
from everlearn.networks.autoencoder import Likelihood, flat, log_normal
from everlearn.networks.experts import Expert, Experts
from everlearn.training.adam import Adam
from everlearn.training.passes import NotFinite, gradients_of
from everlearn.transaction import on_undo

__all__ = ["CNDPM", "CNDPMSettings"]

SLEEP_BATCH = 50
ASSIGNMENT_TEMPERATURE = 0.01  # of the classifiers when samples are assigned to experts
CLIP = 0.5  # the largest absolute value of an entry of a gradient
DECAY = 1e-5  # weight decay in sleep
LEAST_USAGE = 0.1  # the least sum of responsibilities in a batch for which an expert is trained


@dataclasses.dataclass(frozen=True)
class CNDPMSettings(Settings):
    """The settings of CN-DPM; where no benchmark is named, the defaults are Split-MNIST's."""

    learning_rate: float = 1e-4
    """step size of Adam, for the classifiers"""
    generative_learning_rate: float = 4e-4
    """step size of Adam, for the auto-encoders"""
    awake_factor: float = 1.0
    """factor of both step sizes after sleep"""
    hidden: int = 64
    """units in each hidden layer of the first expert, where the network is the MLP"""
    added: int = 16
    """units in each hidden layer that a later expert adds"""
    latent: int = 16
    """size of the latent vector z"""
    draws: int = 16
    """draws of z for each sample"""
    log_concentration: float = -400.0
    """log α of the Dirichlet process: the higher, the sooner samples go to a new expert"""
    short_term_memory: int = 500
    """unexplained samples that are collected before a new expert is trained"""
    generative_steps: int = 8000
    """steps of a new expert's auto-encoder in sleep"""
    discriminative_steps: int = 2000
    """steps of a new expert's classifier in sleep"""
    original: bool = False
    """as published: no predictions by waiting samples, and the rest of a batch is not judged again after sleep"""

    optimizer: str = "adam"
    """always Adam"""

    trains_with = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("generative_learning_rate", self.generative_learning_rate > 0, "above 0")
        self._check("awake_factor", self.awake_factor > 0, "above 0")
        self._check("log_concentration", math.isfinite(self.log_concentration), "a finite number")
        for name in (field.name for field in dataclasses.fields(self) if type(field.default) is int):
            self._check(name, getattr(self, name) >= 1, "at least 1")


class CNDPM(Learner):
    """Continual neural Dirichlet process mixture: grows an expert for data that no expert explains.

    A sample that no expert explains is stored in the short-term memory. When that is full, the learner sleeps: a new
    expert is trained on it, and it is emptied. All other samples train the responsible experts. Samples in the
    short-term memory are used for predictions, too: each is the centre of a Gaussian with the weight of one sample
    (not with `original=True`).

    >>> x = torch.randn(40, 8) + 3 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> short = {"short_term_memory": 20, "generative_steps": 100, "discriminative_steps": 100}
    >>> learner = CNDPM("mlp", **short, learning_rate=0.01, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4]), len(learner.experts)
    (['high', 'low', 'high', 'low'], 1)

    Lee, S. et al. A Neural Dirichlet Process Mixture Model for Task-Free Continual Learning. ICLR 2020.
    """

    name = "cn-dpm"
    standardises = False  # its experts model the density of samples as they come
    can_forget = False
    has_head = False
    tensors_alone = False  # the assignment of samples decides what is computed, and experts are added
    Settings = CNDPMSettings
    settings: CNDPMSettings
    network: Experts | None

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        self._optimisers: list[tuple[Adam, Adam]] = []  # of each expert's generative and discriminative part
        self._counts = torch.zeros(0, device=self.device)  # samples that each expert is responsible for
        self.short_term = ShortTermMemory(0, torch.zeros(0), self.device)

    @property
    def experts(self) -> list[Expert]:
        """The experts, in the order in which they were added."""
        return [] if self.network is None else list(self.network)

    # Awake: each sample trains the experts that explain it, or is stored.

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, the seed of each iteration's noise, and the samples that may be stored."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        seeds = torch.randint(2**62, (self.settings.iterations,), generator=self.generator).numpy()
        return Plan(slots, keep=np.arange(len(slots)) if keep else None, seeds=seeds)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """All that is done with one batch."""
        slots, seeds = plan.slots, plan.seeds.tolist()
        while len(x):
            for seed in seeds:
                responsibilities = self.step(x, slots, self._noise(seed, len(x)))
            if plan.keep is None:
                return
            self._counts = self._counts + responsibilities.sum(0)
            if not bool(self._counts.isfinite().all()):
                raise NotFinite
            unexplained = responsibilities.sum(1) == 0
            x, slots = x[unexplained], slots[unexplained]
            while len(x):
                taken = self.short_term.add(x, slots)
                if self.short_term.full:
                    self._sleep()
                x, slots = x[taken:], slots[taken:]
                if not self.settings.original:
                    break  # the new expert may explain the rest

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        """Train the experts on the samples that they are responsible for, with the given noise.

        Returns the responsibilities, `[samples, experts]`: a row of zeros for a sample that no expert explains.
        """
        assert self.network is not None
        x = as_input(x)
        bounds, classes = self.network.log_probabilities(x, replay[0], len(self.labels))
        places = slots[:, None, None].expand(-1, bounds.shape[1], 1)
        with torch.no_grad():
            # log n_k + log p_k(x) + log p_k(y | x), the last at a low temperature, so that errors count more
            sharpened = (classes / ASSIGNMENT_TEMPERATURE).log_softmax(2).gather(2, places)[..., 0]
            joint = torch.cat([self._joint_of_none(x), self._counts.log() + bounds + sharpened], 1)
            explained = joint.argmax(1) > 0
            responsibilities = joint[:, 1:].softmax(1) * explained[:, None]
            used = (responsibilities.sum(0) > LEAST_USAGE).nonzero().flatten().tolist()
        if used:
            losses = -(responsibilities * (bounds + classes.gather(2, places)[..., 0])).sum(0)
            adams = [adam for k in used for adam in self._optimisers[k]]
            parameters = [part for adam in adams for part in adam.parameters]
            gradients = iter(gradients_of(losses[used].sum(), parameters))
            for adam in adams:
                adam.step([next(gradients) for _ in adam.parameters])
        return responsibilities

    def _joint_of_none(self, x: Tensor) -> Tensor:
        """log α + log p(x) + log p(y | x) of an untrained expert: the middle of the range, uniform over classes."""
        middle = 0.5 if self.sample_type == torch.uint8 else 0.0
        squares = (flat(x) - middle).square().sum(1, keepdim=True)
        known = self.settings.log_concentration - math.log(len(self.labels))
        return known + log_normal(squares, flat(x).shape[1])

    def _noise(self, source: int | torch.Generator, samples: int) -> Tensor:
        """Noise for draws of z, `[draws, samples, latent]`. source: a generator, or the seed of one."""
        if isinstance(source, int):
            source = torch.Generator(self.device).manual_seed(source)
        shape = (self.settings.draws, samples, self.settings.latent)
        return torch.randn(shape, generator=source, device=self.device)

    # Asleep: the short-term memory becomes an expert.

    def _sleep(self) -> None:
        """Train a new expert on the short-term memory, and empty it."""
        assert self.network is not None
        x, slots = as_input(self.short_term.samples), self.short_term.slots
        generative, discriminative = self.network.features(x)  # the earlier experts do not change
        expert, (first, second) = self._add_expert(len(self.labels))
        seed = int(torch.randint(2**62, (), generator=self.generator))
        randomness = torch.Generator(self.device).manual_seed(seed)
        generative_steps = self.settings.generative_steps
        steps = generative_steps + self.settings.discriminative_steps
        places = torch.randint(len(x), (steps, SLEEP_BATCH), generator=self.generator).to(self.device)
        expert.train()
        for drawn in places[:generative_steps]:
            noise = self._noise(randomness, SLEEP_BATCH)
            bounds, _ = expert.generative(x[drawn], noise, [part[drawn] for part in generative])
            first.descend(-bounds.mean())
        for drawn in places[generative_steps:]:
            logs, _ = expert.discriminative(x[drawn], [part[drawn] for part in discriminative])
            second.descend(-logs.gather(1, slots[drawn, None]).mean())
        self._wake()
        self._counts = torch.cat([self._counts, self._counts.new_tensor([float(len(x))])])
        self.short_term.clear()

    def _add_expert(self, classes: int) -> tuple[Expert, tuple[Adam, Adam]]:
        """Add an expert; returns it and the optimisers of its two parts."""
        assert self.network is not None
        settings = self.settings
        experts, known = self.network.all, len(self.network)
        on_undo(lambda: truncate(experts, known))
        with self.seeded():
            expert = self.network.grow(settings.hidden, settings.added, settings.latent, classes)
        expert.to(self.device)
        first = Adam(_trained(expert.generative), settings.generative_learning_rate, DECAY, CLIP)
        second = Adam(_trained(expert.discriminative), settings.learning_rate, DECAY, CLIP)
        self._optimisers = [*self._optimisers, (first, second)]
        return expert, (first, second)

    def _wake(self) -> None:
        """Set the newest expert to the step sizes after sleep, with batch norm in evaluation mode."""
        self.experts[-1].eval()
        for adam in self._optimisers[-1]:
            adam.learning_rate *= self.settings.awake_factor
            adam.decay = 0.0

    # Predicting.

    def scores(self, x: Tensor) -> Tensor:
        """log p(x, y), up to a constant, of the mixture of all experts and the short-term memory."""
        assert self.network is not None
        noise = self._noise(self.seed, 1)  # the same for all samples and all predictions
        bounds, classes = self.network.log_probabilities(x, noise, len(self.labels))
        known = ((self._counts.log() + bounds)[..., None] + classes).logsumexp(1)
        if self.settings.original or not len(self.short_term):
            return known if self.experts else torch.zeros_like(known)
        return torch.logaddexp(known, self._joint_of_waiting(flat(x)))

    def _joint_of_waiting(self, x: Tensor) -> Tensor:
        """The same of the short-term memory: each sample is the centre of a Gaussian of the experts' variance."""
        centres = flat(as_input(self.short_term.samples))
        near = log_normal(torch.cdist(x, centres).square(), x.shape[1])  # [samples, waiting]
        nearest = near.amax(1, keepdim=True)
        owners = one_hot(self.short_term.slots, len(self.labels)).float()
        return ((near - nearest).exp() @ owners).log() + nearest

    def features(self, x: Tensor) -> Tensor:
        """The features of all classifiers; before the first expert, the sample itself."""
        assert self.network is not None
        return self.network.features(x)[1][-1] if self.experts else flat(x)

    def changing_parts(self) -> list[object]:
        """The short-term memory and the optimisers, too."""
        optimisers = [adam for pair in self._optimisers for adam in pair]
        return [*super().changing_parts(), self.short_term, *optimisers]

    def prepare_network(self) -> None:
        """Nothing to do: the experts stay in evaluation mode, except a new one in sleep."""

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Copy the counts and the short-term memory."""
        frozen._counts, frozen._optimisers = self._counts.clone(), []
        frozen.short_term = copy.deepcopy(self.short_term)

    # The first batch, resources and state.

    def begin(self, x: Tensor) -> None:
        """Set up the experts and the short-term memory for samples like those of the first batch."""
        super().begin(x)
        likelihood: Likelihood = "grey" if x.dtype == torch.uint8 else "real"
        name, own = (self.given, None) if isinstance(self.given, str) else ("", self._own)
        experts = Experts(tuple(x.shape[1:]), likelihood, name, own)
        self.use(experts)
        experts.eval()  # the statistics of batch norm are those of an expert's sleep
        self.short_term = ShortTermMemory(self.settings.short_term_memory, x, self.device)

    def trained_network(self) -> nn.Module | None:
        """The user's network, if there is one."""
        return self.given if isinstance(self.given, nn.Module) else None

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """Build the named network for samples of this shape; raises a ValueError if it can't model them."""
        body, _ = trunk(name, shape, self.settings.hidden)
        Experts(shape, "grey", name)  # raises an error for unsupported shapes before anything changes
        return body

    def install(self, network: nn.Module, features: int) -> None:
        """Use this network as the template of the experts."""
        self._own = network, features

    def open_classes(self, classes: int) -> None:
        """Nothing to do: later classes belong to later experts."""

    def footprint(self) -> dict[str, int]:
        """Bytes of the short-term memory, of the experts, and of the states of their optimisers."""
        weights = sum(part.nbytes for expert in self.experts for part in expert.state_dict().values())
        remembered = sum(adam.nbytes() for pair in self._optimisers for adam in pair)
        return {"short-term memory": self.short_term.nbytes(), "experts": weights, "optimisers": remembered}

    def extra_state(self) -> State:
        """The tensors besides the network."""
        state: State = {
            "counts": self._counts.clone(),
            "classes": torch.tensor([expert.classes for expert in self.experts], dtype=torch.int64),
            "short_term.samples": self.short_term.samples.clone(),
            "short_term.slots": self.short_term.slots.clone(),
        }
        for part, adam in self._adams():
            state |= {f"{part}.{name}": values for name, values in adam.state().items()}
        return state

    def _adams(self) -> list[tuple[str, Adam]]:
        return [
            (f"adam.{k}.{i}", adam) for k, pair in enumerate(self._optimisers) for i, adam in enumerate(pair)
        ]

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        for classes in state["classes"].tolist():
            self._add_expert(classes)
            self._wake()
        for part, adam in self._adams():
            adam.restore({name: state[f"{part}.{name}"] for name in adam.state()})
        self._counts = state["counts"].to(self.device).clone()
        if self._counts.shape != (len(self.experts),) or not bool((self._counts.isfinite()).all()):
            raise ValueError(
                f"there are counts of {list(self._counts.shape)} for {len(self.experts)} experts"
            )
        slots = state["short_term.slots"]
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < len(self.labels):
            raise ValueError(f"the short-term memory has samples of more than {len(self.labels)} classes")
        self.short_term.add(state["short_term.samples"], slots)


def _trained(network: nn.Module) -> Iterator[Tensor]:
    """The parameters of a network that are not frozen."""
    return (part for part in network.parameters() if part.requires_grad)
