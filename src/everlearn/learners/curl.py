"""CURL: a generative model with one component per class; a copy of it generates samples for replay."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import linear, softplus

from everlearn.checkpoint import State
from everlearn.core.learner import Learner
from everlearn.core.plan import Plan
from everlearn.core.settings import Settings
from everlearn.memory.labels import Label
from everlearn.networks import as_input, truncate, trunk
from everlearn.networks.autoencoder import Decoder, Gaussian, Likelihood, evidence_bound, flat
from everlearn.streams.horizon import Horizon
from everlearn.training.adam import Adam
from everlearn.transaction import on_undo

__all__ = ["CURL", "CURLSettings"]

FILTERS = 32  # of the decoder, where the network is convolutional
SMALLEST_VARIANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class CURLSettings(Settings):
    """The settings of CURL; where no benchmark is named, the defaults are Split-MNIST's."""

    learning_rate: float = 1e-3
    """step size of Adam"""
    latent: int = 32
    """size of the latent vector z"""
    binarised: bool = True
    """whether images are binarised, at the middle of the range"""

    optimizer: str = "adam"
    """always Adam"""

    trains_with = "adam"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("latent", self.latent >= 1, "at least 1")


class Component(nn.Module):
    """The parameters of one class: its logit, the posterior q(z | x, y) of its samples, and the prior p(z | y)."""

    def __init__(self, features: int, latent: int) -> None:
        super().__init__()
        self.logit = nn.Linear(features, 1)
        self.posterior = nn.Linear(features, 2 * latent)
        self.prior = nn.Parameter(torch.cat([torch.randn(latent) / 3, torch.zeros(latent)]))


class Mixture(nn.Module):
    """A shared body, the components, and a shared decoder."""

    def __init__(self, body: nn.Module, features: int, decoder: Decoder) -> None:
        super().__init__()
        self.body, self.features, self.decoder = body, features, decoder
        self.components = nn.ModuleList()

    def stacked(self, name: str) -> Tensor:
        """A parameter of all components, stacked."""
        return torch.stack([component.get_parameter(name) for component in self.components])

    def logits(self, features: Tensor) -> Tensor:
        """log q(y | x), up to a constant, `[samples, components]`."""
        return linear(features, self.stacked("logit.weight")[:, 0], self.stacked("logit.bias")[:, 0])

    def posterior(self, features: Tensor, slots: Tensor) -> Gaussian:
        """q(z | x, y) of samples of these classes."""
        weight, bias = self.stacked("posterior.weight"), self.stacked("posterior.bias")
        outputs = linear(features, weight.flatten(0, 1), bias.flatten()).view(len(slots), *bias.shape)
        return _gaussian(outputs[torch.arange(len(slots), device=slots.device), slots])

    def priors(self) -> Gaussian:
        """p(z | y) of each class, a row each."""
        return _gaussian(self.stacked("prior"))


class Copy:
    """A copy of the generative parts at the start of a task: decoder, priors, and the number of samples per class."""

    def __init__(self, decoder: Decoder, priors: Gaussian, counts: Tensor) -> None:
        self.decoder, self.priors, self.counts = decoder, priors, counts

    @torch.no_grad()
    def generate(self, samples: int, randomness: torch.Generator) -> tuple[Tensor, Tensor]:
        """Expected samples as rows of values, and their slots, in the proportions of the classes in the stream."""
        slots = torch.multinomial(self.counts, samples, replacement=True, generator=randomness)
        mean, log_variance = (part[slots] for part in self.priors)
        noise = torch.randn(mean.shape, generator=randomness, device=mean.device)
        return self.decoder.means(Gaussian(mean, log_variance).draw(noise)), slots


