"""The contract that all learners share.

`observe` is the border to the host: it checks the input, maps labels to slots, draws what is random
and moves data to the device. `step` is the method itself, in tensors alone.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.capture import Captured
from everlearn.checkpoint import CheckpointError, State
from everlearn.descent import Passage, passages
from everlearn.learners.border import as_samples, check_samples, probe, try_batch
from everlearn.learners.control import forget, merge
from everlearn.learners.late import Asked, Told, ask, tell
from everlearn.learners.snapshot import Snapshot, Turn, in_turn
from everlearn.learners.unknown import threshold, withhold
from everlearn.memory.base import ReplayMemory
from everlearn.memory.labels import Label, LabelTable, as_labels, decode_label, encode_label
from everlearn.networks import as_input
from everlearn.streams.horizon import Horizon
from everlearn.words import nearest

__all__ = ["Learner", "NotLearntYet", "Settings", "under"]

FORMAT = 2
OWN_NETWORK = "module:"
OWN_FUNCTION = "function:"
CHUNK = 1000


class NotLearntYet(RuntimeError):
    """A prediction was asked before the first label."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What every learner can be told."""

    learning_rate: float = 0.01
    """step size of plain SGD"""
    iterations: int = 1
    """gradient steps per batch, each with fresh replay"""
    hidden: int = 400
    """units in each hidden layer, where the network is the MLP"""
    unknown: float | None = None
    """share of its own samples it may lose by answering "none of these" to what is too unlike; None never does"""
    waiting: int = 1000
    """samples that `ask` keeps until their labels are told; the oldest go first"""

    def __post_init__(self) -> None:
        self._check("learning_rate", self.learning_rate > 0, "above 0")
        self._check("iterations", self.iterations >= 1, "at least 1")
        self._check("hidden", self.hidden >= 1, "at least 1")
        self._check(
            "unknown", self.unknown is None or 0 <= self.unknown < 1, "None, or at least 0 and below 1"
        )
        self._check("waiting", self.waiting >= 1, "at least 1")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise ValueError(f"{name} must be {expected}, not {getattr(self, name)!r}")


