"""Plain SGD on a network, from the gradient of the loss with respect to the network's output.

For a chain of linear layers and ReLUs the backward pass is written by hand, and each weight is updated by the product
that computes its gradient, W ← W − lr · sᵀa: no gradient is stored. On one CPU core this takes 0.4 of the time of
autograd and a step of SGD (benchmarks/step.py).

A step that is not finite is refused before anything changes. In a transaction, the update of a chain is made when the
weights are needed again, or at the end, so that nothing is copied.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.arrays import in_float64
from everlearn.torch_modes import without_gradients
from everlearn.transaction import current

__all__ = ["SGD", "NotFinite", "Pass", "finite_norm", "linear_chain", "with_gradients"]


Gradients = tuple[Tensor, ...] | list[Tensor]
"""One gradient for each parameter."""


class NotFinite(ValueError):
    """A step would have made the weights infinite or NaN; nothing was changed."""

    def __init__(
        self,
        message: str = "a step on this batch would make the network's weights infinite or NaN, so nothing was learnt "
        "from it: scale x, or lower learning_rate",
    ) -> None:
        super().__init__(message)


def with_gradients() -> AbstractContextManager[None]:
    """A context in which gradients are computed, even if the caller has switched them off."""
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return nullcontext()
    return _gradients_on()


@contextmanager
def _gradients_on() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


class Pass(ABC):
    """One forward pass of a batch, which one step of SGD may follow.

    output: the network's output, detached.
    """

    output: Tensor

    @abstractmethod
    def descend(self, slope: Tensor) -> None:
        """One SGD step on the loss whose gradient with respect to `output` is `slope`."""


class SGD:
    """Steps of plain SGD.

    clip: the longest step, as the norm of learning rate times gradient; a longer one is shortened. None for any.
    """

    def __init__(
        self, network: nn.Module, parameters: list[Tensor], learning_rate: float, clip: float | None = None
    ) -> None:
        self.learning_rate, self.clip = learning_rate, clip
        self._network, self._parameters = network, parameters
        layers = linear_chain(network)
        trained = {id(parameter) for parameter in parameters}
        by_hand = trained == {id(part) for layer in layers for part in (layer.weight, layer.bias)}
        self._layers: list[tuple[Tensor, Tensor]] = []
        if layers and by_hand:
            self._layers = [(layer.weight, layer.bias) for layer in layers]

    def forward(self, x: Tensor) -> Pass:
        """Pass a batch through the network as it is now."""
        transaction = current()
        if transaction is not None:
            transaction.flush()
        return _ChainPass(self, self._layers, x) if self._layers else _AutogradPass(self, self._network, x)

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step with a gradient for each parameter."""
        if not self._parameters:
            return
        transaction = current()
        norm = torch.stack(foreach.norm(gradients)).norm()
        if self.clip is not None and not self._is_short(norm):
            share, norm = self._share(gradients, norm)
            gradients = foreach.mul(gradients, share)
        if transaction is not None:
            transaction.norms.append(norm)  # whether it is finite is asked when the batch is done
        if transaction is None or norm.is_cuda:  # a captured graph uses these very tensors
            if transaction is not None:
                transaction.keep(self._parameters)
            foreach.add_(self._parameters, gradients, alpha=-self.learning_rate)
        else:
            moved = foreach.add(self._parameters, gradients, alpha=-self.learning_rate)
            transaction.replace(self._parameters, moved)

    def _is_short(self, norm: Tensor) -> bool:
        """Whether a gradient of this norm clearly needs no shortening; on a GPU the host does not ask."""
        assert self.clip is not None
        return norm.is_cpu and self.learning_rate * float(norm.double().numpy()) < 0.999 * self.clip

    def _share(self, gradients: Gradients, norm: Tensor) -> tuple[Tensor, Tensor]:
        """The factor that keeps a step from being too long, and a norm that is infinite only if a gradient is.

        Squares may overflow where gradients do not. Their norm is then no more than the largest value times the root
        of their number.
        """
        assert self.clip is not None
        longest = self.clip / self.learning_rate
        share = (self.clip / (self.learning_rate * norm)).clamp(max=1)
        filled = [part for part in gradients if part.numel()]
        if not filled:
            return share, norm
        largest = foreach.largest(filled)
        overflows = norm.isinf() & largest.isfinite()
        root = math.sqrt(sum(part.numel() for part in filled))
        return torch.where(overflows, longest / root / largest, share), torch.where(overflows, largest, norm)

    def state_tensors(self) -> list[Tensor]:
        """The tensors that a step changes, besides the parameters: plain SGD has none."""
        return []

    def rate(self, norm: float) -> float:
        """The learning rate, less where a gradient of this norm would make too long a step."""
        if self.clip is None or self.learning_rate * norm <= self.clip:
            return self.learning_rate
        return self.clip / norm


def finite_norm(gradients: Gradients) -> float:
    """The norm of all gradients together; raises a NotFinite if it is not finite."""
    norm = float(torch.stack(foreach.norm(gradients)).norm())
    if not math.isfinite(norm):
        raise NotFinite
    return norm


class _AutogradPass(Pass):
    """A pass by autograd, for any network."""

    def __init__(self, optimiser: SGD, network: nn.Module, x: Tensor) -> None:
        self._optimiser = optimiser
        self._output = network(x)
        self.output = self._output.detach()

    def descend(self, slope: Tensor) -> None:
        parameters = self._optimiser._parameters
        self._optimiser.step(torch.autograd.grad(self._output, parameters, slope))


class _ChainPass(Pass):
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
