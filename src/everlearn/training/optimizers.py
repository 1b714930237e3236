"""Optimisers with a state: SGD with momentum or weight decay, Adam and AdamW.

They update parameters and moments in place, in tensor operations only, so that a CUDA graph captures a step; inside
a transaction the values from before are remembered. Plain SGD has no state and stays in `sgd.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.messages import nearest
from everlearn.training.sgd import SGD, Gradients
from everlearn.transaction import current

__all__ = ["OPTIMIZERS", "StatefulOptimizer", "make_optimizer"]

FIRST = 0.9  # decay of Adam's first moment
TINY = 1e-8


class StatefulOptimizer(SGD):
    """One step after another of an optimiser that remembers gradients.

    moments: for each kind of moment, a tensor for each parameter. steps: how many there were, on the device.
    clip: the longest learning rate times gradient, by norm; a longer gradient is shortened before it is used.
    """

    kinds: tuple[str, ...]

    def __init__(
        self,
        network: nn.Module,
        parameters: list[Tensor],
        learning_rate: float,
        clip: float | None,
        weight_decay: float,
    ) -> None:
        super().__init__(network, parameters, learning_rate, clip)
        self._layers = []  # the backward pass by autograd, since the gradients themselves are needed
        self.weight_decay = weight_decay
        self.moments = {kind: [torch.zeros_like(part) for part in parameters] for kind in self.kinds}
        device = parameters[0].device if parameters else torch.device("cpu")
        self.steps = torch.zeros((), device=device)

    def continue_from(self, before: StatefulOptimizer) -> None:
        """Take over the state for parameters that are the same, and for the rows of a layer that has grown."""
        self.steps = before.steps
        for kind, mine in self.moments.items():
            pairs = zip(self.parameters, before.parameters, before.moments[kind], strict=False)
            for place, (new, old, moment) in enumerate(pairs):
                if new is old:
                    mine[place] = moment
                elif new.shape[1:] == old.shape[1:] and len(new) > len(old):
                    mine[place][: len(old)] = moment

    @torch.no_grad()
    def step(self, gradients: Gradients) -> None:
        """One step with a gradient for each parameter."""
        if not self.parameters:
            return
        gradients = list(gradients)
        norm = torch.stack(foreach.norm(gradients)).norm()
        if self.clip is not None:
            gradients = list(foreach.mul(gradients, (self.clip / (self.learning_rate * norm)).clamp(max=1)))
        transaction = current()
        if transaction is not None:
            transaction.keep([*self.parameters, *self.state_tensors()])
        self.steps += 1
        self.update(gradients)
        if transaction is not None:
            # Asked for when the batch is done: a moment may overflow where the gradient itself did not.
            transaction.norms.append(norm)
            transaction.norms += [torch.stack(foreach.norm(parts)).norm() for parts in self.moments.values()]

    @abstractmethod
    def update(self, gradients: list[Tensor]) -> None:
        """Move moments and parameters in place."""

    def state_tensors(self) -> list[Tensor]:
        """The tensors that a step changes, besides the parameters."""
        return [self.steps, *(part for parts in self.moments.values() for part in parts)]

    def nbytes(self) -> int:
        """Bytes of the moments."""
        return sum(part.nbytes for parts in self.moments.values() for part in parts)

    def state(self) -> dict[str, Tensor]:
        """The state, in a few tensors."""
        flat = {kind: [part.flatten() for part in parts] for kind, parts in self.moments.items()}
        moments = {kind: torch.cat(parts) if parts else torch.zeros(0) for kind, parts in flat.items()}
        return moments | {"steps": self.steps.clone()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load what `state` returned, for parameters of the same sizes; a ValueError if it is something else."""
        sizes = [part.numel() for part in self.parameters]
        expected = {**dict.fromkeys(self.kinds, (sum(sizes),)), "steps": ()}
        if {name: tuple(part.shape) for name, part in state.items()} != expected:
            raise ValueError(
                f"its optimiser has another state than the {sum(sizes)} parameters of the network"
            )
        for kind, mine in self.moments.items():
            for part, values in zip(mine, torch.split(state[kind], sizes), strict=True):
                part.copy_(values.view_as(part))
        self.steps.copy_(state["steps"])


