"""The contract that all learners share.

`observe` is the boundary to the host: it checks the input, maps labels to slots, decides what is replayed and kept
(the plan), and moves data to the device. `step` is the method itself, in tensors alone.

A learner has parts: a memory, a softmax head, changes of images, averaged weights, samples that wait for labels.
What it can do beside learning is in the files next to this one: prediction, delayed_labels, forget, merge, snapshot
and state.
"""

from __future__ import annotations

import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Hashable
from contextlib import nullcontext
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.checkpoint import State
from everlearn.core import delayed_labels, prediction, validation
from everlearn.core import forget as forgetting
from everlearn.core import merge as merging
from everlearn.core import state as states
from everlearn.core.delayed_labels import Told, WaitingSamples
from everlearn.core.images import ImageChanges
from everlearn.core.locking import LearnerLock, waits
from everlearn.core.plan import Plan
from everlearn.core.prediction import NotLearntYet
from everlearn.core.settings import ReplaySettings, Settings, made, plain
from everlearn.core.signature import describe
from everlearn.core.snapshot import Snapshot, take_snapshot
from everlearn.core.softmax import SoftmaxHead
from everlearn.memory.base import ReplayMemory
from everlearn.memory.labels import Label, LabelTable, as_labels, shortened
from everlearn.networks import as_input, to_unit_length, trunk
from everlearn.randomness import DrawFrom
from everlearn.streams.horizon import Horizon
from everlearn.training.averaging import WeightAverage
from everlearn.training.cuda_graph import Captured, Graphed
from everlearn.training.sgd import SGD, NotFinite, finite_norm, with_gradients
from everlearn.transaction import atomic, current

__all__ = ["Learner", "NotLearntYet", "Settings"]

