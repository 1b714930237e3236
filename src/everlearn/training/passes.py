"""Passes of a batch through a network, each of which one step of SGD may follow.

For a chain of linear layers and ReLUs the backward pass is written by hand, and each weight is updated by the product
that computes its gradient, W ← W − lr · sᵀa: no gradient is stored. On one CPU core this takes 0.4 of the time of
autograd and a step of SGD (benchmarks/step.py).

In a transaction, the update of a chain is made when the weights are needed again, or at the end, so that nothing is
copied.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.arrays import in_float64
from everlearn.torch_modes import without_gradients
from everlearn.transaction import current

if TYPE_CHECKING:
    from everlearn.training.sgd import SGD

__all__ = ["AutogradPass", "ChainPass", "NotFinite", "Pass", "gradients_of", "linear_chain"]


class NotFinite(ValueError):
    """A step would have made the weights infinite or NaN; nothing was changed."""

    def __init__(
        self,
        message: str = "a step on this batch would make the network's weights infinite or NaN, so nothing was learnt "
        "from it: scale x, or lower learning_rate",
    ) -> None:
        super().__init__(message)


def gradients_of(
    output: Tensor, parameters: Sequence[Tensor], slope: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The gradient of an output by each parameter; 0 for parameters that this pass of the network did not use.

    slope: the gradient of the loss with respect to the output, unless that is the loss itself.
    """
    if not output.requires_grad:  # nothing was used, as in a network that is computed without gradients
        return tuple(torch.zeros_like(part) for part in parameters)
    return torch.autograd.grad(output, parameters, slope, allow_unused=True, materialize_grads=True)


class Pass(ABC):
    """One forward pass of a batch, which one step of SGD may follow.

    output: the network's output, detached.
    """

    output: Tensor

    @abstractmethod
    def descend(self, slope: Tensor) -> None:
        """One SGD step on the loss whose gradient with respect to `output` is `slope`."""


class AutogradPass(Pass):
    """A pass by autograd, for any network."""

    def __init__(self, optimiser: SGD, network: nn.Module, x: Tensor) -> None:
        self._optimiser = optimiser
        self._output = network(x)
        self.output = self._output.detach()

    def descend(self, slope: Tensor) -> None:
        parameters = self._optimiser.parameters
        self._optimiser.step(gradients_of(self._output, parameters, slope))


