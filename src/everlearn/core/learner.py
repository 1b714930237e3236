"""The base class of all learners.

`observe` works on the host: it checks the input, maps labels to slots, makes the plan (what is replayed and what is
stored), and moves data to the device. There `learn` calls `step` for each iteration: the method itself, in tensor
operations only. The rest is in the files next to this one: validation, setup, prediction, forget, merge, state, ...
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.core import delayed_labels, display, execution, prediction, setup, softmax, state, validation
from everlearn.core.arguments import as_device, as_network, as_seed
from everlearn.core.calibration import Calibration
from everlearn.core.columns import Columns, encode
from everlearn.core.delayed_labels import WaitingSamples
from everlearn.core.drift import Drift, alarm
from everlearn.core.export import export_predictor
from everlearn.core.forget import drop_class, forget_label, memory_edited
from everlearn.core.images import ImageChanges
from everlearn.core.input_kind import Options
from everlearn.core.locking import LearnerLock
from everlearn.core.merge import check_merge, merge_learner, merge_memory
from everlearn.core.plan import Plan
from everlearn.core.prediction import NotLearntYet
from everlearn.core.rejection import Known
from everlearn.core.settings import Settings, make_settings
from everlearn.core.signature import describe
from everlearn.core.snapshot import copied, copy_for_snapshot, take_snapshot
from everlearn.core.standardisation import Standardisation, prepared_samples
from everlearn.encoders import as_encoder
from everlearn.memory.base import Integers
from everlearn.memory.labels import Label, LabelTable
from everlearn.memory.prototypes import Prototypes
from everlearn.networks import as_input, to_unit_length
from everlearn.streams.horizon import Horizon
from everlearn.training.averaging import WeightAverage
from everlearn.training.sgd import SGD
from everlearn.transaction import atomic

__all__ = ["Learner", "NotLearntYet", "Settings"]


class Learner(ABC):
    """Learns from a stream of batches, and predicts at any moment.

    network: `"mlp"`, the default, or `"slim-resnet18"`, sized by the first batch; `"identity"`, the default with an
        encoder, for samples that are already embeddings; or an nn.Module that maps x to an embedding.
    seed: fixes initialisation, replay and memory.
    device: `"auto"` (a GPU if there is one), or the name of a torch device.
    encoder: a frozen model that turns each sample into a vector before anything else sees it: a name such as
        `"wordllama"`, an nn.Module, or a function of a batch.
    settings: the fields of the learner's `Settings`.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Literal["t", "tasks", "classes"]]] = frozenset()
    tensors_alone: bool = True  # whether a CUDA graph can capture `step`: tensor operations only
    tensor_parts: ClassVar[tuple[str, ...]] = ()  # methods that it can, where `step` does more
    can_forget: bool = True  # whether a single class can be removed
    draws_vary: bool = False  # whether the classes of a batch determine how many exemplars are replayed
    horizon: ClassVar[Horizon] = Horizon()
    scenario: ClassVar[str | None] = None  # the order of the stream that the learner needs, if any
    Settings: ClassVar[type[Settings]] = Settings
    Memory: ClassVar[type[Any] | None] = None  # the class of its replay memory, if any
    networks: ClassVar[str] = "one"  # the networks that it keeps, besides averaged weights for predictions
    has_head: ClassVar[bool] = True  # whether it has a softmax head with one logit per class

    settings: Any
    sgd: SGD
    memory: Any  # M_r, the replay memory, if any
    prototype_memory: Prototypes | None = None  # M_p, if the method has prototypes
    head: Any = None
    network: Any = None  # built from the first batch (setup.py)
    sample_shape: tuple[int, ...] | None = None
    sample_type: torch.dtype | None = None
    images: ImageChanges | None = None
    average: WeightAverage | None = None
    standardises: ClassVar[bool] = True  # whether the method works with standardised samples
    input_kind: str | None = None  # what the first batch looks like (input_kind.py), and the options for it
    options: Options = Options()
    standardisation: Standardisation | None = None
    calibration: Calibration | None = None
    drift: Drift | None = None
    rejection: Known | None = None  # where known samples are, to reject others
    columns: Columns | None = None  # by name, if samples come as DataFrames
    weighs_samples: ClassVar[bool] = False  # whether `step` takes `sample_weights` into account
    sample_weights: Tensor | None = None  # of the new samples of the batch that is being learnt, `[batch]`
    batches = samples = 0
    unlabelled = 0  # the number of samples that had no label and were skipped
    newest = 0  # the number of batches before the newest class arrived
    traits = setup.NetworkTraits()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        describe(cls)

    def __init__(
        self,
        network: str | nn.Module | None = None,
        *,
        seed: int = 0,
        device: str = "auto",
        encoder: Any = None,
        **settings: Any,
    ) -> None:
        self.settings = make_settings(self.Settings, settings, type(self).__name__)
        self.seed, self.device = as_seed(seed), as_device(device)
        self.given, self.network_by_default = as_network(network, encoder is not None), network is None
        self.encoder = as_encoder(encoder)
        self.parameters: list[Tensor] = []
        self.generator = torch.Generator().manual_seed(self.seed)
        self.labels, self.waiting, self.lock = LabelTable(), WaitingSamples(), LearnerLock()
        self.memory = self.make_memory()
        if self.has_head:
            self.head = softmax.SoftmaxHead(self)
        self.graphs, self.part_graphs = execution.make_graphs(self), execution.make_part_graphs(self)

    # Learning.

    @atomic
    def observe(self, x: Any, y: Any, t: Any = None, sample_weight: Any = None) -> None:
        """Learn from a new batch: samples x, labels y and, for learners that need it, the task t.

        x: a tensor or array, sparse rows, or a DataFrame of pandas or polars.
        sample_weight: how much each sample counts in the loss: 2 is the sample twice, 0 leaves it out.
        """
        x, labels, new, weights = validation.checked_batch(self, x, y, t, sample_weight, "observe")
        if labels:
            setup.prepare_classes(self, x, new)  # the network, from the first batch; room for new labels
            setup.note_new_samples(self, x, labels)  # for calibration, drift and standardisation, if any
            plan = self.plan(labels).weighted(weights)
            self.count(len(x))
            execution.learn_batch(self, x, plan)  # `learn`, on the device; on a GPU as a CUDA graph

    @atomic
    def revisit(self, x: Any, y: Any, t: Any = None, sample_weight: Any = None) -> None:
        """Learn again from a batch of the current horizon. Nothing is stored or counted."""
        x, labels, _, weights = validation.checked_batch(self, x, y, t, sample_weight, "revisit")
        if labels:
            execution.learn_batch(self, x, self.plan(labels, keep=False).weighted(weights))

    def end_horizon(self) -> None:
        """Called at the end of each horizon D_t."""

    def plan(self, labels: list[Label], keep: bool = True) -> Plan:
        """What the host decides for a batch: the replay of each iteration and, if `keep`, the rows that store it."""
        self.invalidate()
        slots = np.array(self.labels.slots(labels))
        if self.memory is None:
            return Plan(slots)
        draws = [self.draw_replay(len(slots)) for _ in range(self.settings.iterations)]
        rows, old_slots, *extra = (np.array(parts) for parts in zip(*draws, strict=True))
        kept = self.memory.admit(slots) if keep else None
        if kept is not None and self.graphs is None and kept.min() >= self.memory.size:
            kept = None  # nothing to store; a CUDA graph has fixed shapes, and writes to the last row instead
        both = len(slots) + rows.shape[1]
        changes = () if self.images is None else self.images.draw(self.generator, len(rows), both)
        age = None if self.average is None else np.array([self.batches - self.newest])
        return Plan(slots, rows, old_slots, kept, changes, age, extra=tuple(extra))

    def draw_replay(self, batch: int) -> tuple[Integers, ...]:
        """Rows and slots of the exemplars replayed in one iteration; any further integers are passed to `step`."""
        return tuple(self.memory.draw(self.replay_size(batch)))

    def replay_size(self, batch: int) -> int:
        """How many exemplars are drawn for each iteration on a batch of this size."""
        return getattr(self.settings, "replayed", None) or max(batch, self.options.replayed or 0)

    def learn(self, x: Tensor, plan: Plan) -> None:
        """Everything done with one batch on the device, in tensor operations only: a CUDA graph captures this."""
        outcomes: list[Any] = []
        self.sample_weights = plan.weights
        replayed = None if plan.rows is None else self.prepared(self.memory.recall(plan.rows))
        samples, x = x, self.prepared(x)
        for i in range(self.settings.iterations):
            if replayed is None:
                outcomes.append(self.step(x, plan.slots))
                continue
            new, old = x, replayed[i]
            if self.images is not None:
                numbers = [number[i] for number in plan.changes]
                new, old = self.images.change(new, old, numbers, self.generator)
            extra = (part[i] for part in plan.extra)
            outcomes.append(self.step(new, plan.slots, old, plan.old_slots[i], *extra))
        with torch.inference_mode():
            execution.fit_calibration(self, plan, outcomes)
            self.after_steps(plan, outcomes)
            if plan.keep is not None:
                self.memory.write(samples, plan.keep)
        if self.average is not None and plan.age is not None:
            self.average.follow(self.options.averaging, plan.age)

    @abstractmethod
    def step(self, x: Tensor, slots: Tensor, *replay: Tensor) -> Any:
        """The method itself: one iteration, in tensor operations only. The result is passed to `after_steps`.

        x, slots: the batch B_n and its classes. replay: the same two of B_M, if there is a memory.
        """

    def fit_embedding(self, x: Tensor, loss: Any, weights: Tensor | None = None, **arguments: Any) -> Tensor:
        """One SGD step on a loss of the unit-length embeddings of x; returns the embeddings before the step.

        loss: a function of the embeddings and these arguments, with a closed-form `gradient`, as `ppp_loss` has.
        weights: how much the gradient of each sample counts, `[samples, 1]`.
        """
        forward = self.sgd.forward(as_input(x))
        features, lengths = to_unit_length(forward.output)
        if not self.parameters:  # a fixed embedding
            return features
        slope = loss.gradient(features, **arguments)
        if weights is not None:
            slope = slope * weights
        # Back through the division by the length, then through the network, and a step.
        forward.descend((slope - features * (features * slope).sum(1, keepdim=True)) / lengths)
        return features

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        """Called after the last iteration on a batch, in tensor operations only."""

    # For use in `step`. Those of a softmax head are in softmax.py.
    logits = softmax.logits
    fit = softmax.fit
    descend = softmax.descend
    prepared = prepared_samples
    seeded = setup.seeded
    weights = execution.weights  # of samples, by `sample_weight` and `new_share`; None if all count the same
    predictor = property(execution.predictor)  # the network that predicts: the averaged one, if there is one

    # For users. These are functions of a learner, in the files beside this one.
    predict = prediction.predict
    predict_proba = prediction.predict_proba
    embed = prediction.embed
    encode = encode
    ask = delayed_labels.ask
    tell = delayed_labels.tell
    forget = forget_label
    alarm = alarm
    merge = merge_learner
    snapshot = take_snapshot
    state_dict = state.state_of
    load_state_dict = state.load_into
    save = state.save
    export = export_predictor
    exemplars = display.exemplars
    network_name = property(display.network_name)
    __repr__ = display.as_text
    __copy__ = copied
    _repr_html_ = display.as_html

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    # For methods to override. These defaults are functions of a learner, too.
    scores = softmax.scores  # of samples: scores_of(predictor(x))
    scores_with = softmax.scores_with  # of samples, by another network
    scores_of = softmax.scores_of  # from the output of the network
    features = softmax.features
    install = softmax.install
    check_task = validation.check_task
    trained_network = validation.trained_network
    may_reject = property(validation.may_reject)
    forward_sizes = validation.forward_sizes
    begin = setup.begin
    use = setup.use_network
    prepare_network = setup.prepare_network
    forget_class = drop_class
    merge_from = merge_memory
    make_memory = setup.make_memory
    count = setup.count
    build = setup.build_trunk
    open_classes = setup.open_classes
    changing_parts = execution.changing_parts
    learnt_tensors = execution.learnt_tensors
    tensors_replaced = execution.tensors_replaced
    settle = execution.settle
    extra_state = state.extra_state
    restore_extra = state.restore_extra
    footprint = state.footprint
    memory_edited = memory_edited
    check_merge = check_merge
    copy_for_snapshot = copy_for_snapshot
    invalidate = execution.invalidate
