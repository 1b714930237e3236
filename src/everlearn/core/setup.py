"""A learner's first batch and new classes: build the network, allocate memory, prepare for training."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from everlearn.arrays import Array
from everlearn.core import validation
from everlearn.core.calibration import Calibration, combined, is_due, outputs
from everlearn.core.columns import kind_of_rows
from everlearn.core.drift import Drift
from everlearn.core.few_samples import scores_of_new
from everlearn.core.images import ImageChanges
from everlearn.core.input_kind import choose_options, kind_of
from everlearn.core.prediction import evaluate
from everlearn.core.replay_calibration import batch_is_used
from everlearn.core.settings import ReplaySettings
from everlearn.core.standardisation import Standardisation
from everlearn.memory.labels import Label
from everlearn.networks import MLP, SlimResNet18, SoftmaxNetwork, as_input, trunk
from everlearn.randomness import DrawFrom
from everlearn.training.averaging import WeightAverage
from everlearn.training.optimizers import make_optimizer
from everlearn.transaction import atomic, current

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = [
    "NetworkTraits",
    "add_classes",
    "begin",
    "build_trunk",
    "count",
    "note_new_samples",
    "prepare_classes",
    "prepare_network",
    "seeded",
    "use_network",
]


# Modules that compute the same in training and in evaluation mode.
SAME_IN_BOTH_MODES = (nn.Flatten, nn.Linear, nn.ReLU, nn.Sequential, MLP, SoftmaxNetwork)


@dataclasses.dataclass(frozen=True)
class NetworkTraits:
    """What is known of a learner's network.

    accepted_sizes: batch sizes that it is known to accept.
    draws: whether it draws random numbers in training mode, like dropout.
    has_modes: whether it may compute something else in evaluation mode.
    has_buffers, finite_buffers: whether it has buffers, and those that must stay finite.
    """

    accepted_sizes: frozenset[int] = frozenset()
    draws: bool = False
    has_modes: bool = True
    has_buffers: bool = False
    finite_buffers: tuple[Tensor, ...] = ()


@atomic
def add_classes(learner: Learner, x: Any, y: Any, kind: str | None = None) -> None:
    """Prepare a learner for the labels of a batch without learning from it, after the same checks.

    kind: of the samples (input_kind.py), where these do not show it.
    """
    x, _, new = validation.check_batch(learner, x, y, "observe")
    learner.invalidate()
    learner.input_kind = learner.input_kind or kind
    prepare_classes(learner, x, new)


def prepare_classes(learner: Learner, x: Tensor, new: list[Label]) -> None:
    """Set up the learner if this is its first batch, and make room for new labels."""
    if learner.sample_shape is None:
        learner.begin(x)
    if new:
        learner.labels.extend(new)
        learner.open_classes(len(learner.labels))


def note_new_samples(learner: Learner, x: Tensor, labels: list[Label]) -> None:
    """Compare predictions with the labels of new samples, then let the scale follow them. Before they are learnt."""
    held, drift = learner.calibration, learner.drift
    if held is not None and held.by_replay:  # in the step
        held.due = batch_is_used(learner)
        held = None
    if held is not None or drift is not None:
        slots = learner.labels.slots(labels)
        if learner.batches and (drift is not None or is_due(learner, len(x))):
            scores = _scores_before(learner, x)
            if drift is not None:
                drift.follow(learner, np.asarray(combined(learner, scores)).argmax(1), slots)
            if held is not None:
                held.record(scores, slots)
        if held is not None:
            held.count(slots)
    if learner.standardisation is not None:
        learner.standardisation.update(x)


def count(learner: Learner, samples: int) -> None:
    """Count an observed batch."""
    learner.batches += 1
    learner.samples += samples


def _scores_before(learner: Learner, x: Tensor) -> Sequence[Array]:
    """The scores of new samples by each network that predicts, the current weights first."""
    few = scores_of_new(learner, x)
    if few is not None:
        return few
    with torch.inference_mode():
        new = learner.prepared(as_input(x.to(learner.device)))
        return [part.cpu() for part in evaluate(learner, lambda: outputs(learner, new))]


def begin(learner: Learner, x: Tensor) -> None:
    """Build the network and allocate the memory for samples like those of the first batch."""
    shape = tuple(x.shape[1:])
    if learner.columns is not None and shape != (learner.columns.width,):
        learner.columns = None  # of frames in `ask` before this batch, which has no names
    learner.input_kind = (
        learner.input_kind
        or kind_of_rows(learner)
        or kind_of(x, learner.given, encoded=learner.encoder is not None)
    )
    learner.options = choose_options(learner, learner.input_kind)
    if learner.options.standardise:
        learner.standardisation = Standardisation(shape, learner.device)
    if learner.options.blend or learner.options.calibration != "none":
        learner.calibration = Calibration(learner.options)
    if learner.options.drift != "none":
        learner.drift = Drift(learner.options.drift)
    if learner.options.half_life:
        learner.memory.half_life = learner.options.half_life
    if isinstance(learner.settings, ReplaySettings):
        learner.images = ImageChanges(learner.settings, x, learner.device)
    with DrawFrom(torch.Generator().manual_seed(learner.seed)):
        given = learner.given
        network = (learner.build(given, shape) if isinstance(given, str) else given).to(learner.device)
        with DrawFrom(torch.Generator()) as trial:
            features = validation.probe(network, x.to(learner.device))
        learner.traits = dataclasses.replace(learner.traits, draws=trial.drawn)
        learner.install(network, features)
    learner.sample_shape, learner.sample_type = shape, x.dtype
    learner.waiting.keep_only(shape, x.dtype)
    if learner.memory is not None:
        learner.memory.allocate(x, learner.device)


def make_memory(learner: Learner) -> Any:
    """Make the replay memory, if the method has one."""
    return learner.Memory and learner.Memory(learner.settings.memory_size, learner.labels, learner.generator)


def open_classes(learner: Learner, classes: int) -> None:
    """Make room for this many classes in all."""
    learner.invalidate()
    parts = (learner.head, learner.memory, learner.prototype_memory, learner.calibration, learner.drift)
    replaced = [part.open_classes(classes) for part in parts if part is not None]
    if any(replaced):
        learner.tensors_replaced()
    learner.newest = learner.batches


def build_trunk(learner: Learner, name: str, shape: tuple[int, ...]) -> nn.Module:
    """Build the named network for samples of this shape, without a head."""
    return trunk(name, shape, learner.settings.hidden)[0]


def use_network(learner: Learner, network: nn.Module) -> None:
    """Train this network from now on."""
    learner.network = network.train().to(learner.device)
    mixed = learner.settings.precision == "mixed"
    for part in network.modules():
        if isinstance(part, SlimResNet18):
            part.mixed = mixed
    by_pixel = mixed or learner.device.type == "cpu"
    if by_pixel and any(isinstance(part, nn.Conv2d) for part in network.modules()):
        # 1.5 times as fast on one CPU core (benchmarks/step.py); on a GPU only the kernels of bfloat16 gain.
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    learner.parameters = [part for part in network.parameters() if part.requires_grad]
    floating = (part for part in network.buffers() if part.is_floating_point())
    learner.traits = dataclasses.replace(
        learner.traits,
        has_modes=any(type(part) not in SAME_IN_BOTH_MODES for part in network.modules()),
        has_buffers=any(True for _ in network.buffers()),
        finite_buffers=tuple(part for part in floating if bool(part.isfinite().all())),
    )
    before = getattr(learner, "sgd", None)
    learner.sgd = make_optimizer(network, learner.parameters, learner.settings, before)
    if learner.options.averaging:
        learner.average = WeightAverage(network, learner.average)
    learner.tensors_replaced()


def seeded(learner: Learner) -> DrawFrom:
    """A context in which random numbers are drawn with a seed from the learner's generator."""
    seed = int(torch.randint(2**31, (), generator=learner.generator))
    return DrawFrom(torch.Generator().manual_seed(seed))


def prepare_network(learner: Learner) -> None:
    """Put the network into training mode, and let the transaction remember its buffers."""
    if not learner.network.training:
        learner.network.train()
    transaction = current()
    if transaction is not None and learner.traits.has_buffers:
        transaction.keep_buffers(learner.network)
