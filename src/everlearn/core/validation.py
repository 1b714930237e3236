"""Validation of input: a user's batch becomes a tensor and a list of labels, or an error says what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.arrays import LARGEST_VALUE, as_tensor
from everlearn.core.columns import rows_of
from everlearn.core.images import ImageChanges
from everlearn.core.row_selection import labels_of, new_labels, select_rows
from everlearn.core.sparse import dense, is_sparse
from everlearn.core.table import is_dataframe
from everlearn.core.wrong_samples import TOO_LARGE, check_mask, is_only_too_large, problem
from everlearn.encoders import Features
from everlearn.memory.labels import Label, shortened
from everlearn.messages import counted
from everlearn.networks import as_input
from everlearn.randomness import DrawFrom

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = [
    "as_samples",
    "as_task",
    "check_batch",
    "check_room",
    "check_samples",
    "check_tensor",
    "checked_batch",
    "encoded",
    "probe",
    "try_forward",
    "try_network",
]

LARGEST_TASK = 2**63 - 1
PLAIN = (torch.uint8, torch.float32)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}


def check_samples(learner: Learner, x: Any, method: str) -> Tensor:
    """The samples of a batch as a tensor, after all checks."""
    if _is_like_the_first(learner, x):
        return x  # type: ignore[no-any-return]
    where = f"{type(learner).__name__}.{method}"
    x = encoded(learner, x, where)
    if not isinstance(x, (Tensor, np.ndarray)):
        x = rows_of(learner, x, method)
    samples = as_samples(x, where, keep_integers=isinstance(learner.given, nn.Module))
    check_tensor(samples, where, learner.sample_shape, learner.sample_type, x)
    return samples


def _is_like_the_first(learner: Learner, x: Any) -> bool:
    """Whether x is a plain tensor of bytes like the first batch, which passes all checks."""
    return (
        type(x) is Tensor
        and x.dtype is torch.uint8
        and learner.sample_type is torch.uint8
        and x.is_cpu
        and x.layout is torch.strided
        and not (x.is_nested or x.is_inference())
        and x.shape[1:] == learner.sample_shape
        and x.shape[0] > 0
        and learner.encoder is None
    )


def encoded(learner: Learner, x: Any, where: str) -> Any:
    """The samples as the learner's encoder gives them, if it has one; features are taken as they are."""
    if isinstance(x, Features):
        return x.values
    if learner.encoder is None:
        return x
    if is_dataframe(x):
        raise ValueError(
            f"{where} got a DataFrame, but the encoder takes single samples: give one column of it"
        )
    check_mask(x, where)
    return learner.encoder(x, where)


def check_batch(
    learner: Learner, x: Any, y: Any, method: str = "observe"
) -> tuple[Tensor, list[Label], list[Label]]:
    """The samples of a batch as a tensor, its labels, and the new ones among these, after all checks."""
    x = check_samples(learner, x, method)
    where = f"{type(learner).__name__}.{method}"
    labels = labels_of(learner, y, where)
    if len(labels) != len(x):
        raise ValueError(f"{where} got {counted(len(x), 'sample')} but {counted(len(labels), 'label')}")
    new = new_labels(learner, labels)
    check_room(learner, len(learner.labels) + len(new))
    return x, labels, new


def checked_batch(
    learner: Learner, x: Any, y: Any, t: Any, sample_weight: Any, method: str
) -> tuple[Tensor, list[Label], list[Label], NDArray[np.float32] | None]:
    """The rows of a batch that `observe` or `revisit` learns: samples, labels, the new ones of these, and weights.

    Whatever is wrong with the batch raises an error here, before anything is learnt. Without labels there is nothing
    to learn.
    """
    x, labels, new = check_batch(learner, x, y, method)
    weights = None
    if sample_weight is not None or None in labels:
        x, labels, new, weights = select_rows(learner, x, labels, sample_weight, method)
    if labels:
        try_forward(learner, x)
        if new and method == "revisit":
            name = type(learner).__name__
            raise ValueError(f"{name}.revisit got the label {shortened(new[0])}, which was never observed")
        learner.check_task(t, method)
    else:
        learner.settle()  # nothing else will, and undoing the last batch later would undo this call, too
    return x, labels, new, weights


def check_room(learner: Learner, classes: int) -> None:
    """Raise a ValueError if the memory can't store an exemplar of each of this many classes."""
    room = getattr(learner.settings, "memory_size", classes)
    if classes > room:
        raise ValueError(f"a memory of {room} has no room for an exemplar of each of {classes} classes")


def try_forward(learner: Learner, x: Tensor) -> None:
    """Try a batch on a user's network or augmentation, so that errors are raised before anything is learnt."""
    network = learner.trained_network()
    if network is not None and learner.may_reject:
        sizes = learner.forward_sizes(len(x)) - learner.traits.accepted_sizes
        with DrawFrom(torch.Generator()) as trial:
            try_network(network, x.to(learner.device), sizes)
        if sizes or trial.drawn > learner.traits.draws:
            learner.traits = dataclasses.replace(
                learner.traits,
                accepted_sizes=learner.traits.accepted_sizes | sizes,
                draws=learner.traits.draws or trial.drawn,
            )
    if callable(getattr(learner.settings, "augmentation", None)):
        with DrawFrom(torch.Generator()):
            ImageChanges.own_view(learner.settings.augmentation, x.to(learner.device, copy=True))


def check_task(learner: Learner, t: Any, method: str) -> int | None:
    """The task of the batch as an int, if the learner needs it."""
    return as_task(t, f"{type(learner).__name__}.{method}") if "t" in learner.needs else None


def trained_network(learner: Learner) -> Any:
    """The network that batches pass in training mode."""
    return learner.network


