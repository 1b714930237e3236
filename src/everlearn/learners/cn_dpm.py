"""CN-DPM: experts that are born when data is foreign to all there are."""

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
from everlearn.training.sgd import NotFinite
from everlearn.transaction import on_undo

__all__ = ["CNDPM", "CNDPMSettings"]

SLEEP_BATCH = 50
CHILL = 0.01  # the temperature of the classifiers where it is decided whose a sample is
CLIP = 0.5  # the largest size of an entry of a gradient
DECAY = 1e-5  # weight of the squared parameters in the loss, in sleep
LEAST_USAGE = 0.1  # what an expert must be responsible for in a batch, in samples, to learn from it


@dataclasses.dataclass(frozen=True)
class CNDPMSettings(Settings):
    """The settings of CN-DPM; where no benchmark is named, the defaults are Split-MNIST's."""

    learning_rate: float = 1e-4
    """step size of Adam, for the classifiers"""
    generative_learning_rate: float = 4e-4
    """step size of Adam, for the auto-encoders"""
    awake_factor: float = 1.0
    """what both step sizes are multiplied with when an expert has slept"""
    hidden: int = 64
    """units in each hidden layer of the first expert, where the network is the MLP"""
    added: int = 16
    """units in each hidden layer that a later expert adds to those of its predecessors"""
    latent: int = 16
    """size of the latent vector z"""
    draws: int = 16
    """draws of z for each sample"""
    log_concentration: float = -400.0
    """log α of the Dirichlet process: the higher, the sooner a sample is foreign"""
    short_term_memory: int = 500
    """foreign samples that make a new expert"""
    generative_steps: int = 8000
    """steps of a new expert's auto-encoder in sleep"""
    discriminative_steps: int = 2000
    """steps of a new expert's classifier in sleep"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("generative_learning_rate", self.generative_learning_rate > 0, "above 0")
        self._check("awake_factor", self.awake_factor > 0, "above 0")
        self._check("log_concentration", math.isfinite(self.log_concentration), "a finite number")
        for name in (field.name for field in dataclasses.fields(self) if isinstance(field.default, int)):
            self._check(name, getattr(self, name) >= 1, "at least 1")


class CNDPM(Learner):
    """Continual neural Dirichlet process mixture: grows an expert for data that no expert explains.

    A sample that is foreign to all experts waits in the short-term memory. When that is full, the learner
    sleeps: a new expert is trained on it, and it is emptied. All else trains the experts that are responsible.
    What waits takes part in predictions: each sample as the centre of a Gaussian, which counts as one sample.

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
    can_forget = False
    has_head = False
    tensors_alone = False  # whose a sample is decides what is computed, and experts are born
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
        """The experts, in the order of their birth."""
        return [] if self.network is None else list(self.network)

    # Awake: each sample trains the experts that explain it, or waits.

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, the seed of each iteration's noise, and what may be kept, if anything."""
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
            foreign = responsibilities.sum(1) == 0
            x, slots = x[foreign], slots[foreign]
            taken = self.short_term.add(x, slots)
            if self.short_term.full:
                self._sleep()
            x, slots = x[taken:], slots[taken:]  # the rest may not be foreign to the new expert

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor:
        """Train the experts on the samples that they are responsible for, with the noise that is given.

        Gives the responsibilities, `[samples, experts]`: a row of zeros for a sample that is foreign to all.
        """
        assert self.network is not None
        x = as_input(x)
        bounds, classes = self.network.judge(x, replay[0], len(self.labels))
        places = slots[:, None, None].expand(-1, bounds.shape[1], 1)
        with torch.no_grad():
            # log n_k + log p_k(x) + log p_k(y | x), the last at a low temperature, so that errors weigh more
            chilled = (classes / CHILL).log_softmax(2).gather(2, places)[..., 0]
            joint = torch.cat([self._joint_of_none(x), self._counts.log() + bounds + chilled], 1)
            explained = joint.argmax(1) > 0
            responsibilities = joint[:, 1:].softmax(1) * explained[:, None]
            used = (responsibilities.sum(0) > LEAST_USAGE).nonzero().flatten().tolist()
        if used:
            losses = -(responsibilities * (bounds + classes.gather(2, places)[..., 0])).sum(0)
            adams = [adam for k in used for adam in self._optimisers[k]]
            parameters = [part for adam in adams for part in adam.parameters]
            gradients = iter(torch.autograd.grad(losses[used].sum(), parameters))
            for adam in adams:
                adam.step([next(gradients) for _ in adam.parameters])
        return responsibilities

    def _joint_of_none(self, x: Tensor) -> Tensor:
        """log α + log p(x) + log p(y | x) of an expert that knows nothing: the middle of the range, any class."""
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

    # Asleep: what waits becomes an expert.

    def _sleep(self) -> None:
        """Train a new expert on the short-term memory, and empty that."""
        assert self.network is not None
        x, slots = as_input(self.short_term.samples), self.short_term.slots
        generative, discriminative = self.network.features(x)  # the predecessors stay as they are
        expert, (first, second) = self._be_born(len(self.labels))
        seed = int(torch.randint(2**62, (), generator=self.generator))
        randomness = torch.Generator(self.device).manual_seed(seed)
        dreams = self.settings.generative_steps
        steps = dreams + self.settings.discriminative_steps
        places = torch.randint(len(x), (steps, SLEEP_BATCH), generator=self.generator).to(self.device)
        expert.train()
        for drawn in places[:dreams]:
            noise = self._noise(randomness, SLEEP_BATCH)
            bounds, _ = expert.generative(x[drawn], noise, [part[drawn] for part in generative])
            first.descend(-bounds.mean())
        for drawn in places[dreams:]:
            said, _ = expert.discriminative(x[drawn], [part[drawn] for part in discriminative])
            second.descend(-said.gather(1, slots[drawn, None]).mean())
        self._wake()
        self._counts = torch.cat([self._counts, self._counts.new_tensor([float(len(x))])])
        self.short_term.clear()

    def _be_born(self, classes: int) -> tuple[Expert, tuple[Adam, Adam]]:
        """One more expert, and what optimises its two parts."""
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
        """The youngest expert goes on with the step sizes of one awake; batch-norm stays as it is."""
        self.experts[-1].eval()
        for adam in self._optimisers[-1]:
            adam.learning_rate *= self.settings.awake_factor
            adam.decay = 0.0

    # Predicting.

    def scores(self, x: Tensor) -> Tensor:
        """log p(x, y), up to a constant: of the mixture of all experts, and of all samples that wait."""
        assert self.network is not None
        noise = self._noise(self.seed, 1)  # the same for all samples, whenever it is asked
        bounds, classes = self.network.judge(x, noise, len(self.labels))
        known = ((self._counts.log() + bounds)[..., None] + classes).logsumexp(1)
        if not len(self.short_term):
            return known if self.experts else torch.zeros_like(known)
        return torch.logaddexp(known, self._joint_of_waiting(flat(x)))

    def _joint_of_waiting(self, x: Tensor) -> Tensor:
        """The same of the samples that wait: each is the centre of a Gaussian of the experts' variance."""
        centres = flat(as_input(self.short_term.samples))
        near = log_normal(torch.cdist(x, centres).square(), x.shape[1])  # [samples, waiting]
        nearest = near.amax(1, keepdim=True)
        whose = one_hot(self.short_term.slots, len(self.labels)).float()
        return ((near - nearest).exp() @ whose).log() + nearest

    def features(self, x: Tensor) -> Tensor:
        """The features of all classifiers; before the first expert, the sample itself."""
        assert self.network is not None
        return self.network.features(x)[1][-1] if self.experts else flat(x)

    def changing_parts(self) -> list[object]:
        """The short-term memory and the optimisers change too."""
        optimisers = [adam for pair in self._optimisers for adam in pair]
        return [*super().changing_parts(), self.short_term, *optimisers]

    def prepare_network(self) -> None:
        """The experts stay in evaluation mode, but for one that is asleep."""

    def copy_for_snapshot(self, frozen: Any) -> None:
        """A snapshot has its own copy of what changes."""
        frozen._counts, frozen._optimisers = self._counts.clone(), []
        frozen.short_term = copy.deepcopy(self.short_term)

    # The first batch, resources and state.

    def begin(self, x: Tensor) -> None:
        """Size everything by the first batch."""
        super().begin(x)
        likelihood: Likelihood = "grey" if x.dtype == torch.uint8 else "real"
        name, own = (self.given, None) if isinstance(self.given, str) else ("", self._own)
        experts = Experts(tuple(x.shape[1:]), likelihood, name, own)
        self.use(experts)
        experts.eval()  # batch-norm's statistics are of an expert's sleep
        self.short_term = ShortTermMemory(self.settings.short_term_memory, x, self.device)

    def trained_network(self) -> nn.Module | None:
        """What a batch passes in training mode."""
        return self.given if isinstance(self.given, nn.Module) else None

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """The named network for samples of this shape, if it can model them."""
        body, _ = trunk(name, shape, self.settings.hidden)
        Experts(shape, "grey", name)  # what they can't take is refused here, before anything has changed
        return body

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network that gives so many features."""
        self._own = network, features

    def open_classes(self, classes: int) -> None:
        """No expert needs room: a later class is foreign to it."""

    def footprint(self) -> dict[str, int]:
        """Bytes of the short-term memory, of the experts, and of what their optimisers remember."""
        weights = sum(part.nbytes for expert in self.experts for part in expert.state_dict().values())
        remembered = sum(adam.nbytes() for pair in self._optimisers for adam in pair)
        return {"short-term memory": self.short_term.nbytes(), "experts": weights, "optimisers": remembered}

    def extra_state(self) -> State:
        """What it holds beside the network."""
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
        """Load what `extra_state` gave."""
        for classes in state["classes"].tolist():
            self._be_born(classes)
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
            raise ValueError(f"samples wait of more than {len(self.labels)} classes")
        self.short_term.add(state["short_term.samples"], slots)


def _trained(network: nn.Module) -> Iterator[Tensor]:
    """The parameters of a network that are not frozen."""
    return (part for part in network.parameters() if part.requires_grad)