OWN_NETWORK = "module:"
LARGEST_TASK = 2**63 - 1


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
    can_forget: bool = True  # whether what it knows of a class lies where it can be removed
    horizon: ClassVar[Horizon] = Horizon()
    scenario: ClassVar[str | None] = None  # the order of the stream that it asks for, if it does
    Settings: ClassVar[type[Settings]] = Settings
    Memory: ClassVar[type[ReplayMemory] | None] = None  # what kind of replay memory it has, if any
    has_head: ClassVar[bool] = True  # whether it has a softmax over one logit per class

    settings: Any
    sgd: SGD

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        describe(cls)

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = made(self.Settings, settings, type(self).__name__)
        self.seed = validation.as_seed(seed)
        self.device = validation.as_device(device)
        validation.check_network(network)
        self.given = network
        self.network: Any = None
        self.parameters: list[Tensor] = []
        self.generator = torch.Generator().manual_seed(self.seed)
        self.labels = LabelTable()
        self.batches = 0
        self.samples = 0
        self.newest = 0  # how many batches had been observed when the newest class came
        self.sample_shape: tuple[int, ...] | None = None
        self.sample_type: torch.dtype | None = None
        self.waiting = WaitingSamples()
        self.memory: Any = self.make_memory()
        self.head = SoftmaxHead(self) if self.has_head else None
        self.images: ImageChanges | None = None
        self.average: WeightAverage | None = None
        self.rejection_threshold: float | None = None
        self.lock = LearnerLock()
        self._lengths: set[int] = set()  # how many samples a network that may refuse is known to take at once
        self._network_draws = (
            False  # whether the network draws random numbers in training mode, as dropout does
        )
        self._buffers: list[Tensor] = []  # of the network, and those of them that are finite and must stay so
        self._finite_buffers: list[Tensor] = []
        if callable(getattr(self.settings, "augmentation", None)):
            self.tensors_alone = False  # nobody knows what a user's function does
        graphs = self.device.type == "cuda" and self.tensors_alone
        self.graphs: Graphed | None = Captured(self.learn) if graphs else None

    def make_memory(self) -> ReplayMemory | None:
        """The replay memory, if it has one."""
        if self.Memory is None:
            return None
        return self.Memory(self.settings.memory_size, self.labels, self.generator)

    # Learning.

    @atomic
    def observe(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from one batch, the first time it is seen."""
        x, labels, new = self.accept(x, y, "observe")
        self.try_batch(x)
        self.hear(t, "observe")
        self.meet(x, new)
        self.learn_batch(x, self.plan(labels))
        self.count(len(x))

    @atomic
    def revisit(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from a batch again, where the horizon is wider than a batch. Nothing is stored or counted."""
        x, labels, new = self.accept(x, y, "revisit")
        self.try_batch(x)
        if new:
            raise ValueError(
                f"{type(self).__name__}.revisit got the label {shortened(new[0])}, which was never observed"
            )
        self.hear(t, "revisit")
        self.learn_batch(x, self.plan(labels, keep=False))

    def end_horizon(self) -> None:
        """The horizon D_t is over."""

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """What the host decides for a batch: its slots, the replay of each iteration, the rows that keep it.

        labels: all seen by now. keep: whether the batch is stored.
        """
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        if self.memory is None:
            return Plan(slots)
        iterations = self.settings.iterations
        draws = [self.memory.draw(self.drawn(len(slots))) for _ in range(iterations)]
        rows, old_slots = (np.array(parts) for parts in zip(*draws, strict=True))
        kept = self.memory.admit(slots) if keep else None
        if kept is not None and self.device.type == "cpu" and kept.min() >= self.memory.size:
            kept = None  # none of them is; a captured step has fixed shapes, and writes to the last row then
        changes: tuple[NDArray[np.int64], ...] = ()
        if self.images is not None:
            changes = self.images.draw(self.generator, iterations, len(slots) + rows.shape[1])
        age = None if self.average is None else np.array([self.batches - self.newest])
        return Plan(slots, rows, old_slots, kept, changes, age)

    def learn_batch(self, x: Tensor, plan: Plan) -> None:
        """Learn from a batch as the plan says, on the device."""
        self.prepare_network()
        drawing = DrawFrom(self.generator) if self._network_draws else nullcontext()
        try:
            with drawing, with_gradients():
                (self.graphs or self.learn)(x.to(self.device), plan.on(self.device))
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):
                raise
            raise MemoryError(
                f"out of memory: a batch of {len(x)} samples of {len(self.labels)} classes is too large to learn "
                "from at once; observe it in parts"
            ) from None
        transaction = current()
        if transaction is not None and not transaction.is_finite():
            raise NotFinite
        if self._finite_buffers and self.device.type == "cpu":
            finite_norm(self._finite_buffers)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """All that is done with one batch, in tensors alone: what a CUDA graph captures."""
        outcomes: list[Any] = []
        replayed = None if plan.rows is None else self.memory.recall(plan.rows)
        for i in range(self.settings.iterations):
            if replayed is None:
                outcomes.append(self.step(x, plan.slots))
                continue
            new, old = x, replayed[i]
            if self.images is not None:
                new, old = self.images.change(
                    new, old, [numbers[i] for numbers in plan.changes], self.generator
                )
            outcomes.append(self.step(new, plan.slots, old, plan.old_slots[i]))
        with torch.inference_mode():
            self.settle(plan, outcomes)
            if plan.keep is not None:
                self.memory.write(x, plan.keep)
        if self.average is not None and plan.age is not None:
            self.average.follow(self.settings.averaging, plan.age)

    @abstractmethod
    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Any:
        """The method itself, one iteration, in tensors alone. What it returns is handed to `settle`.

        x, slots: the batch B_n and its classes. replay: the same two of B_M, if there is a memory.
        """

    def settle(self, plan: Plan, outcomes: list[Any]) -> None:
        """What follows the last iteration on a batch, in tensors alone."""

    def count(self, samples: int) -> None:
        """A batch of so many samples was observed."""
        self.batches += 1
        self.samples += samples

    # What a step may use.

    def logits(self, x: Tensor) -> Tensor:
        """The logits in training mode; those of no class yet take no part in a softmax."""
        assert self.head is not None
        return self.head.logits(x)

    def fit(self, x: Tensor, slots: Tensor) -> None:
        """One step of SGD on the mean cross-entropy."""
        assert self.head is not None
        self.head.fit(x, slots)

    def fit_embedding(self, x: Tensor, loss: Any, **arguments: Any) -> Tensor:
        """One step of SGD on a loss of the unit-length embeddings of x; gives the embeddings from before it.

        loss: a function of the embeddings and of these arguments. Where it has a closed-form `gradient`, that is
        used in place of autograd.
        """
        passed = self.sgd.forward(as_input(x))
        features, lengths = to_unit_length(passed.output)
        if not self.parameters:  # a fixed embedding
            return features
        slope = loss.gradient(features, **arguments)
        passed.descend((slope - features * (features * slope).sum(1, keepdim=True)) / lengths)
        return features

    def descend(self, loss: Tensor) -> None:
        """One step of plain SGD down a loss."""
        self.sgd.step(torch.autograd.grad(loss, self.parameters))

    @property
    def predictor(self) -> nn.Module:
        """The network that predictions are made with: the averaged one, where there is one."""
        network: nn.Module = self.network if self.average is None else self.average.network
        return network

    # What a user calls, beside `observe`.

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen so far; UNKNOWN where it may say so and is not sure enough."""
        return prediction.predict(self, x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return prediction.predict_proba(self, x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample from which the prediction is made, `[samples, d]`; never of a mirror image."""
        return prediction.in_chunks(self, x, "embed", self.features)

    @atomic
    def ask(self, ids: Any, x: Any) -> list[Label]:
        """Predict, and keep the samples until their labels are told; before the first label, all is UNKNOWN.

        ids: what to call each sample, of the kinds that labels are. Only the last `waiting` samples are kept.
        """
        return delayed_labels.ask(self, ids, x)

    @atomic
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
        return delayed_labels.tell(self, ids, y, t)

    @atomic
    def forget(self, label: Label) -> None:
        """Remove a class at once and for good: prototype, exemplars, counters, logit. It may come again, as new."""
        forgetting.forget(self, label)

    def merge(self, other: Self) -> None:
        """Take in what another learner keeps, which saw another part of the stream and stays as it is.

        Memories combine by their own rule; prototypes are taken anew from memory. The weights stay this one's.
        """
        merging.merge(self, other)

    @waits
    def snapshot(self) -> Snapshot:
        """The learner as it is now, for predictions alone: it stays as it is while this one goes on."""
        return take_snapshot(self)

    @waits
    def state_dict(self) -> State:
        """Everything, as one flat dict of tensors and a JSON string "meta"."""
        return states.state_of(self)

    @waits
    def load_state_dict(self, state: State) -> None:
        """Load a state that `state_dict` gave: whole or, with a CheckpointError, not at all."""
        states.load_into(self, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically; never a network that has diverged."""
        checkpoint.write(states.finite_state_of(self), path)

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    @property
    def network_name(self) -> str:
        """The network's name, or the class of the user's own."""
        return self.given if isinstance(self.given, str) else OWN_NETWORK + type(self.given).__qualname__

    def exemplars(self) -> dict[Label, int]:
        """How many exemplars of each class the replay memory holds."""
        return {} if self.memory is None else self.memory.counts()

    def footprint(self) -> dict[str, int]:
        """Bytes of the operational memory M, by part."""
        parts = {
            "replay": None if self.memory is None else self.memory.nbytes(),
            "asked": self.waiting.nbytes() or None,
            "averaged weights": None if self.average is None else self.average.nbytes(),
            "views": None if self.images is None else self.images.nbytes() or None,
        }
        return {name: held for name, held in parts.items() if held is not None}

    # What a method defines: how it predicts, its network, and room for classes.

    def scores(self, x: Tensor) -> Tensor:
        """The log-odds of each class seen, `[samples, classes]`, of samples as the network takes them."""
        assert self.head is not None
        return self.head.scores(x)

    def features(self, x: Tensor) -> Tensor:
        """What `embed` gives, of samples as the network takes them."""
        assert self.head is not None
        return self.head.features(x)

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """The named network for samples of this shape, without a head."""
        return trunk(name, shape, self.settings.hidden)[0]

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network that gives so many features."""
        assert self.head is not None
        self.head.install(network, features)

    def open_classes(self, classes: int) -> None:
        """Make room for so many classes in all."""
        if self.head is not None:
            self.head.open_classes(classes)
        if self.memory is not None:
            self.memory.open_classes(classes)
        self.newest = self.batches

    def forget_class(self, slot: int) -> None:
        """Drop what is kept of a class; those after it move down by one."""
        average, self.average = self.average, None
        if self.memory is not None:
            self.memory.forget(slot)
        if self.head is not None:
            self.head.forget(slot)
        if average is not None:
            average = average.copy()
            average.forget(slot)
            self.average = WeightAverage(self.network, average)

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Take in what another learner keeps. slots: where each of its classes lies here; all of them are open."""
        self.memory.merge(other.memory, slots)
        self.newest += other.batches  # which count from now on, but have taught this network nothing

    def check_merge(self, other: Any) -> None:
        """Refuse a learner that can't be merged, where that is for the method to say."""

    def hold_still(self, still: Any) -> None:
        """Give a snapshot its own copy of whatever else predictions are made from."""

    def invalidate(self) -> None:
        """Drop what was computed from the weights, the memory or the classes: they change."""
        self.rejection_threshold = None

    def extra_state(self) -> State:
        """The tensors of the state beside the network's and the generator's."""
        state: State = {}
        if self.memory is not None:
            state |= {f"memory.{name}": part for name, part in self.memory.state().items()}
        if self.average is not None:
            weights = self.average.network.state_dict()
            state |= {f"average.{name}": part.clone() for name, part in weights.items()}
            state["newest"] = torch.tensor(self.newest)
        return state

    def restore_extra(self, state: State) -> None:
        """Load the tensors that `extra_state` gave."""
        states.check_network(self, states.under("network.", state))  # what else there is depends on it
        states.restore_memory(self, state)
        if self.average is not None:
            self.average.network.load_state_dict(states.under("average.", state))
            self.newest = int(state["newest"])
            if not 0 <= self.newest <= self.batches:
                raise ValueError(f"newest is {self.newest} in the state of {self.batches} batches")

    def identity(self) -> dict[str, Any]:
        """What a state and the learner that loads it must agree on, and two learners that merge."""
        return {"learner": self.name, "network": self.network_name, "settings": plain(self.settings)}

    def changing_parts(self) -> list[object]:
        """The objects whose attributes change when it learns; a transaction takes these changes back."""
        parts = (self, self.labels, self.waiting, self.memory, self.head)
        return [part for part in parts if part is not None]

    # The boundary to the host.

    def checked(self, x: Any, method: str) -> Tensor:
        """Samples as a tensor that passed every check."""
        where = f"{type(self).__name__}.{method}"
        samples = validation.as_samples(x, where, keep_integers=isinstance(self.given, nn.Module))
        validation.check_samples(samples, where, self.sample_shape, self.sample_type)
        return samples

    def accept(self, x: Any, y: Any, method: str = "observe") -> tuple[Tensor, list[Label], list[Label]]:
        """A batch that passed every check: samples, labels, and those of the labels that are new."""
        x = self.checked(x, method)
        labels = as_labels(y)
        if len(labels) != len(x):
            raise ValueError(f"{type(self).__name__}.{method} got {len(x)} samples but {len(labels)} labels")
        new = self.labels.new(labels)
        self.check_room(len(self.labels) + len(new))
        return x, labels, new

    def check_room(self, classes: int) -> None:
        """Refuse more classes than the memory can keep an exemplar of."""
        room = getattr(self.settings, "memory_size", classes)
        if classes > room:
            raise ValueError(f"a memory of {room} has no room for an exemplar of each of {classes} classes")

    def try_batch(self, x: Tensor) -> None:
        """Let a network or a function of the user's refuse a batch in a clear sentence before it is learnt."""
        network = self.trained_network()
        if network is not None and self.may_refuse:
            lengths = self.passed(len(x)) - self._lengths
            with DrawFrom(torch.Generator()) as tried:
                validation.try_batch(network, x.to(self.device), lengths)
            self._network_draws = self._network_draws or tried.drawn
            self._lengths |= lengths
        if callable(getattr(self.settings, "augmentation", None)):
            with DrawFrom(torch.Generator()):
                ImageChanges.own_view(self.settings.augmentation, x.to(self.device, copy=True))

    def trained_network(self) -> nn.Module | None:
        """What a batch passes in training mode, and what may refuse it."""
        network: nn.Module | None = self.network
        return network

    @property
    def may_refuse(self) -> bool:
        """Whether the network may refuse a batch of a shape that is right: batch-norm does, if it is a single one."""
        return self.given not in ("mlp", "identity")

    def passed(self, batch: int) -> set[int]:
        """How many samples pass the network together, in training mode, when a batch of this size is learnt."""
        return {batch if self.memory is None else batch + min(self.drawn(batch), len(self.memory))}

    def drawn(self, batch: int) -> int:
        """How many exemplars are drawn from the memory for an iteration on a batch of this size."""
        return getattr(self.settings, "replayed", None) or batch

    def hear(self, t: Any, method: str) -> int | None:
        """The task of the batch, checked, if the learner needs to know it."""
        if "t" not in self.needs:
            return None
        name = type(self).__name__
        try:
            task = operator.index(t)
        except TypeError:
            raise ValueError(
                f"{name}.{method} must be told t, the task of the batch, as an integer, not {shortened(t)}: "
                f"{method}(x, y, t)"
            ) from None
        if abs(task) > LARGEST_TASK:
            raise ValueError(f"{name}.{method} takes a t of at most 64 bits, not one of {task.bit_length()}")
        return task

    @atomic
    def welcome(self, x: Any, y: Any) -> None:
        """Get ready for a batch with new labels without learning from it, after the same checks."""
        x, _, new = self.accept(x, y, "observe")
        self.invalidate()
        self.meet(x, new)

    def meet(self, x: Tensor, new: list[Label]) -> None:
        """Size everything by the first batch, and make room for new labels."""
        if self.sample_shape is None:
            self.begin(x)
        if new:
            self.labels.extend(new)
            self.open_classes(len(self.labels))

    def begin(self, x: Tensor) -> None:
        """Size everything by the first batch."""
        shape = tuple(x.shape[1:])
        if isinstance(self.settings, ReplaySettings):
            self.images = ImageChanges(self.settings, x, self.device)
        with DrawFrom(torch.Generator().manual_seed(self.seed)):
            network = self.build(self.given, shape) if isinstance(self.given, str) else self.given
            network = network.to(self.device)
            with DrawFrom(torch.Generator()) as probed:
                features = validation.probe(network, x.to(self.device))
            self._network_draws = probed.drawn
            self.install(network, features)
        self.sample_shape, self.sample_type = shape, x.dtype
        self.waiting.keep_only(shape, x.dtype)
        if self.memory is not None:
            self.memory.allocate(x, self.device)

    def use(self, network: nn.Module) -> None:
        """Train this network from now on."""
        self.network = network.train().to(self.device)
        if self.device.type == "cpu" and any(isinstance(part, nn.Conv2d) for part in network.modules()):
            # Half as fast again on one core of a CPU (benchmarks/step.py); on a GPU no gain at these sizes.
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = [part for part in network.parameters() if part.requires_grad]
        self._buffers = list(network.buffers())
        floating = (part for part in self._buffers if part.is_floating_point())
        self._finite_buffers = [part for part in floating if bool(part.isfinite().all())]
        self.sgd = SGD(network, self.parameters, self.settings.learning_rate, self.settings.clip)
        if getattr(self.settings, "averaging", 0):
            self.average = WeightAverage(network, self.average)
        self.tensors_replaced()

    def prepare_network(self) -> None:
        """Put the network into training mode, and let a transaction remember what a pass changes."""
        if not self.network.training:
            self.network.train()
        transaction = current()
        if transaction is not None and self._buffers:
            transaction.keep_buffers(self.network)

    def tensors_replaced(self) -> None:
        """Tensors that `learn` works on were replaced: invalidate the CUDA graphs."""
        if self.graphs is not None:
            self.graphs.forget()

    def seeded(self) -> DrawFrom:
        """What is drawn inside depends on the learner's own generator alone, which draws one number for it."""
        return DrawFrom(
            torch.Generator().manual_seed(int(torch.randint(2**31, (), generator=self.generator)))
        )

    def shape(self, batch: int) -> tuple[Hashable, ...]:
        """What of the settings the shapes of a plan depend on, for a batch of this size: alike in a cohort."""
        shape = self.settings.iterations, self.drawn(batch)
        if not isinstance(self.settings, ReplaySettings):
            return shape
        added = self.settings
        return *shape, added.augmentation, added.colour > 0, added.mixing > 0, added.averaging > 0
