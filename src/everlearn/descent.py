"""Plain SGD through a network, given the slope of the loss by the network's output.

Where the network is a chain of linear layers and ReLUs, its backward pass is written out here and each
weight moves in the very product that makes its gradient, W ← W − lr · sᵀa: no gradient is ever stored. On
one core of a CPU that takes 0.4 of the time of autograd and a step of SGD (benchmarks/step.py).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["Passage", "passages"]


class Passage(ABC):
    """One pass of a batch through a network, from which one step of SGD may follow.

    output: what the network gave, cut off from any graph.
    """

    output: Tensor

    @abstractmethod
    def descend(self, slope: Tensor, learning_rate: float) -> None:
        """One step down the loss whose slope by `output` is given."""


def passages(network: nn.Module, parameters: list[Tensor]) -> Callable[[Tensor], Passage]:
    """How a batch passes through this network, of which these parameters are trained."""
    layers = _chain(network)
    trained = {id(parameter) for parameter in parameters}
    if layers and trained == {id(part) for layer in layers for part in (layer.weight, layer.bias)}:
        chain: list[tuple[Tensor, Tensor]] = [(layer.weight, layer.bias) for layer in layers]
        return functools.partial(_ChainPassage, chain)
    return functools.partial(_AutogradPassage, network, parameters)


class _AutogradPassage(Passage):
    """The same by autograd, for any network."""

    def __init__(self, network: nn.Module, parameters: list[Tensor], x: Tensor) -> None:
        self._output = network(x)
        self._parameters = parameters
        self.output = self._output.detach()

    def descend(self, slope: Tensor, learning_rate: float) -> None:
        gradients = torch.autograd.grad(self._output, self._parameters, slope)
        with torch.no_grad():
            torch._foreach_add_(self._parameters, gradients, alpha=-learning_rate)


class _ChainPassage(Passage):
    """A chain of linear layers with ReLUs between them, by hand."""

    def __init__(self, chain: list[tuple[Tensor, Tensor]], x: Tensor) -> None:
        self._chain = chain
        self._inputs = []  # a, what each layer was given
        with torch.no_grad():
            given = x.flatten(1)
            for weight, bias in chain[:-1]:
                self._inputs.append(given)
                given = torch.addmm(bias, given, weight.T).relu_()
            self._inputs.append(given)
            self.output = torch.addmm(chain[-1][1], given, chain[-1][0].T)

    @torch.no_grad()
    def descend(self, slope: Tensor, learning_rate: float) -> None:
        for i in range(len(self._chain) - 1, -1, -1):
            (weight, bias), given = self._chain[i], self._inputs[i]
            before = slope @ weight if i else slope  # by the weights as they were
            weight.addmm_(slope.T, given, alpha=-learning_rate)
            bias.add_(slope.sum(0), alpha=-learning_rate)
            slope = torch.ops.aten.threshold_backward(before, given, 0) if i else slope


def _chain(network: nn.Module) -> list[nn.Linear]:
    """The linear layers of a network that is Flatten, Linear, ReLU, Linear, …, Linear; else none."""
    flatten, *layers = _in_a_row(network)
    linear, between = layers[::2], layers[1::2]
    if (
        type(flatten) is nn.Flatten
        and (flatten.start_dim, flatten.end_dim) == (1, -1)
        and len(linear) == len(between) + 1 == len(set(linear))
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in between)
        and not any(_is_watched(layer) for layer in network.modules())
    ):
        return cast(list[nn.Linear], linear)
    return []


def _in_a_row(network: nn.Module) -> Iterator[nn.Module]:
    """The layers that x passes one after the other, as far as their kind tells."""
    if isinstance(network, nn.Sequential) and type(network).forward is nn.Sequential.forward:
        for part in network:
            yield from _in_a_row(part)
    else:
        yield network


def _is_watched(layer: nn.Module) -> bool:
    """Whether somebody hangs on to what passes through a layer, and so autograd must run."""
    return bool(
        layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    )
