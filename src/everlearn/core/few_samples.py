"""The scores of a few samples on the CPU, with numpy: torch's calls would take most of the time.

This needs a network that is a chain of linear layers and ReLUs, as the MLP is, and a method that computes its scores
from the network's output by a function marked with `takes_arrays`. Other learners use torch, with the same result up
to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from everlearn.arrays import LARGEST_VALUE
from everlearn.core import softmax
from everlearn.core.calibration import combined
from everlearn.threads import computing_with
from everlearn.training.passes import linear_chain

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["scores_of_new", "scores_of_one"]

FEW = 16  # samples; more are as fast with torch
# Multiplications of a product; numpy starts threads for larger ones, for those of a single sample even earlier.
LARGEST_PRODUCT = 2**17

Rows = NDArray[np.float32]


def scores_of_one(learner: Learner, x: Any) -> Rows | None:
    """The calibrated scores of a single sample, `[1, classes]`; None if torch is needed, or for an error message."""
    plain = isinstance(x, Tensor) and x.layout is torch.strided and x.is_cpu and x.dtype == torch.float32
    if plain and not (x.requires_grad or x.is_nested or x.is_neg()):
        x = x.numpy()
    shape = learner.sample_shape
    if type(x) is not np.ndarray or x.shape[:1] != (1,) or x.shape[1:] != shape or x.dtype not in FLOATS:
        return None
    # NaN is not within bounds, either.
    if (
        learner.encoder is not None
        or not learner.labels
        or not -LARGEST_VALUE <= x.min() <= x.max() <= LARGEST_VALUE
    ):
        return None
    found = _scores(learner, x.astype(np.float32, copy=False))
    if found is None:
        return None
    scores: Rows = combined(learner, found)
    return None if np.isnan(scores).any() else scores


def scores_of_new(learner: Learner, x: Tensor) -> list[Rows] | None:
    """The scores of a few samples by each network that predicts, the current weights first; None: torch is needed."""
    few = len(x) <= FEW and x.dtype == torch.float32 and x.is_cpu and not x.is_neg()
    return _scores(learner, x.numpy()) if few else None


FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _scores(learner: Learner, x: Rows) -> list[Rows] | None:
    kind = type(learner)
    of_output = kind.scores is softmax.scores and kind.scores_with is softmax.scores_with
    if not of_output or not getattr(kind.scores_of, "takes_arrays", False) or learner.device.type != "cpu":
        return None
    over_views = any(getattr(learner.settings, name, False) for name in ("mirrored", "shifted"))
    if learner.sample_type != torch.float32 or over_views:
        return None
    networks = [learner.network, learner.predictor] if learner.options.blend else [learner.predictor]
    chains = [_chain_of(network) for network in networks]
    if not all(chain.layers for chain in chains):
        return None
    if learner.standardisation is not None:
        x = learner.standardisation.scaled(x)
    outputs = [chain(x.reshape(len(x), -1), learner.settings.threads) for chain in chains]
    scores = learner.scores_of(np.concatenate(outputs))
    return [scores[start : start + len(x)] for start in range(0, len(scores), len(x))]


class _Chain:
    """The layers of a network as arrays that share the memory of its tensors."""

    def __init__(self, network: nn.Module) -> None:
        layers = linear_chain(network)
        self._children = list(network._modules.values())
        self._tensors = [part for layer in layers for part in (layer.weight, layer.bias)]
        self._addresses = [part.data_ptr() for part in self._tensors]
        plain = all(part.dtype == torch.float32 and part.is_cpu for part in self._tensors)
        parts = [part.detach() for part in self._tensors] if plain else []
        self.layers = [
            (weight, bias, weight.numpy().T, bias.numpy())
            for weight, bias in zip(parts[::2], parts[1::2], strict=True)
        ]

    def fits(self, network: nn.Module) -> bool:
        """Whether layers and tensors of the network are still those whose memory this has."""
        return (
            list(network._modules.values()) == self._children
            and [part.data_ptr() for part in self._tensors] == self._addresses
        )

    def __call__(self, x: Rows, threads: int) -> Rows:
        """The network's output."""
        for number, (weight, bias, columns, biases) in enumerate(self.layers):
            if number:
                np.maximum(x, 0, out=x)
            if max(len(x), FEW) * columns.size <= LARGEST_PRODUCT:
                x = x @ columns
                x += biases
            else:
                with computing_with(threads):
                    x = torch.addmm(bias, torch.from_numpy(x), weight.T).numpy()
        return x


_chains: WeakKeyDictionary[nn.Module, _Chain] = WeakKeyDictionary()


def _chain_of(network: Any) -> _Chain:
    chain = _chains.get(network)
    if chain is None or not chain.fits(network):
        chain = _chains[network] = _Chain(network)
    return chain
