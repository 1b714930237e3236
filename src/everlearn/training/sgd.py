"""Plain SGD on a network, from the gradient of the loss with respect to the network's output.

A step that is not finite is refused before anything changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.training.passes import AutogradPass, ChainPass, NotFinite, Pass, linear_chain
from everlearn.transaction import current

__all__ = ["SGD", "finite_norm", "with_gradients"]


Gradients = tuple[Tensor, ...] | list[Tensor]
"""One gradient for each parameter."""


def with_gradients() -> AbstractContextManager[None]:
    """A context in which gradients are computed, even if the caller has switched them off."""
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return nullcontext()
    return _gradients_on()


@contextmanager
def _gradients_on() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


class SGD:
    """Steps of plain SGD.

    clip: the longest step, as the norm of learning rate times gradient; a longer one is shortened. None for any.
    """

    def __init__(
        self, network: nn.Module, parameters: list[Tensor], learning_rate: float, clip: float | None = None
    ) -> None:
        self.learning_rate, self.clip = learning_rate, clip
        self._network, self.parameters = network, parameters
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
        return ChainPass(self, self._layers, x) if self._layers else AutogradPass(self, self._network, x)

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step with a gradient for each parameter."""
        if not self.parameters:
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
                transaction.keep(self.parameters)
            foreach.add_(self.parameters, gradients, alpha=-self.learning_rate)
        else:
            moved = foreach.add(self.parameters, gradients, alpha=-self.learning_rate)
            transaction.replace(self.parameters, moved)

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