class CURL(Learner):
    """Continual unsupervised representation learning, with labels: an auto-encoder with one component per class.

    With each batch it learns from as many generated samples of earlier tasks, from a copy of the model made at the
    start of the task. As in its paper, it makes many epochs over each task, which is its horizon.

    >>> x = torch.randn(40, 8) + 3 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CURL("mlp", hidden=16, learning_rate=0.01, iterations=10, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4], t=0)
    >>> learner.predict(x[:4]), CURL.horizon
    (['high', 'low', 'high', 'low'], Horizon(extent='task', samples=None, epochs=83))

    Rao, D. et al. Continual Unsupervised Representation Learning. NeurIPS 2019.
    """

    name = "curl"
    standardises = False  # it generates samples as they come
    needs = frozenset({"t"})
    can_forget = False
    has_head = False
    tensors_alone = False  # components are added with new classes, and the copy changes with the task
    # With batches of 100, a pair of digits takes 10,000 steps, and as many on generated samples.
    horizon = Horizon("task", epochs=83)
    Settings = CURLSettings
    settings: CURLSettings
    network: Mixture | None

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        super().__init__(network, seed=seed, device=device, **settings)
        self._running: int | None = None  # the current task
        self._counts: NDArray[np.int64] = np.zeros(0, np.int64)  # samples of each class
        self.copy: Copy | None = None
        self._range: tuple[int, int] | None = None  # the smallest and largest value of integer samples

    # Learning.

    def check_task(self, t: Any, method: str) -> int | None:
        """The task of the batch; a new task makes a copy of the model."""
        task = super().check_task(t, method)
        if method == "observe":
            if self.network is not None and task != self._running:
                self._take_copy()
            self._running = task
        return task

    def _take_copy(self) -> None:
        """Copy the model, to generate samples for replay."""
        assert self.network is not None
        decoder = copy.deepcopy(self.network.decoder).requires_grad_(False)
        priors = Gaussian(*(part.detach() for part in self.network.priors()))
        self.copy = Copy(decoder, priors, torch.from_numpy(self._counts).float().to(self.device))

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """The slots of a batch, and the seed of each iteration's randomness."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        if keep:
            self._counts = self._counts + np.bincount(slots, minlength=len(self.labels))
        seeds = torch.randint(2**62, (self.settings.iterations,), generator=self.generator).numpy()
        return Plan(slots, seeds=seeds)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """A step on the batch and, if there is a copy, one on as many generated samples."""
        self._update_range(x)
        x = self._preprocess(as_input(x))
        for seed in plan.seeds.tolist():
            randomness = torch.Generator(self.device).manual_seed(seed)
            self.step(x, plan.slots, self._noise(len(x), randomness))
            if self.copy is not None:
                old, old_slots = self.copy.generate(len(x), randomness)
                self.step(self._as_samples(old).view_as(x), old_slots, self._noise(len(x), randomness))

    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> None:
        """One step on −log p(x | z) + KL(q(z | x, y) ‖ p(z | y)) − log q(y | x), with the given noise."""
        self._adam.descend(self.loss(x, slots, replay[0]).mean())

    def loss(self, x: Tensor, slots: Tensor, noise: Tensor) -> Tensor:
        """The loss of each sample."""
        assert self.network is not None
        features = self.network.body(x)
        priors = Gaussian(*(part[slots] for part in self.network.priors()))
        posterior = self.network.posterior(features, slots)
        bound = evidence_bound(flat(x), self.network.decoder, posterior, noise, priors)
        return -bound - self.network.logits(features).log_softmax(1).gather(1, slots[:, None])[:, 0]

    def _preprocess(self, x: Tensor) -> Tensor:
        """The input of the model: binarised images, if the setting says so."""
        return (x > 0.5).float() if self.settings.binarised and self.sample_type == torch.uint8 else x

    def _update_range(self, x: Tensor) -> None:
        """Update the range of integer samples, such as tokens."""
        if not x.is_floating_point() and x.dtype != torch.uint8:
            low, high = (int(part) for part in torch.aminmax(x))
            before = self._range or (low, high)
            self._range = min(before[0], low), max(before[1], high)

    def _as_samples(self, generated: Tensor) -> Tensor:
        """Generated samples in the type of the stream's samples; integers are clamped to the range seen."""
        if self._range is None or self.sample_type is None:
            return self._preprocess(generated)
        return generated.round().clamp(*self._range).to(self.sample_type)

    def _noise(self, samples: int, randomness: torch.Generator) -> Tensor:
        shape = (1, samples, self.settings.latent)
        return torch.randn(shape, generator=randomness, device=self.device)

    # Predicting.

    def scores(self, x: Tensor) -> Tensor:
        """log q(y | x), up to a constant."""
        assert self.network is not None
        return self.network.logits(self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """The output of the shared body."""
        assert self.network is not None
        features: Tensor = self.network.body(self._preprocess(x))
        return features

    def changing_parts(self) -> list[object]:
        """The optimiser, too."""
        parts = super().changing_parts()
        return parts if self.network is None else [*parts, self._adam]

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Drop the optimiser and the copy, which predictions do not use."""
        frozen._adam = frozen.copy = None

    # The first batch and new classes.

    def begin(self, x: Tensor) -> None:
        """Set up the model for samples like those of the first batch."""
        self._first = tuple(x.shape[1:]), x.dtype
        super().begin(x)

    def trained_network(self) -> nn.Module | None:
        """The shared body."""
        return None if self.network is None else self.network.body

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """Build the named network for samples of this shape; raises a ValueError if it can't model them."""
        body, _ = trunk(name, shape, self.settings.hidden)
        if name == "slim-resnet18" and (shape[1] % 4 or shape[2] % 4):
            raise ValueError(f"curl generates images whose sides are multiples of 4, not {list(shape)}")
        return body

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a body with this number of features."""
        shape, kind = self._first
        likelihood: Likelihood = "bits" if kind == torch.uint8 else "real"
        convolutional = self.given == "slim-resnet18"
        hidden = FILTERS if convolutional else self.settings.hidden
        decoder = Decoder(self.settings.latent, shape, likelihood, hidden, convolutional)
        self.use(Mixture(network, features, decoder))
        self._adam = Adam(self.parameters, self.settings.learning_rate)

    def open_classes(self, classes: int) -> None:
        """Add a component for each new class."""
        self.newest = self.batches
        assert self.network is not None
        components, known = self.network.components, len(self.network.components)
        on_undo(lambda: truncate(components, known))
        with self.seeded():
            new = [
                Component(self.network.features, self.settings.latent).to(self.device)
                for _ in range(known, classes)
            ]
        components.extend(new)
        self._adam.add(part for component in new for part in component.parameters())
        self._counts = np.append(self._counts, np.zeros(classes - len(self._counts), np.int64))

    # Resources and state.

    def footprint(self) -> dict[str, int]:
        """Bytes of the components, of the copy, and of the state of the optimiser."""
        if self.network is None:
            return {"components": 0, "copy": 0, "optimiser": 0}
        components = sum(part.nbytes for part in self.network.components.parameters())
        copied = 0 if self.copy is None else sum(part.nbytes for part in self._copied().values())
        return {"components": components, "copy": copied, "optimiser": self._adam.nbytes()}

    def _copied(self) -> dict[str, Tensor]:
        if self.copy is None:
            return {}
        weights = {f"decoder.{name}": part.clone() for name, part in self.copy.decoder.state_dict().items()}
        return weights | self.copy.priors._asdict() | {"counts": self.copy.counts}

    def extra_state(self) -> State:
        """The tensors besides the network."""
        state: State = {f"copy.{name}": part for name, part in self._copied().items()}
        state |= {f"adam.{name}": part for name, part in self._adam.state().items()}
        running = [] if self._running is None else [self._running]
        counts = torch.from_numpy(self._counts.copy())
        if self._range is not None:
            state["range"] = torch.tensor(self._range)
        return state | {"counts": counts, "running": torch.tensor(running, dtype=torch.int64)}

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` returned."""
        assert self.network is not None
        self._adam.restore({name: state[f"adam.{name}"] for name in self._adam.state()})
        self._counts = state["counts"].cpu().numpy().copy()
        if self._counts.shape != (len(self.labels),):
            raise ValueError(f"there are counts of {self._counts.shape} for {len(self.labels)} classes")
        self._running = next(iter(state["running"].tolist()), None)
        if "range" in state:
            low, high = state["range"].tolist()
            self._range = int(low), int(high)
        copied = {name[5:]: part.to(self.device) for name, part in state.items() if name.startswith("copy.")}
        if copied:
            decoder = copy.deepcopy(self.network.decoder).requires_grad_(False)
            prefix = "decoder."
            decoder.load_state_dict(
                {n[len(prefix) :]: part for n, part in copied.items() if n.startswith(prefix)}
            )
            self.copy = Copy(decoder, Gaussian(copied["mean"], copied["log_variance"]), copied["counts"])


def _gaussian(said: Tensor) -> Gaussian:
    mean, spread = said.chunk(2, -1)
    return Gaussian(mean, (softplus(spread) + SMALLEST_VARIANCE).log())
