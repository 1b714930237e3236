"""The base class of all learners.

`observe` works on the host: it checks the input, maps labels to slots, makes the plan (what is replayed and what is
stored), and moves data to the device. `step` is the method itself, in tensor operations only.

The rest is in the files next to this one: validation, setup, prediction, delayed_labels, forget, merge, state.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.core import (
    class_means,
    delayed_labels,
    display,
    execution,
    prediction,
    setup,
    softmax,
    state,
    validation,
)
from everlearn.core.calibration import Calibration
from everlearn.core.columns import Columns, encode
from everlearn.core.delayed_labels import WaitingSamples
from everlearn.core.drift import Drift, alarm
from everlearn.core.export import export_predictor
from everlearn.core.forget import drop_class, forget_label
from everlearn.core.images import ImageChanges
from everlearn.core.input_kind import Options
from everlearn.core.locking import LearnerLock
from everlearn.core.merge import merge_learner, merge_memory
from everlearn.core.plan import Plan, draw_replay, plan_batch, replay_size
from everlearn.core.prediction import NotLearntYet
from everlearn.core.rejection import Known
from everlearn.core.row_selection import select_rows
from everlearn.core.settings import Settings, make_settings
from everlearn.core.signature import describe
from everlearn.core.snapshot import take_snapshot
from everlearn.core.standardisation import Standardisation, prepared_samples
from everlearn.encoders import as_encoder
from everlearn.memory.labels import Label, LabelTable
from everlearn.memory.prototypes import Prototypes
from everlearn.streams.horizon import Horizon
from everlearn.training.averaging import WeightAverage
from everlearn.training.sgd import SGD
from everlearn.transaction import atomic

__all__ = ["Learner", "NotLearntYet", "Settings"]


class Learner(ABC):
    """Learns from a stream of batches, and predicts at any moment.

    network: `"mlp"` or `"slim-resnet18"`, sized by the first batch; `"identity"` for samples that are already
        embeddings; or an nn.Module that maps x to an embedding.
    seed: fixes initialisation, replay and memory.
    device: `"auto"` (a GPU if there is one), or the name of a torch device.
    encoder: a frozen model that turns each sample into a vector before anything else sees it: a name such as
        `"wordllama"`, an nn.Module, or a function of a batch.
    settings: the fields of the learner's `Settings`.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[Literal["t", "tasks", "classes"]]] = frozenset()
    tensors_alone: bool = True  # whether a CUDA graph can capture `step`: tensor operations only
    can_forget: bool = True  # whether a single class can be removed
    draws_vary: bool = False  # whether the classes of a batch determine how many exemplars are replayed
    horizon: ClassVar[Horizon] = Horizon()
    scenario: ClassVar[str | None] = None  # the order of the stream that the learner needs, if any
    Settings: ClassVar[type[Settings]] = Settings
    Memory: ClassVar[type[Any] | None] = None  # the class of its replay memory, if any
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
        network: str | nn.Module = "mlp",
        *,
        seed: int = 0,
        device: str = "auto",
        encoder: Any = None,
        **settings: Any,
    ) -> None:
        self.settings = make_settings(self.Settings, settings, type(self).__name__)
        self.seed = validation.as_seed(seed)
        self.device = validation.as_device(device)
        validation.check_network(network)
        self.given = network
        self.encoder = as_encoder(encoder)
        self.parameters: list[Tensor] = []
        self.generator = torch.Generator().manual_seed(self.seed)
        self.labels = LabelTable()
        self.waiting = WaitingSamples()
        self.memory = self.make_memory()
        if self.has_head:
            self.head = softmax.SoftmaxHead(self)
        self.lock = LearnerLock()
        self.graphs = execution.make_graphs(self)

    # Learning.

    @atomic
    def observe(self, x: Any, y: Any, t: Any = None, sample_weight: Any = None) -> None:
        """Learn from a new batch: samples x, labels y and, for learners that need it, the task t.

        x: a tensor or array, sparse rows, or a DataFrame of pandas or polars.
        sample_weight: how much each sample counts in the loss: 2 is the sample twice, 0 leaves it out.
        """
        x, labels, new = validation.check_batch(self, x, y, "observe")
        weights = None
        if sample_weight is not None or None in labels:
            x, labels, new, weights = select_rows(self, x, labels, sample_weight, "observe")
            if not labels:
                return
        validation.try_forward(self, x)
        self.check_task(t, "observe")
        setup.prepare_classes(self, x, new)
        setup.note_new_samples(self, x, labels)
        plan = self.plan(labels)
        if weights is not None:
            plan = dataclasses.replace(plan, weights=weights)
        self.count(len(x))
        execution.learn_batch(self, x, plan)

    @atomic
    def revisit(self, x: Any, y: Any, t: Any = None, sample_weight: Any = None) -> None:
        """Learn again from a batch of the current horizon. Nothing is stored or counted."""
        x, labels, new = validation.check_batch(self, x, y, "revisit")
        weights = None
        if sample_weight is not None or None in labels:
            x, labels, new, weights = select_rows(self, x, labels, sample_weight, "revisit")
            if not labels:
                return
        validation.try_forward(self, x)
        validation.check_known(self, new)
        self.check_task(t, "revisit")
        plan = self.plan(labels, keep=False)
        execution.learn_batch(
            self, x, plan if weights is None else dataclasses.replace(plan, weights=weights)
        )

    def end_horizon(self) -> None:
        """Called at the end of each horizon D_t."""

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

    def after_steps(self, plan: Plan, outcomes: list[Any]) -> None:
        """Called after the last iteration on a batch, in tensor operations only."""

    def count(self, samples: int) -> None:
        """Count an observed batch."""
        self.batches += 1
        self.samples += samples

    # For use in `step`. Those of a softmax head are in softmax.py.
    logits = softmax.logits
    fit = softmax.fit
    descend = softmax.descend
    prepared = prepared_samples
    seeded = setup.seeded
    weights = execution.weights
    fit_embedding = execution.fit_embedding

    @property
    def predictor(self) -> Any:
        """The network used for predictions: the averaged one, if there is one."""
        return self.network if self.average is None else self.average.network

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
    _repr_html_ = display.as_html

    @property
    def classes(self) -> list[Label]:
        """The labels seen so far, in the order first seen."""
        return self.labels.labels

    # For methods to override. These defaults are functions of a learner, too.
    scores = softmax.scores
    scores_with = softmax.scores_with
    scores_of = softmax.scores_of
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
    refresh_means = class_means.refresh_means
    make_memory = setup.make_memory
    build = setup.build_trunk
    open_classes = setup.open_classes
    changing_parts = execution.changing_parts
    learnt_tensors = execution.learnt_tensors
    tensors_replaced = execution.tensors_replaced
    settle = execution.settle
    plan = plan_batch
    draw_replay = draw_replay
    replay_size = replay_size
    extra_state = state.extra_state
    restore_extra = state.restore_extra
    footprint = state.footprint

    def memory_edited(self, kept: NDArray[np.int64]) -> None:
        """Called after samples of the memory were removed or relabelled; kept: which of those before are left."""

    def check_merge(self, other: Any) -> None:
        """Raise a ValueError if the method can't merge this learner."""

    def copy_for_snapshot(self, frozen: Any) -> None:
        """Give the copy `frozen`, which has no memory, its own version of anything else that predictions use."""

    def invalidate(self) -> None:
        """Drop values computed from the weights, the memory or the classes: these are about to change."""
        self.rejection = None
        if self.prototype_memory is not None:
            self.prototype_memory.invalidate()