class ChainPass(Pass):
    """A pass through a chain of linear layers and ReLUs, by hand."""

    def __init__(self, optimiser: SGD, layers: list[tuple[Tensor, Tensor]], x: Tensor) -> None:
        self._optimiser, self._layers = optimiser, layers
        self._inputs = []  # a, what each layer was given
        with without_gradients():
            given = x.flatten(1)
            for weight, bias in layers[:-1]:
                self._inputs.append(given)
                given = torch.addmm(bias, given, weight.T).relu_()
            self._inputs.append(given)
            self.output = torch.addmm(layers[-1][1], given, layers[-1][0].T)

    def descend(self, slope: Tensor) -> None:
        with without_gradients():
            self._descend(slope)

    def _descend(self, slope: Tensor) -> None:
        slopes = [slope]  # by the output of each layer, the last one first
        for i in range(len(self._layers) - 1, 0, -1):
            before = slopes[-1] @ self._layers[i][0]
            slopes.append(torch.ops.aten.threshold_backward(before, self._inputs[i], 0))
        rate = self._optimiser.learning_rate
        if slope.is_cuda:
            slopes = self._clipped(slopes)
        else:
            rate = self._rate(slopes)
        update = _ChainUpdate(self._layers[::-1], slopes, self._inputs[::-1], rate)
        transaction = current()
        if transaction is None:
            update()
        else:
            transaction.at_commit(update)

    def _rate(self, slopes: list[Tensor]) -> float:
        """The learning rate for a finite step that is not too long.

        The gradient sᵀa is no longer than s times a, which is cheap; its own norm is taken where that is too long.
        """
        optimiser, transaction = self._optimiser, current()
        if optimiser.clip is None and transaction is not None:
            # What is not finite anywhere, now or in an earlier step on this batch, shows at the output or, through
            # all weights, at the first layer; it is asked for when the batch is done.
            transaction.last_slopes = slopes[0], slopes[-1]
            return optimiser.learning_rate
        squares, samples = 0.0, len(slopes[0])
        for s, a in zip(slopes, self._inputs[::-1], strict=True):
            squares += _square(s) * (_square(a) + samples)
        if not math.isfinite(squares):
            raise NotFinite
        if optimiser.clip is None or optimiser.learning_rate * math.sqrt(squares) <= optimiser.clip:
            return optimiser.learning_rate
        return optimiser.rate(math.sqrt(max(float(self._squared_norm(slopes)), 0.0)))

    def _clipped(self, slopes: list[Tensor]) -> list[Tensor]:
        """The slopes of a step that is not too long. Tensor operations only."""
        transaction = current()
        if transaction is not None:
            transaction.last_slopes = slopes[0], slopes[-1]
        optimiser = self._optimiser
        if optimiser.clip is None:
            return slopes
        norm = self._squared_norm(slopes).clamp(min=0).sqrt()
        share = (optimiser.clip / (optimiser.learning_rate * norm)).clamp(max=1).to(slopes[0].dtype)
        return list(foreach.mul(slopes, share))

    def _squared_norm(self, slopes: list[Tensor]) -> Tensor:
        """The squared norm of the gradient: ‖sᵀa‖² + ‖sᵀ1‖² for each layer."""
        parts = []
        for s, a in zip(slopes, self._inputs[::-1], strict=True):
            s, a = in_float64(s), in_float64(a)
            parts.append(((s @ s.T) * (a @ a.T + 1)).sum())
        return torch.stack(parts).sum()


class _ChainUpdate:
    """The update of every layer of a chain, each made once, however often it is called: a tensor counts its changes.

    layers, slopes, inputs: the last layer first, whose weights were used last.
    """

    __slots__ = ("_parts", "_rate")

    def __init__(
        self, layers: list[tuple[Tensor, Tensor]], slopes: list[Tensor], inputs: list[Tensor], rate: float
    ) -> None:
        self._rate = rate
        self._parts = [
            (weight, weight._version, bias, bias._version, slope, given)
            for (weight, bias), slope, given in zip(layers, slopes, inputs, strict=True)
        ]

    @property
    def tensors(self) -> list[Tensor]:
        """The weights and biases."""
        return [tensor for weight, _, bias, *_ in self._parts for tensor in (weight, bias)]

    def __call__(self) -> None:
        step = -self._rate
        for weight, of_weight, bias, of_bias, slope, given in self._parts:
            if weight._version == of_weight:
                weight.addmm_(slope.T, given, alpha=step)
            if bias._version == of_bias:
                bias.add_(slope.sum(0), alpha=step)


def _square(values: Tensor) -> float:
    """The sum of the squares; infinite where it is too large for float32."""
    norm: float = torch.linalg.vector_norm(values).item()
    return norm * norm


def linear_chain(network: nn.Module) -> list[nn.Linear]:
    """The linear layers of a network that is Flatten, Linear, ReLU, Linear, …, Linear; else none."""
    flatten, *layers = _in_a_row(network)
    linear, between = layers[::2], layers[1::2]
    if (
        type(flatten) is nn.Flatten
        and (flatten.start_dim, flatten.end_dim) == (1, -1)
        and len(linear) == len(between) + 1 == len(set(linear))
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and not any(_has_hooks(layer) for layer in network.modules())
    ):
        return cast(list[nn.Linear], linear)
    return []


def _in_a_row(network: nn.Module) -> Iterator[nn.Module]:
    """The layers that x passes one after the other, as far as their types tell."""
    if isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward:
        for part in network:
            yield from _in_a_row(part)
    else:
        yield network


def _has_hooks(layer: nn.Module) -> bool:
    """Whether a layer has hooks, so that autograd must run."""
    return bool(
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    )
