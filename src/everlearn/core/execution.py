"""Learn from one batch on the device, by a CUDA graph where there is one, with clear errors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn.core.class_means import settle_means
from everlearn.core.plan import Plan
from everlearn.core.replay_calibration import fit_calibration
from everlearn.networks import is_built_in
from everlearn.randomness import DrawFrom
from everlearn.training import cuda_graph
from everlearn.training.cuda_graph import Captured, Graphed
from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite
from everlearn.training.sgd import with_gradients
from everlearn.transaction import current, on_undo

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = [
    "changing_parts",
    "fit_calibration",
    "invalidate",
    "learn_batch",
    "learnt_tensors",
    "make_graphs",
    "make_part_graphs",
    "predictor",
    "run_part",
    "settle",
    "tensors_replaced",
    "watched",
    "weights",
]


def make_graphs(learner: Learner) -> Graphed | None:
    """CUDA graphs of `learn`, on a GPU, if it consists of tensor operations alone."""
    if callable(getattr(learner.settings, "augmentation", None)):
        learner.tensors_alone = False  # a user's function may do anything
    capturable = cuda_graph.available(learner.device) and learner.tensors_alone
    return Captured(learner.learn, FiniteGuard(learner), watched([learner])) if capturable else None


def make_part_graphs(learner: Learner) -> dict[str, Captured]:
    """CUDA graphs of the methods in `tensor_parts`, on a GPU."""
    if not cuda_graph.available(learner.device):
        return {}
    own = watched([learner])
    return {name: Captured(getattr(learner, name), watched=own) for name in learner.tensor_parts}


def watched(learners: Sequence[Learner]) -> list[Learner]:
    """Those of these learners whose network or method is the user's."""
    return [
        learner
        for learner in learners
        if isinstance(learner.given, nn.Module)
        or not is_built_in(learner.given)
        or not type(learner).__module__.startswith("everlearn.")
    ]


def run_part(learner: Learner, name: str, *inputs: Any) -> list[Tensor]:
    """Call a method in `tensor_parts`, on a GPU as a CUDA graph."""
    graphs = learner.part_graphs.get(name)
    results: list[Tensor] | None = (graphs or getattr(learner, name))(*inputs)
    assert results is not None
    return results


def changing_parts(learner: Learner) -> list[object]:
    """The objects whose attributes change while learning; a transaction can undo these changes."""
    parts = (
        *(learner, learner.labels, learner.waiting, learner.memory),
        *(learner.prototype_memory, learner.head, learner.standardisation, learner.calibration),
        learner.drift,
    )
    return [part for part in parts if part is not None]


def weights(learner: Learner, new: int, old: int) -> Tensor | None:
    """How much the gradient of each sample of B_n ∪ B_M counts, by `new_share` and `sample_weight`, `[samples, 1]`.

    None if all count the same.
    """
    share, own = learner.options.new_share, learner.sample_weights
    if not share or not old:
        return None if own is None else _by_weight(own, old)
    make = _weights_on_cpu if learner.device.type == "cpu" else _weights
    each = make(share, new, old, learner.device)
    # The new samples keep their share of the step, whatever their weights.
    return each if own is None else torch.cat([each[:new] * _by_weight(own, 0), each[new:]])


def _by_weight(own: Tensor, old: int) -> Tensor:
    """The weights of new samples and of this many others, which have 1, by their mean."""
    each = torch.cat([own, own.new_ones(old)])[:, None]
    return each / each.mean()


def _weights(share: float, new: int, old: int, device: torch.device) -> Tensor:
    both = new + old
    parts = [(new, 2 * share * both / new), (old, 2 * (1 - share) * both / old)]
    return torch.cat([torch.full((size, 1), weight, device=device) for size, weight in parts])


# A CUDA graph must make its own tensors.
_weights_on_cpu = functools.lru_cache(16)(_weights)


def learnt_tensors(learner: Learner) -> list[Tensor]:
    """The tensors that `learn` changes on the device, besides the rows of the memory."""
    held = [*learner.parameters, *learner.network.buffers(), *learner.sgd.state_tensors()]
    prototypes = learner.prototype_memory
    if prototypes is not None:
        held += (
            [prototypes.vectors] if prototypes.samples is None else [prototypes.vectors, prototypes.samples]
        )
        parts = (prototypes.scatter, prototypes.scattered)
        held += [part for part in parts if part is not None]
    return held if learner.average is None else [*held, *learner.average.means]


def invalidate(learner: Learner) -> None:
    """Drop values computed from the weights, the memory or the classes: these are about to change."""
    learner.rejection = None
    settle_means(learner)
    if learner.prototype_memory is not None:
        learner.prototype_memory.invalidate()


def tensors_replaced(learner: Learner) -> None:
    """Drop the CUDA graphs, after tensors that `learn` uses were replaced."""
    whole = [] if learner.graphs is None else [learner.graphs]
    for graphs in (*whole, *learner.part_graphs.values()):
        on_undo(graphs.forget)  # one that is captured later in a change that fails uses the new tensors
        graphs.forget()


def settle(learner: Learner) -> None:
    """Wait until a GPU has learnt the last batch; raise a NotFinite if it was refused there."""
    if learner.graphs is not None:
        learner.graphs.settle()


def predictor(learner: Learner) -> Any:
    """The network used for predictions: the averaged one, if there is one."""
    return learner.network if learner.average is None else learner.average.network


def learn_batch(learner: Learner, x: Tensor, plan: Plan) -> None:
    """Learn from a batch on the device; raise an error if memory runs out or a value is not finite."""
    learner.prepare_network()
    traits, device = learner.traits, learner.device
    learn = learner.graphs or learner.learn
    x, plan = x.to(device), plan.on(device)
    try:
        if traits.draws or not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            with DrawFrom(learner.generator) if traits.draws else nullcontext(), with_gradients():
                learn(x, plan)
        else:
            learn(x, plan)
    except RuntimeError as error:
        if "can't allocate memory" not in str(error):
            raise
        raise MemoryError(
            f"out of memory: a batch of {len(x)} samples of {len(learner.labels)} classes is too large to learn "
            "from at once; observe it in parts"
        ) from None
    transaction = current()
    if transaction is not None and not transaction.is_finite():
        raise NotFinite
    if transaction is not None and transaction.point_of_no_return is not None:
        return  # a CUDA graph has checked it, too
    # By sums: the squares of a large variance would not be finite.
    sums = [part.sum().isfinite() for part in learner.traits.finite_buffers]
    if sums and not bool(torch.stack(sums).all()):
        raise NotFinite