def may_reject(learner: Learner) -> bool:
    """Whether the network may reject a batch of the right shape, as batch norm does with a single sample."""
    return learner.given not in ("mlp", "identity")


def forward_sizes(learner: Learner, batch: int) -> set[int]:
    """The sizes of the forward passes in training mode for a batch of this size."""
    replayed = 0 if learner.memory is None else min(learner.replay_size(batch), len(learner.memory))
    return {batch + replayed}


def as_task(t: Any, where: str) -> int:
    """The task of a batch as an int."""
    try:
        task = operator.index(t)
    except TypeError:
        method = where.partition(".")[2]
        raise ValueError(
            f"{where} needs t, the task of the batch, as an integer, not {shortened(t)}: {method}(x, y, t)"
        ) from None
    if abs(task) > LARGEST_TASK:
        raise ValueError(f"{where} takes a t of at most 64 bits, not one of {task.bit_length()}")
    return task


def as_samples(x: Any, where: str, keep_integers: bool) -> Tensor:
    """A batch as a tensor. Bytes stay bytes; wider types than float32 become float32.

    keep_integers: whether other integers (such as tokens) stay integers, or become float32.
    """
    if isinstance(x, Tensor) and x.is_nested:
        raise ValueError(f"{where} takes x as one tensor, not as a nested one")
    if isinstance(x, Tensor) and x.is_inference():
        x = x.clone()  # autograd can't use inference tensors
    if isinstance(x, Tensor) and x.dtype in PLAIN and x.layout is torch.strided and x.device.type != "meta":
        return x.detach() if x.requires_grad else x
    if is_sparse(x):
        x = dense(x, where)
    check_mask(x, where)
    try:
        samples = as_tensor(x).detach()
    except (TypeError, ValueError, RuntimeError, OverflowError, AttributeError):
        raise ValueError(f"{where} {problem(x)}") from None
    if samples.layout != torch.strided:
        raise ValueError(f"{where} takes x as a dense tensor, not one of {samples.layout}: give x.to_dense()")
    if samples.device.type == "meta":
        raise ValueError(f"{where} got x on the device meta, which holds no values")
    if samples.is_quantized:
        raise ValueError(f"{where} takes x as plain numbers, not quantised ones: give x.dequantize()")
    if samples.is_complex():
        raise ValueError(f"{where} takes x as real numbers, not {samples.dtype}")
    if samples.dtype in WIDER:  # types that few torch operations support
        samples = samples.to(WIDER[samples.dtype])
    if samples.is_floating_point():
        return samples if samples.dtype in FLOATS else samples.float()
    return samples if samples.dtype == torch.uint8 or keep_integers else samples.float()


def check_tensor(
    x: Tensor, where: str, shape: tuple[int, ...] | None, dtype: torch.dtype | None, given: Any = None
) -> None:
    """Raise a ValueError for a batch that is empty, not finite, or of another shape or type than the first one.

    given: the batch before it became a tensor, to tell values that are too large from infinite ones.
    """
    if x.ndim > 0 and len(x) == 0:
        raise ValueError(f"{where} got an empty batch")
    if x.numel() == 0:
        raise ValueError(f"{where} got x of shape {list(x.shape)}: samples without values")
    if x.ndim == 0 or (x.ndim == 1 and shape != ()):
        raise ValueError(f"{where} got x of shape {list(x.shape)}, but it takes a batch of samples, [n, ...]")
    if shape is not None and tuple(x.shape[1:]) != shape:
        expected = ", ".join(["*", *map(str, shape)])
        raise ValueError(f"{where} got x of shape {list(x.shape)} but the network takes [{expected}]")
    if dtype is not None and x.dtype != dtype:
        raise ValueError(f"{where} got x of {x.dtype} but this learner began with {dtype}")
    if x.is_floating_point() and x.numel():
        low, high = torch.aminmax(x)  # NaN if there is any
        if not -LARGEST_VALUE <= float(low) <= float(high) <= LARGEST_VALUE:
            finite = bool(x.isfinite().all()) or (given is not None and is_only_too_large(given))
            raise ValueError(f"{where} {TOO_LARGE if finite else 'got NaN or infinite values in x'}")


def probe(network: nn.Module, x: Tensor) -> int:
    """The number of features of a network, from a forward pass of a copy in training mode."""
    try:
        twin = copy.deepcopy(network)
    except Exception as error:
        raise ValueError(
            f"a learner must be able to copy its network, but got {type(error).__name__}: {str(error)[:100]}; "
            "nn.utils.parametrizations has a weight_norm and a spectral_norm that can be copied"
        ) from None
    try:
        with torch.no_grad():
            features = twin.train()(as_input(x))
    except Exception as error:
        raise ValueError(f"the network can't learn from a batch of shape {list(x.shape)}: {error}") from None
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != len(x):
        got = list(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ValueError(
            f"the network must map a batch of n samples to [n, d], but {len(x)} samples gave {got}"
        )
    if features.dtype != torch.float32:
        raise ValueError(
            f"the network must give float32, but it gave {str(features.dtype).removeprefix('torch.')}: "
            "end its forward with .float()"
        )
    return features.shape[1]


def try_network(network: nn.Module, x: Tensor, lengths: Iterable[int]) -> None:
    """Raise a ValueError if the network can't learn from a batch in any of these sizes; it does not change.

    Integers other than bytes are indices, such as tokens, that the network may reject: they are always tried.
    """
    if not x.is_floating_point() and x.dtype != torch.uint8:
        training = network.training
        try:
            with torch.no_grad():
                network.eval()(as_input(x))
        except Exception as error:
            raise ValueError(f"the network can't take this batch of shape {list(x.shape)}: {error}") from None
        finally:
            network.train(training)
    for length in sorted(lengths):
        probe(network, x[torch.arange(length, device=x.device) % len(x)])