class Learner(ABC):
    """Learns from a stream of batches, and predicts at any moment.

    network: `"mlp"` or `"slim-resnet18"`, sized from the first batch; `"identity"` for samples that are embedded
        already; or an nn.Module that maps x to an embedding.
    seed: fixes initialisation, replay and memory.
    device: `"auto"` (a GPU if there is one), or a torch device by name.
    settings: the fields of the learner's `Settings`.
    """

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
    _pass: Callable[[Tensor], Passage]

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = self._settings(settings)
        self.seed = seed
        self.device = torch.device(
            ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        )
        self.given = network
        self.generator = torch.Generator().manual_seed(seed)
        self.labels = LabelTable()
        self.parameters: list[Tensor] = []
        self.batches = 0
        self.samples = 0
        self.asked = Asked()
        self._tried: set[int] = set()  # how many samples a network that may refuse is known to take at once
        self._turn = Turn()
        self._least: float | None = None  # the score below which an answer is withheld, while nothing changes
        self._captured = Captured(self.learn) if self.device.type == "cuda" and self.tensors_alone else None

    @classmethod
    def _settings(cls, given: dict[str, Any]) -> Any:
        known = [field.name for field in dataclasses.fields(cls.Settings)]
        for name in given:
            if name not in known:
                raise TypeError(f"{cls.__name__} has no setting {name!r}{nearest(name, known)}")
        settings = cls.Settings(**given)
        if settings.unknown is not None and "memory_size" not in known:
            raise ValueError(f"{cls.__name__} has no memory to calibrate unknown on")
        return settings

    # Learning.

    @in_turn
    def observe(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from one batch, the first time it is seen."""
        x, labels, new = self._accept(x, y)
        self._hear(t, "observe")
        self._meet(x, new)
        self._learn(x, self.prepare(labels))
        self.count(len(x))

    @in_turn
    def revisit(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from a batch again, where the horizon is wider than a batch. Nothing is stored or counted."""
        x, labels, new = self._accept(x, y)
        if new:
            raise ValueError(
                f"{type(self).__name__}.revisit got the label {new[0]!r}, which was never observed"
            )
        self._hear(t, "revisit")
        self._learn(x, self.prepare(labels, keep=False))

    def end_horizon(self) -> None:
        """The horizon D_t is over."""

    def _hear(self, t: Any, method: str) -> int | None:
        """The task that the batch is of, checked before anything changes if the learner needs to know it."""
        if "t" not in self.needs:
            return None
        try:
            return operator.index(t)
        except TypeError:
            name = type(self).__name__
            raise ValueError(
                f"{name}.{method} must be told t, the task of the batch, as an integer, not {t!r}: "
                f"{method}(x, y, t)"
            ) from None

    def _accept(self, x: Any, y: Any) -> tuple[Tensor, list[Label], list[Label]]:
        """The batch, checked before anything changes: samples, labels, and those of the labels that are new."""
        x = self._samples(x, "observe")
        labels = as_labels(y)
        if len(labels) != len(x):
            raise ValueError(f"{type(self).__name__}.observe got {len(x)} samples but {len(labels)} labels")
        new = self.labels.new(labels)
        classes = len(self.labels) + len(new)
        self._check_room(classes)
        self._try(x)
        return x, labels, new

    def _try(self, x: Tensor) -> None:
        """Let a network refuse a batch before anything changes: for its length, or for what is in it."""
        if self.network is None or not self.may_refuse:
            return
        lengths = self.passed(len(x)) - self._tried
        with torch.random.fork_rng(devices=[]):
            try_batch(self.network, x.to(self.device), lengths)
        self._tried |= lengths

    @property
    def may_refuse(self) -> bool:
        """Whether the network may refuse a batch of a shape that is right: batch-norm does, if it is a single one."""
        return self.given not in ("mlp", "identity")

    def passed(self, batch: int) -> set[int]:
        """How many samples pass the network together, in training mode, when a batch of this size is learnt."""
        return {batch}

    def _check_room(self, classes: int) -> None:
        room = getattr(self.settings, "memory_size", classes)
        if classes > room:
            raise ValueError(f"a memory of {room} has no room for an exemplar of each of {classes} classes")

    def _samples(self, x: Any, method: str) -> Tensor:
        where = f"{type(self).__name__}.{method}"
        samples = as_samples(x, where, keep_integers=isinstance(self.given, nn.Module))
        check_samples(samples, where, self.sample_shape, self.sample_type)
        return samples

    def welcome(self, x: Any, y: Any) -> None:
        """Get ready for a batch with new labels without learning from it, after the same checks."""
        x, _, new = self._accept(x, y)
        self._meet(x, new)

    def _meet(self, x: Tensor, new: list[Label]) -> None:
        if self.sample_shape is None:
            self._begin(x)
        if new:
            for label in new:
                self.labels.add(label)
            self._open_classes(len(self.labels))

    def _learn(self, x: Tensor, decided: list[NDArray[np.int64]]) -> None:
        self._least = None
        on_device = [torch.from_numpy(part).to(self.device, non_blocking=True) for part in decided]
        with self._own_randomness() if self._draws_by_itself() else nullcontext():
            (self._captured or self.learn)(x.to(self.device), *on_device)

    def _draws_by_itself(self) -> bool:
        """Whether the network may draw random numbers, as dropout does, which must be the same after a resume."""
        return isinstance(self.given, nn.Module) and self.device.type == "cpu"

    def prepare(self, labels: list[Label], keep: bool = True) -> list[NDArray[np.int64]]:
        """What the host decides about a batch: its slots, the replay of each iteration, the rows that keep it.

        labels: all seen by now. On the device these are the arguments of `learn` after x.
        """
        slots = np.array(self.labels.slots(labels))
        if self.memory is None:
            return [slots]
        draws = [self.memory.draw(self.drawn(len(slots))) for _ in range(self.settings.iterations)]
        rows, old_slots = (np.array(parts) for parts in zip(*draws, strict=True))
        return [slots, rows, old_slots, *([self.memory.admit(slots)] if keep else [])]

    def drawn(self, batch: int) -> int:
        """How many exemplars are drawn from the memory for an iteration on a batch of this size."""
        return batch

    def count(self, samples: int) -> None:
        """A batch of so many samples was observed."""
        self.batches += 1
        self.samples += samples

    def learn(self, x: Tensor, slots: Tensor, *plan: Tensor) -> None:
        """All that is done with one batch, in tensors alone: what a CUDA graph captures.

        plan: of the replay the memory's rows and their slots, both `[iterations, replayed]`, and the rows
        that keep this batch, `[batch]`: as far as the learner has a memory, and the batch is kept.
        """
        rounds = range(self.settings.iterations)
        if self.memory is None:
            outcomes = [self.step(x, slots) for _ in rounds]
        else:
            recalled = self.memory.recall(plan[0])
            outcomes = [self.step(x, slots, recalled[i], plan[1][i]) for i in rounds]
        self._finish(x, slots, outcomes, plan)

    @torch.inference_mode()
    def _finish(
        self, x: Tensor, slots: Tensor, outcomes: list[Tensor | None], plan: tuple[Tensor, ...]
    ) -> None:
        """Settle what the iterations brought, and keep of the batch what is to be kept."""
        self.settle(slots, outcomes, *plan[1:2])
        if self.memory is not None and len(plan) == 3:
            self.memory.write(x, plan[2])

    @abstractmethod
    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Tensor | None:
        """The method itself, one iteration, in tensors alone. What it returns is handed to `settle`.

        x, slots: the batch B_n and its classes. replay: the same two of B_M, if there is a memory.
        """

    def settle(self, slots: Tensor, outcomes: list[Tensor | None], *old_slots: Tensor) -> None:
        """What follows the last iteration on a batch, in tensors alone."""

    def _descend(self, loss: Tensor) -> None:
        """One step of plain SGD down a loss."""
        self._move(torch.autograd.grad(loss, self.parameters))

    @torch.no_grad()
    def _move(self, gradients: tuple[Tensor, ...] | list[Tensor]) -> None:
        """One step of plain SGD against a gradient, given by parameter."""
        torch._foreach_add_(self.parameters, gradients, alpha=-self.settings.learning_rate)

    # Predicting.

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen so far; UNKNOWN where it may say so and is not sure enough."""
        labels, scores = self.classes, self._scored(x)
        predicted = [labels[slot] for slot in scores.argmax(1).tolist()]
        return (
            predicted if self.settings.unknown is None else withhold(predicted, scores, self._least_score())
        )

    def _least_score(self) -> float:
        self._least = threshold(self) if self._least is None else self._least
        return self._least

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        probabilities: NDArray[np.float32] = self._scored(x).softmax(1).cpu().numpy()
        return probabilities

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made, `[samples, d]`."""
        return self._in_chunks(x, "embed", self.features)

    def _scored(self, x: Any) -> Tensor:
        if not self.labels:
            raise NotLearntYet(
                f"{type(self).__name__} has seen no label yet: observe a batch first, then predict"
            )
        return self._in_chunks(x, "predict", self.scores)

    def _in_chunks(self, x: Any, method: str, function: Callable[[Tensor], Tensor]) -> Tensor:
        """A function of the samples, in evaluation mode and in parts that bound what it takes."""
        parts = torch.split(self._samples(x, method), CHUNK)
        return self._in_evaluation(
            lambda: torch.cat([function(as_input(part.to(self.device))) for part in parts])
        )

    @torch.no_grad()
    def _in_evaluation(self, function: Callable[[], Tensor]) -> Tensor:
        """What a function gives while the network is in evaluation mode."""
        network = self._predictor
        training = network.training
        if training:
            network.eval()
        try:
            return function()
        finally:
            if training:
                network.train()

    @property
    def _predictor(self) -> nn.Module:
        """The network that predictions are made with."""
        assert self.network is not None
        return self.network

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """What `embed` gives, of samples as the network takes them."""

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """The log-odds of each class seen, `[samples, classes]`, of samples as the network takes them."""

    @in_turn
    def snapshot(self) -> Snapshot:
        """The learner as it is now, for predictions alone: it stays as it is while this one goes on."""
        still = copy.copy(self)
        still.labels = LabelTable(self.classes)
        still.network = copy.deepcopy(self.network)
        if still.network is not None:
            still.network.eval().requires_grad_(False)
        still.parameters, still.memory, still._captured = [], None, None
        still.asked, still._turn = Asked(), Turn()
        still._least = None if self.settings.unknown is None or not self.labels else self._least_score()
        self._hold_still(still)
        return Snapshot(still, self.exemplars())

    def _hold_still(self, still: Any) -> None:
        """Give a snapshot its own copy of whatever else predictions are made from."""

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory holds."""
        return {} if self.memory is None else self.memory.counts()

    # Labels that come late, and control.

    @in_turn
    def ask(self, ids: Any, x: Any) -> list[Label]:
        """Predict, and remember what was asked until its labels are told; before the first label, all is UNKNOWN.

        ids: what to call each sample, of the kinds that labels are. Only the last `waiting` samples are kept.
        """
        return ask(self, ids, x)

    @in_turn
    def tell(self, ids: Any, y: Any, t: Any = None) -> Told:
        """Learn from samples that were asked, now that their labels are known, as one batch.

        Ids of which no sample waits, since it was never asked, told already or forgotten, are in the report.

        >>> from everlearn import CoPE
        >>> learner = CoPE("mlp", waiting=2)
        >>> learner.ask(["first", "second", "third"], torch.randn(3, 8))
        [UNKNOWN, UNKNOWN, UNKNOWN]
        >>> learner.tell(["third", "first"], ["cat", "dog"])
        Told(learnt=['third'], missing=['first'])
        """
        return tell(self, ids, y, t)

    @in_turn
    def forget(self, label: Label) -> None:
        """Remove a class at once and for good: prototype, exemplars, counters, logit. It may come again, as new."""
        forget(self, label)
        self._least = None

    @in_turn
    def merge(self, other: Learner) -> None:
        """Take in what another learner keeps, which saw another part of the stream and stays as it is.

        Memories combine by their own rule; prototypes are taken anew from memory. The weights stay this one's.
        """
        merge(self, other)
        self._least = None

    def _forget_class(self, slot: int) -> None:
        """Drop what is kept of a class; those after it move down by one."""
        if self.memory is not None:
            self.memory.forget(slot)

    def _check_merge(self, other: Any) -> None:
        """Refuse a learner that can't be taken in, where that is for the method to say."""

    def _merge(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Take in what the other keeps. slots: where each of its classes lies here; all of them are open."""
        assert self.memory is not None
        self.memory.merge(other.memory, slots)

    # The network, and room for classes.

    def _begin(self, x: Tensor) -> None:
        """Size everything by the first batch, or leave all as it was."""
        shape = tuple(x.shape[1:])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = self._build(self.given, shape) if isinstance(self.given, str) else self.given
            network = network.to(self.device)
            self._install(network, probe(network, x.to(self.device)))
        self.sample_shape, self.sample_type = shape, x.dtype
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
        self._pass = passages(network, self.parameters)
        self._replaced()

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """What draws from the global generator in here draws from the learner's own, as it were."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
            yield

    def _open_classes(self, classes: int) -> None:
        """Make room for so many classes in all."""

    def _replaced(self) -> None:
        """Tensors that `learn` works on were replaced: what was captured is void."""
        if self._captured is not None:
            self._captured.forget()

    # Resources and state.

    def footprint(self) -> dict[str, int]:
        """Bytes of the operational memory M, by part."""
        held = {"replay": self.memory.nbytes()} if self.memory is not None else {}
        return held | ({"asked": self.asked.nbytes()} if len(self.asked) else {})

    @property
    def network_name(self) -> str:
        """The network's name, or the class of the user's own."""
        return self.given if isinstance(self.given, str) else OWN_NETWORK + type(self.given).__qualname__

    def _identity(self) -> dict[str, Any]:
        """What a state and the learner that takes it up must agree on."""
        settings = dataclasses.asdict(self.settings)
        plain = {name: function_name(value) if callable(value) else value for name, value in settings.items()}
        return {"learner": self.name, "network": self.network_name, "settings": plain}

    @in_turn
    def state_dict(self) -> State:
        """Everything, as one flat dict of tensors and a JSON string "meta"."""
        meta = {
            "format": FORMAT,
            **self._identity(),
            "seed": self.seed,
            "sample_shape": self.sample_shape,
            "sample_type": str(self.sample_type).removeprefix("torch."),
            "labels": [encode_label(label) for label in self.classes],
            "batches": self.batches,
            "samples": self.samples,
        }
        state: State = {
            "generator": self.generator.get_state(),
            "meta": json.dumps(meta),
            **self.asked.state(),
        }
        if self.network is not None:
            state |= {f"network.{name}": part.clone() for name, part in self.network.state_dict().items()}
            state |= self._parts()
        return state

    def _parts(self) -> State:
        """The tensors of the state beside the network's and the generator's."""
        kept = {} if self.memory is None else self.memory.state()
        return {f"memory.{name}": part for name, part in kept.items()}

    @in_turn
    def load_state_dict(self, state: State) -> None:
        """Take up a state that `state_dict` gave: whole or, with a CheckpointError, not at all."""
        meta = read_meta(state)
        for part, mine in self._identity().items():
            if meta[part] != mine:
                raise CheckpointError(
                    f"this state has the {part} {meta[part]!r}, but the learner has {mine!r}"
                )
        settings = dataclasses.asdict(self.settings)
        twin = type(self)(self.given, seed=meta["seed"], device=str(self.device), **settings)
        try:
            twin._take(state, meta)
        except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
            raise CheckpointError(f"this state can't be taken up: {str(error).splitlines()[0]}") from None
        self.__dict__ = {**twin.__dict__, "_captured": self._captured, "_turn": self._turn}
        self._replaced()

    def _take(self, state: State, meta: dict[str, Any]) -> None:
        """Become what a state says; the network comes last, since it may be the user's own."""
        self.batches, self.samples = meta["batches"], meta["samples"]
        if meta["sample_shape"] is not None:
            self._begin(torch.zeros(2, *meta["sample_shape"], dtype=getattr(torch, meta["sample_type"])))
            for code in meta["labels"]:
                self.labels.add(decode_label(code))
            if self.labels:
                self._open_classes(len(self.labels))
            self._take_parts(state)
            self._take_network(under("network.", state))
        self.generator.set_state(state["generator"])
        self.asked.restore(state)

    def _take_parts(self, state: State) -> None:
        """Take up the tensors that `_parts` gave."""
        if self.memory is not None:
            self.memory.restore(under("memory.", state), self.device)

    def _take_network(self, weights: dict[str, Tensor]) -> None:
        self._check_network(weights)
        assert self.network is not None
        self.network.load_state_dict(weights)

    def _check_network(self, weights: dict[str, Tensor]) -> None:
        """Refuse the weights of another network, by name and shape."""
        assert self.network is not None
        mine = {name: part.shape for name, part in self.network.state_dict().items()}
        theirs = {name: part.shape for name, part in weights.items()}
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                shapes = [list(side[name]) if name in side else "absent" for side in (theirs, mine)]
                raise CheckpointError(f"{name} is {shapes[0]} in the state, {shapes[1]} in the network")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically."""
        checkpoint.write(self.state_dict(), path)


def read_meta(state: State) -> dict[str, Any]:
    """What a state says of itself, or a CheckpointError."""
    try:
        meta = json.loads(state["meta"])
        version = meta["format"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError("this is no state of a learner: it has no readable meta") from None
    if version != FORMAT:
        raise CheckpointError(
            f"this state is of format {version!r}, and this version of everlearn reads {FORMAT}"
        )
    missing = {
        "learner",
        "network",
        "settings",
        "seed",
        "sample_shape",
        "sample_type",
        "labels",
    } - meta.keys()
    if missing:
        raise CheckpointError(f"this state's meta lacks {', '.join(sorted(missing))}")
    return dict(meta)


def function_name(function: Any) -> str:
    """What stands in a state for a function of the user's."""
    return OWN_FUNCTION + getattr(function, "__qualname__", type(function).__qualname__)


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """The tensors of a state whose names begin so, without it."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}
