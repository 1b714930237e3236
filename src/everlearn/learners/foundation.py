"""What a learner stands on: its settings, its network, and room for the classes that come."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from everlearn.learners.asked import Asked
from everlearn.learners.border import (
    as_device,
    as_samples,
    as_seed,
    check_network,
    check_samples,
    probe,
)
from everlearn.learners.settings import Settings
from everlearn.learners.snapshot import Turn
from everlearn.memory.base import ReplayMemory
from everlearn.memory.labels import Label, LabelTable
from everlearn.messages import nearest
from everlearn.randomness import DrawFrom
from everlearn.streams.horizon import Horizon
from everlearn.training.cuda_graph import Captured, Graphed
from everlearn.training.sgd import SGD

__all__ = ["OWN_FUNCTION", "OWN_NETWORK", "Foundation", "function_name"]

OWN_NETWORK = "module:"
OWN_FUNCTION = "function:"


class Foundation(ABC):
    """What every part of a learner builds on; see `Learner` for the whole."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[Literal["t", "tasks", "classes"]]] = frozenset()
    tensors_alone: bool = True  # whether `step` is, so that a CUDA graph can hold it
    horizon: ClassVar[Horizon] = Horizon()
    scenario: ClassVar[str | None] = None  # the order of the stream that it asks for, if it does
    Settings: ClassVar[type[Settings]] = Settings

    settings: Any
    memory: ReplayMemory | None = None
    network: nn.Module | None = None
    sample_shape: tuple[int, ...] | None = None
    sample_type: torch.dtype | None = None
    sgd: SGD
    _has_buffers = False
    _finite_buffers: list[Tensor] | tuple[()] = ()  # such as batch-norm's statistics, which must stay finite
    _network_draws = False  # whether the network draws random numbers in training mode, as dropout does

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = self._settings(settings)
        self.seed = as_seed(seed)
        self.device = as_device(device)
        check_network(network)
        self.given = network
        self.generator = torch.Generator().manual_seed(self.seed)
        self.labels = LabelTable()
        self.parameters: list[Tensor] = []
        self.batches = 0
        self.samples = 0
        self.asked = Asked()
        self._tried: set[int] = set()  # how many samples a network that may refuse is known to take at once
        self._turn = Turn()
        self._least: float | None = None  # the score below which an answer is withheld, while nothing changes
        graphs = self.device.type == "cuda" and self.tensors_alone
        self._captured: Graphed | None = Captured(self.learn) if graphs else None

    def changing_parts(self) -> list[object]:
        """The objects whose attributes change when it learns; a transaction takes these changes back."""
        parts = [self, self.labels, self.asked]
        return parts if self.memory is None else [*parts, self.memory]

    @classmethod
    def _settings(cls, given: dict[str, Any]) -> Any:
        known = [field.name for field in dataclasses.fields(cls.Settings)]
        for name in given:
            if name not in known:
                others = [*known, "seed", "device"]
                raise TypeError(f"{cls.__name__} has no setting {name!r}{nearest(name, others)}")
        settings = cls.Settings(**given)
        if settings.unknown is not None and "memory_size" not in known:
            raise ValueError(f"{cls.__name__} has no memory to calibrate unknown on")
        return settings

    # What the parts here and above ask of the whole.

    @abstractmethod
    def observe(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from one batch, the first time it is seen."""

    @abstractmethod
    def _observe(self, x: Any, y: Any, t: Any) -> None:
        """The same, as part of a change that is all or nothing."""

    @abstractmethod
    def learn(self, x: Tensor, slots: Tensor, *plan: Tensor) -> None:
        """All that is done with one batch, in tensors alone."""

    # What it is, and what it holds.

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    @property
    def network_name(self) -> str:
        """The network's name, or the class of the user's own."""
        return self.given if isinstance(self.given, str) else OWN_NETWORK + type(self.given).__qualname__

    def _identity(self) -> dict[str, Any]:
        """What a state and the learner that takes it up must agree on, and two learners that merge."""
        return {"learner": self.name, "network": self.network_name, "settings": plain(self.settings)}

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory holds."""
        return {} if self.memory is None else self.memory.counts()

    def footprint(self) -> dict[str, int]:
        """Bytes of the operational memory M, by part."""
        held = {"replay": self.memory.nbytes()} if self.memory is not None else {}
        return held | ({"asked": self.asked.nbytes()} if len(self.asked) else {})

    # The border to the host.

    def _samples(self, x: Any, method: str) -> Tensor:
        where = f"{type(self).__name__}.{method}"
        samples = as_samples(x, where, keep_integers=isinstance(self.given, nn.Module))
        check_samples(samples, where, self.sample_shape, self.sample_type)
        return samples

    def _check_room(self, classes: int) -> None:
        room = getattr(self.settings, "memory_size", classes)
        if classes > room:
            raise ValueError(f"a memory of {room} has no room for an exemplar of each of {classes} classes")

    # The network, and room for classes.

    def _begin(self, x: Tensor) -> None:
        """Size everything by the first batch, or leave all as it was."""
        shape = tuple(x.shape[1:])
        with DrawFrom(torch.Generator().manual_seed(self.seed)):
            network = self._build(self.given, shape) if isinstance(self.given, str) else self.given
            network = network.to(self.device)
            with DrawFrom(torch.Generator()) as probed:
                features = probe(network, x.to(self.device))
            self._network_draws = probed.drawn
            self._install(network, features)
        self.sample_shape, self.sample_type = shape, x.dtype
        self.asked.keep_only(shape, x.dtype)
        if self.memory is not None:
            self.memory.allocate(x, self.device)

    @abstractmethod
    def _build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """The named network for samples of this shape."""

    @abstractmethod
    def _install(self, network: nn.Module, features: int) -> None:
        """Take up a network that gives so many features."""

    def _use(self, network: nn.Module) -> None:
        """Train this network from now on."""
        self.network = network.train().to(self.device)
        if self.device.type == "cpu" and any(isinstance(part, nn.Conv2d) for part in network.modules()):
            # Half as fast again on one core of a CPU (benchmarks/step.py); on a GPU no gain at these sizes.
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = [part for part in network.parameters() if part.requires_grad]
        self._has_buffers = any(True for _ in network.buffers())
        self._finite_buffers = [
            part for part in network.buffers() if part.is_floating_point() and bool(part.isfinite().all())
        ]
        self.sgd = SGD(network, self.parameters, self.settings.learning_rate, self.settings.clip)
        self._replaced()

    def _seeded(self) -> DrawFrom:
        """What is drawn inside depends on the learner's own generator alone, which draws one number for it."""
        return DrawFrom(
            torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
        )

    def _open_classes(self, classes: int) -> None:
        """Make room for so many classes in all."""

    def _replaced(self) -> None:
        """Tensors that `learn` works on were replaced: what was captured is void."""
        if self._captured is not None:
            self._captured.forget()


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as a state has them: a name stands for a function of the user's."""
    return {
        name: function_name(value) if callable(value) else value for name, value in vars(settings).items()
    }


def function_name(function: Any) -> str:
    """What stands in a state for a function of the user's."""
    return OWN_FUNCTION + getattr(function, "__qualname__", type(function).__qualname__)
