"""Other changes of the prototypes: means of all samples, more room, forgetting, saving and loading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from everlearn.transaction import assign

if TYPE_CHECKING:
    from everlearn.memory.prototypes import Prototypes

__all__ = ["add", "empty", "forget", "nbytes", "recompute", "resize", "restore", "state"]


SMALLEST = 16  # prototypes that there is room for at first; the room doubles when it is full


def empty(capacity: int, dimension: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Room for this many prototypes, and which of it is used."""
    vectors = torch.zeros(capacity, dimension, device=device)
    return vectors, torch.zeros(capacity, dtype=torch.bool, device=device)


def resize(prototypes: Prototypes, classes: int) -> None:
    """Move the prototypes into new tensors, with room for at least this many."""
    held = prototypes.vectors[: prototypes.count]
    capacity = SMALLEST
    while capacity < classes:
        capacity *= 2
    prototypes.vectors, prototypes.seen = empty(capacity, held.shape[1], held.device)
    prototypes.vectors[: len(held)] = held
    prototypes.seen[: len(held)] = True


def add(prototypes: Prototypes, features: Tensor, slots: Tensor, scatter: bool = False) -> None:
    """Let each prototype be the mean of all features of its class that were added. Tensor operations only.

    scatter: whether the spread of the features around these means is kept, too.
    """
    held = prototypes.vectors.new_zeros(0) if prototypes.samples is None else prototypes.samples
    if len(held) < len(prototypes.vectors):  # a CUDA graph, which is captured later, changes it in place
        prototypes.samples = held = torch.cat([held, held.new_zeros(len(prototypes.vectors) - len(held))])
    counts = torch.zeros_like(held).index_add_(0, slots, torch.ones_like(features[:, 0]))
    sums = torch.zeros_like(prototypes.vectors).index_add_(0, slots, features)
    if scatter:
        _add_scatter(prototypes, features, slots, held, counts, sums)
    change = (sums - counts[:, None] * prototypes.vectors) / (held + counts).clamp(min=1)[:, None]
    assign(prototypes.vectors, slice(None), prototypes.vectors + change)
    assign(held, slice(None), held + counts)


def _add_scatter(
    prototypes: Prototypes, features: Tensor, slots: Tensor, held: Tensor, counts: Tensor, sums: Tensor
) -> None:
    """Add the spread within the batch, and that of its class means around those before (Chan et al. 1983)."""
    vectors = prototypes.vectors
    if prototypes.scatter is None or prototypes.scattered is None:
        size = vectors.shape[1]
        prototypes.scatter, prototypes.scattered = vectors.new_zeros(size, size), vectors.new_zeros(())
    means = sums / counts.clamp(min=1)[:, None]
    between = (held * counts / (held + counts).clamp(min=1)).sqrt()[:, None] * (means - vectors)
    rows = torch.cat([features - means[slots], between[slots] / counts[slots, None].sqrt()])
    assign(prototypes.scatter, slice(None), torch.addmm(prototypes.scatter, rows.T, rows))
    assign(prototypes.scattered, (), prototypes.scattered + len(slots))


def forget(prototypes: Prototypes, slot: int) -> None:
    """Remove the prototype of a class; those after it move down by one, into new tensors."""
    prototypes.from_exemplars = None
    if prototypes.samples is not None:
        prototypes.samples = torch.cat(
            [prototypes.samples[:slot], prototypes.samples[slot + 1 : prototypes.count]]
        )
    prototypes.vectors = torch.cat(
        [prototypes.vectors[:slot], prototypes.vectors[slot + 1 : prototypes.count]]
    )
    prototypes.count -= 1
    resize(prototypes, prototypes.count)


def recompute(prototypes: Prototypes, features: Tensor, slots: Tensor, renormalise: bool) -> None:
    """Set each prototype to the mean of the features of its class; a class without any keeps its own."""
    prototypes.from_exemplars = None
    count = prototypes.count
    sums = torch.zeros_like(prototypes.vectors).index_add_(0, slots, features)[:count]
    sizes = slots.bincount(minlength=count)[:, None]
    if prototypes.samples is not None:
        prototypes.samples = sizes[:, 0].to(prototypes.vectors.dtype)
    means = sums / sizes.clamp(min=1)
    means = normalize(means, dim=1) if renormalise else means
    assign(prototypes.vectors, slice(count), torch.where(sizes > 0, means, prototypes.vectors[:count]))


def nbytes(prototypes: Prototypes) -> int:
    """Bytes held."""
    parts = (
        prototypes.vectors,
        prototypes.seen,
        prototypes.from_exemplars,
        prototypes.scatter,
        *(prototypes.metric or ()),
    )
    return sum(part.nbytes for part in parts if part is not None)


def state(prototypes: Prototypes) -> dict[str, Tensor]:
    """The prototypes as tensors, and those computed from the memory."""
    held = {"prototypes": prototypes.vectors[: prototypes.count].clone()}
    if prototypes.samples is not None:
        held["prototypes.samples"] = prototypes.samples[: prototypes.count].clone()
    if prototypes.scatter is not None and prototypes.scattered is not None:
        held["prototypes.scatter"] = prototypes.scatter.clone()
        held["prototypes.scattered"] = prototypes.scattered.clone()
    if prototypes.from_exemplars is not None and prototypes.keeps_means:
        held["prototypes.from_exemplars"] = prototypes.from_exemplars.clone()
        held["prototypes.computed_at"] = torch.tensor(prototypes.computed_at)
    return held


def restore(prototypes: Prototypes, held: dict[str, Any]) -> None:
    """Load a state that `state` returned."""
    vectors = prototypes.vectors
    vectors[: prototypes.count] = held["prototypes"].to(vectors.device)
    if "prototypes.samples" in held:
        samples = held["prototypes.samples"].to(vectors)
        if samples.shape != (prototypes.count,) or not bool((samples >= 0).all()):
            raise ValueError(f"prototypes.samples has the shape {list(samples.shape)}, or negative counts")
        prototypes.samples = samples.clone()
    if "prototypes.scatter" in held:
        scatter, scattered = held["prototypes.scatter"], held["prototypes.scattered"]
        size = vectors.shape[1]
        if scatter.shape != (size, size) or scattered.shape != () or not float(scattered) >= 0:
            raise ValueError(f"prototypes.scatter has the shape {list(scatter.shape)}, or a negative count")
        prototypes.scatter, prototypes.scattered = scatter.to(vectors), scattered.to(vectors)
    if "prototypes.from_exemplars" in held:
        means = held["prototypes.from_exemplars"].to(vectors.device)
        if means.ndim != 2 or means.shape[1] != vectors.shape[1] or len(means) > prototypes.count:
            raise ValueError(f"prototypes.from_exemplars has the shape {list(means.shape)}")
        prototypes.from_exemplars = means.clone()
        prototypes.computed_at = int(held["prototypes.computed_at"])