class MomentumSGD(StatefulOptimizer):
    """SGD with momentum, b ← m · b + g and θ ← θ − lr · b, and weight decay, g = ∇L + d · θ."""

    kinds = ("momentum",)

    def __init__(self, *arguments: Any, momentum: float) -> None:
        super().__init__(*arguments)
        self.momentum = momentum

    def update(self, gradients: list[Tensor]) -> None:
        """Move moments and parameters in place."""
        if self.weight_decay:
            foreach.add_(gradients, self.parameters, alpha=self.weight_decay)
        velocities = self.moments["momentum"]
        foreach.mul_(velocities, self.momentum)
        foreach.add_(velocities, gradients)
        foreach.add_(self.parameters, velocities, alpha=-self.learning_rate)


class AdamOptimizer(StatefulOptimizer):
    """Adam; weight decay is part of the gradient, g = ∇L + d · θ.

    Kingma, D. P. and Ba, J. Adam: A Method for Stochastic Optimization. ICLR 2015.
    """

    kinds = ("first", "second")

    def __init__(self, *arguments: Any, second_moment: float) -> None:
        super().__init__(*arguments)
        self.second_moment = second_moment

    def update(self, gradients: list[Tensor]) -> None:
        """Move moments and parameters in place."""
        self.decay(gradients)
        first, second = self.moments["first"], self.moments["second"]
        foreach.lerp_(first, gradients, 1 - FIRST)
        foreach.mul_(second, self.second_moment)
        foreach.addcmul_(second, gradients, gradients, value=1 - self.second_moment)
        # Bias correction of the moments, which are initialised with 0.
        steps = self.steps.double() if self.steps.device.type != "mps" else self.steps
        spread = foreach.sqrt(second)
        foreach.mul_(spread, (1 - self.second_moment**steps).rsqrt())
        foreach.add_(spread, TINY)
        changes = foreach.div(first, spread)
        foreach.mul_(changes, self.learning_rate / (1 - FIRST**steps))
        foreach.add_(self.parameters, changes, alpha=-1)

    def decay(self, gradients: list[Tensor]) -> None:
        """Let the weights decay."""
        if self.weight_decay:
            foreach.add_(gradients, self.parameters, alpha=self.weight_decay)


class AdamWOptimizer(AdamOptimizer):
    """Adam with decoupled weight decay, θ ← θ − lr · d · θ.

    Loshchilov, I. and Hutter, F. Decoupled Weight Decay Regularization. ICLR 2019.
    """

    def decay(self, gradients: list[Tensor]) -> None:
        """Let the weights decay."""
        if self.weight_decay:
            foreach.mul_(self.parameters, 1 - self.learning_rate * self.weight_decay)


ADAMS = {"adam": AdamOptimizer, "adamw": AdamWOptimizer}
OPTIMIZERS = ("sgd", *ADAMS)


def make_optimizer(
    network: nn.Module, parameters: list[Tensor], settings: Any, before: SGD | None = None
) -> SGD:
    """The optimiser that the settings of a learner name.

    before: the one so far, if the network has grown; its state is taken over.

    >>> from everlearn.core.settings import Settings
    >>> network = nn.Linear(3, 2)
    >>> type(make_optimizer(network, list(network.parameters()), Settings(optimizer="adamw"))).__name__
    'AdamWOptimizer'
    """
    if settings.optimizer not in OPTIMIZERS:
        raise ValueError(
            f"there is no optimizer {settings.optimizer!r}{nearest(settings.optimizer, OPTIMIZERS)}"
        )
    common = network, parameters, settings.learning_rate, settings.clip
    if settings.trains_with is not None:
        return SGD(*common)
    if settings.optimizer in ADAMS:
        adam = ADAMS[settings.optimizer]
        made: StatefulOptimizer = adam(*common, settings.weight_decay, second_moment=settings.second_moment)
    elif settings.optimizer_momentum or settings.weight_decay:
        made = MomentumSGD(*common, settings.weight_decay, momentum=settings.optimizer_momentum)
    else:
        return SGD(*common)
    if isinstance(before, type(made)):
        made.continue_from(before)
    return made
