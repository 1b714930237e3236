"""The base class of all learners.

`observe` works on the host: it checks the input, maps labels to slots, makes the plan (what is replayed and what is
stored), and moves data to the device. `step` is the method itself, in tensor operations only.

The rest is in the files next to this one: validation, setup, prediction, delayed_labels, forget, merge, state.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.checkpoint import State
from everlearn.core import delayed_labels, forget, merge, prediction, setup, state, validation
from everlearn.core.delayed_labels import Told, WaitingSamples
from everlearn.core.execution import learn_batch
from everlearn.core.forget import drop_class
from everlearn.core.images import ImageChanges
from everlearn.core.locking import LearnerLock, synchronized
from everlearn.core.plan import Plan
from everlearn.core.prediction import NotLearntYet
from everlearn.core.settings import Settings, make_settings
from everlearn.core.signature import describe
from everlearn.core.snapshot import Snapshot, take_snapshot
from everlearn.core.softmax import SoftmaxHead
from everlearn.core.state import finite_state_of, load_into, state_of
from everlearn.memory.labels import Label, LabelTable
from everlearn.networks import as_input, to_unit_length, trunk
from everlearn.randomness import DrawFrom
from everlearn.streams.horizon import Horizon
from everlearn.training.averaging import WeightAverage
from everlearn.training.cuda_graph import Captured, Graphed
from everlearn.training.sgd import SGD
from everlearn.transaction import atomic

__all__ = ["Learner", "NotLearntYet", "Settings"]

OWN_NETWORK = "module:"


class Learner(ABC):
    """Learns from a stream of batches, and predicts at any moment.

    network: `"mlp"` or `"slim-resnet18"`, sized by the first batch; `"identity"` for samples that are already
        embeddings; or an nn.Module that maps x to an embedding.
    seed: fixes initialisation, replay and memory.
    device: `"auto"` (a GPU if there is one), or the name of a torch device.
    settings: the fields of the learner's `Settings`.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Literal["t", "tasks", "classes"]]] = frozenset()
    tensors_alone: bool = (
        True  # whether `step` is tensor operations only, so that a CUDA graph can capture it
    )
    can_forget: bool = True  # whether a single class can be removed
    horizon: ClassVar[Horizon] = Horizon()
    scenario: ClassVar[str | None] = None  # the order of the stream that the learner needs, if any
    Settings: ClassVar[type[Settings]] = Settings
    Memory: ClassVar[type[Any] | None] = None  # the class of its replay memory, if any
    has_head: ClassVar[bool] = True  # whether it has a softmax head with one logit per class

    settings: Any
    sgd: SGD
    network: Any = None  # built from the first batch (setup.py)
    sample_shape: tuple[int, ...] | None = None
    sample_type: torch.dtype | None = None
    images: ImageChanges | None = None
    average: WeightAverage | None = None
    rejection_threshold: float | None = None
    batches = samples = 0
    newest = 0  # the number of batches before the newest class arrived
    accepted_sizes: frozenset[int] = frozenset()  # batch sizes that the network is known to accept
    network_draws = False  # whether the network draws random numbers in training mode, like dropout
    has_buffers = False  # whether the network has buffers, and those that must stay finite
    finite_buffers: tuple[Tensor, ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        describe(cls)

    def __init__(
        self, network: str | nn.Module = "mlp", *, seed: int = 0, device: str = "auto", **settings: Any
    ) -> None:
        self.settings = make_settings(self.Settings, settings, type(self).__name__)
        self.seed = validation.as_seed(seed)
        self.device = validation.as_device(device)
        validation.check_network(network)
        self.given = network
        self.parameters: list[Tensor] = []
        self.generator = torch.Generator().manual_seed(self.seed)
        self.labels = LabelTable()
        self.waiting = WaitingSamples()
        self.memory: Any = self.make_memory()
        self.head = SoftmaxHead(self) if self.has_head else None
        self.lock = LearnerLock()
        if callable(getattr(self.settings, "augmentation", None)):
            self.tensors_alone = False  # a user's function may do anything
        graphs = self.device.type == "cuda" and self.tensors_alone
        self.graphs: Graphed | None = Captured(self.learn) if graphs else None

    def make_memory(self) -> Any:
        """Make the replay memory, if the method has one."""
        return self.Memory and self.Memory(self.settings.memory_size, self.labels, self.generator)

    # Learning.

    @atomic
    def observe(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn from a new batch: samples x, labels y and, for learners that need it, the task t."""
        x, labels, new = validation.check_batch(self, x, y, "observe")
        validation.try_forward(self, x)
        self.check_task(t, "observe")
        setup.prepare_classes(self, x, new)
        learn_batch(self, x, self.plan(labels))
        self.count(len(x))

    @atomic
    def revisit(self, x: Any, y: Any, t: Any = None) -> None:
        """Learn again from a batch of the current horizon. Nothing is stored or counted."""
        x, labels, new = validation.check_batch(self, x, y, "revisit")
        validation.try_forward(self, x)
        validation.check_known(self, new)
        self.check_task(t, "revisit")
        learn_batch(self, x, self.plan(labels, keep=False))

    def end_horizon(self) -> None:
        """Called at the end of each horizon D_t."""

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """Decide what is done with a batch: the replay of each iteration, and the rows where samples are stored.

        labels: of the batch, each with a slot. keep: whether the batch is stored.
        """
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        if self.memory is None:
            return Plan(slots)
        iterations = self.settings.iterations
        draws = [self.memory.draw(self.replay_size(len(slots))) for _ in range(iterations)]
        rows, old_slots = (np.array(parts) for parts in zip(*draws, strict=True))
        kept = self.memory.admit(slots) if keep else None
        if kept is not None and self.device.type == "cpu" and kept.min() >= self.memory.size:
            kept = None  # nothing to store; a CUDA graph has fixed shapes, and writes to the last row instead
        both = len(slots) + rows.shape[1]
        changes = () if self.images is None else self.images.draw(self.generator, iterations, both)
        age = None if self.average is None else np.array([self.batches - self.newest])
        return Plan(slots, rows, old_slots, kept, changes, age)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Everything done with one batch on the device, in tensor operations only: a CUDA graph captures this."""
        outcomes: list[Any] = []
        replayed = None if plan.rows is None else self.memory.recall(plan.rows)
        for i in range(self.settings.iterations):
            if replayed is None:
                outcomes.append(self.step(x, plan.slots))
                continue
            new, old = x, replayed[i]
            if self.images is not None:
                numbers = [number[i] for number in plan.changes]
                new, old = self.images.change(new, old, numbers, self.generator)
            outcomes.append(self.step(new, plan.slots, old, plan.old_slots[i]))
        with torch.inference_mode():
            self.after_steps(plan, outcomes)
            if plan.keep is not None:
                self.memory.write(x, plan.keep)
        if self.average is not None and plan.age is not None:
            self.average.follow(self.settings.averaging, plan.age)

    @abstractmethod
    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Any:
        """The method itself: one iteration, in tensor operations only. The result is passed to `after_steps`.

        x, slots: the batch B_n and its classes. replay: the same two of B_M, if there is a memory.
        """

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        """Called after the last iteration on a batch, in tensor operations only."""

    def count(self, samples: int) -> None:
        """Count an observed batch."""
        self.batches += 1
        self.samples += samples

    # For use in `step`.

    def logits(self, x: Tensor) -> Tensor:
        """The logits in training mode, with outputs of unseen classes masked."""
        assert self.head is not None
        return self.head.logits(x)

    def fit(self, x: Tensor, slots: Tensor) -> None:
        """One SGD step on the mean cross-entropy."""
        assert self.head is not None
        self.head.fit(x, slots)

    def fit_embedding(self, x: Tensor, loss: Any, **arguments: Any) -> Tensor:
        """One SGD step on a loss of the unit-length embeddings of x; returns the embeddings before the step.

        loss: a function of the embeddings and these arguments, with a closed-form `gradient`, as `ppp_loss` has.
        """
        forward = self.sgd.forward(as_input(x))
        features, lengths = to_unit_length(forward.output)
        if not self.parameters:  # a fixed embedding
            return features
        slope = loss.gradient(features, **arguments)
        forward.descend((slope - features * (features * slope).sum(1, keepdim=True)) / lengths)
        return features

    def descend(self, loss: Tensor) -> None:
        """One SGD step on a loss, by autograd; nothing where the network has nothing to train."""
        if self.parameters:
            self.sgd.step(torch.autograd.grad(loss, self.parameters))

    def seeded(self) -> DrawFrom:
        """A context in which random numbers are drawn with a seed from the learner's generator."""
        seed = int(torch.randint(2**31, (), generator=self.generator))
        return DrawFrom(torch.Generator().manual_seed(seed))

    @property
    def predictor(self) -> Any:
        """The network used for predictions: the averaged one, if there is one."""
        return self.network if self.average is None else self.average.network

    # For users.

    def predict(self, x: Any) -> list[Label]:
        """The label of each sample, among those seen so far; UNKNOWN where the learner rejects the sample."""
        return prediction.predict(self, x)

    def predict_proba(self, x: Any) -> NDArray[np.float32]:
        """A row of probabilities per sample, over `classes`."""
        return prediction.predict_proba(self, x)

    def embed(self, x: Any) -> Tensor:
        """The features of each sample that predictions are based on, `[samples, d]`."""
        return prediction.in_chunks(self, x, "embed", self.features)

    @atomic
    def ask(self, ids: Any, x: Any) -> list[Label]:
        """Predict, and store the last `waiting` samples by id until `tell` gives their labels."""
        return delayed_labels.ask(self, ids, x)

    @atomic
    def tell(self, ids: Any, y: Any, t: Any = None) -> Told:
        """Learn, as one batch, from samples given to `ask` earlier, now that their labels are known."""
        return delayed_labels.tell(self, ids, y, t)

    @atomic
    def forget(self, label: Label) -> None:
        """Remove a class: prototype, exemplars, counters, logit. If it comes again, it is a new class."""
        forget.forget(self, label)

    def merge(self, other: Self) -> None:
        """Merge the memory of another learner into this one; the other is not changed. The weights stay."""
        merge.merge(self, other)

    @synchronized
    def snapshot(self) -> Snapshot:
        """An immutable copy of the learner as it is now, for predictions only."""
        return take_snapshot(self)

    @synchronized
    def state_dict(self) -> State:
        """The complete state, as one flat dict of tensors and a JSON string "meta"."""
        return state_of(self)

    @synchronized
    def load_state_dict(self, state: State) -> None:
        """Load a state from `state_dict`; if it is not valid, raise a CheckpointError and change nothing."""
        load_into(self, state)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to one safetensors file, atomically. A network that has diverged is not saved."""
        checkpoint.write(finite_state_of(self), path)

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    @property
    def network_name(self) -> str:
        """The network's name, or the class of the user's module."""
        return self.given if isinstance(self.given, str) else OWN_NETWORK + type(self.given).__qualname__

    def exemplars(self) -> dict[Label, int]:
        """The number of exemplars of each class in the replay memory."""
        return {} if self.memory is None else self.memory.counts()

    # For methods to override. These defaults are functions of a learner (setup.py, forget.py, state.py):
    begin = setup.begin
    use = setup.use_network
    prepare_network = setup.prepare_network
    forget_class = drop_class
    extra_state = state.extra_state
    restore_extra = state.restore_extra
    footprint = state.footprint

    def scores(self, x: Tensor) -> Tensor:
        """The score of each class seen, `[samples, classes]`; their softmax gives the probabilities."""
        assert self.head is not None
        return self.head.scores(x)

    def features(self, x: Tensor) -> Tensor:
        """The features that `embed` returns, `[samples, d]`."""
        assert self.head is not None
        return self.head.features(x)

    def build(self, name: str, shape: tuple[int, ...]) -> nn.Module:
        """Build the named network for samples of this shape, without a head."""
        return trunk(name, shape, self.settings.hidden)[0]

    def install(self, network: nn.Module, features: int) -> None:
        """Start with a network whose output has this number of features."""
        assert self.head is not None
        self.head.install(network, features)

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        if self.head is not None:
            self.head.open_classes(classes)
        if self.memory is not None:
            self.memory.open_classes(classes)
        self.newest = self.batches

    def merge_from(self, other: Any, slots: NDArray[np.int64]) -> None:
        """Merge what another learner stores. slots: the slot here of each of its classes; all are open."""
        self.memory.merge(other.memory, slots)
        self.newest += other.batches  # they count from now on, but this network has not learnt from them

    def check_merge(self, other: Any) -> None:
        """Raise a ValueError if the method can't merge this learner."""

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Give the copy `frozen` its own version of anything else that predictions use."""

    def invalidate(self) -> None:
        """Drop values computed from the weights, the memory or the classes: these are about to change."""
        self.rejection_threshold = None

    def changing_parts(self) -> list[object]:
        """The objects whose attributes change while learning; a transaction can undo these changes."""
        parts = (self, self.labels, self.waiting, self.memory, self.head)
        return [part for part in parts if part is not None]

    # Batches.

    def trained_network(self) -> Any:
        """The network that batches pass in training mode."""
        return self.network

    @property
    def may_reject(self) -> bool:
        """Whether the network may reject a batch of the right shape, as batch norm does with a single sample."""
        return self.given not in ("mlp", "identity")

    def forward_sizes(self, batch: int) -> set[int]:
        """The sizes of the forward passes in training mode for a batch of this size."""
        return {batch if self.memory is None else batch + min(self.replay_size(batch), len(self.memory))}

    def replay_size(self, batch: int) -> int:
        """How many exemplars are drawn for each iteration on a batch of this size."""
        return getattr(self.settings, "replayed", None) or batch

    def check_task(self, t: Any, method: str) -> int | None:
        """The task of the batch as an int, if the learner needs it."""
        return validation.as_task(t, f"{type(self).__name__}.{method}") if "t" in self.needs else None

    def tensors_replaced(self) -> None:
        """Drop the CUDA graphs, after tensors that `learn` uses were replaced."""
        if self.graphs is not None:
            self.graphs.forget()
