"""Adam, for parameters that are added during training, with a state that a learner can save.

`torch.optim.Adam` updates weights and moments in place and counts steps in its own state. Here a step makes new
tensors, so that a failed or interrupted batch keeps the old ones without a copy; parameters that are added later
start their own bias correction; and the moments are saved as a few flat tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from everlearn import foreach
from everlearn.training.passes import gradients_of
from everlearn.training.sgd import finite_norm
from everlearn.transaction import current

__all__ = ["Adam"]

FIRST, SECOND = 0.9, 0.999  # decay of the two moments
TINY = 1e-8


class Adam:
    """The Adam optimiser.

    >>> weight = torch.ones(2, requires_grad=True)
    >>> adam = Adam([weight], learning_rate=0.1)
    >>> adam.descend((weight * torch.tensor([1.0, -50.0])).sum())
    >>> weight.detach()
    tensor([0.9000, 1.1000])

    Kingma, D. P. and Ba, J. Adam: A Method for Stochastic Optimization. ICLR 2015.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        learning_rate: float,
        decay: float = 0.0,
        clip: float | None = None,
    ) -> None:
        self.learning_rate = learning_rate
        self.decay = decay  # weight decay, the weight of the squared parameters in the loss
        self.clip = clip  # the largest absolute value of an entry of a gradient
        self.parameters: list[Tensor] = []
        self._first: list[Tensor] = []
        self._second: list[Tensor] = []
        self._ages: list[int] = []  # the number of steps of each parameter
        self.add(parameters)

    def add(self, parameters: Iterable[Tensor]) -> None:
        """Add parameters."""
        new = list(parameters)
        self.parameters = [*self.parameters, *new]
        self._first = [*self._first, *(torch.zeros_like(part) for part in new)]
        self._second = [*self._second, *(torch.zeros_like(part) for part in new)]
        self._ages = [*self._ages, *(0 for _ in new)]

    def descend(self, loss: Tensor) -> None:
        """One step on a loss."""
        self.step(list(gradients_of(loss, self.parameters)))

    @torch.no_grad()
    def step(self, gradients: list[Tensor]) -> None:
        """One step with these gradients, one for each parameter; they may be overwritten.

        Moments and parameters get new tensors, so that a failed step leaves the old ones.
        """
        finite_norm(gradients)
        if self.decay:
            foreach.add_(gradients, self.parameters, alpha=2 * self.decay)
        if self.clip is not None:
            foreach.clamp_(gradients, self.clip)
        first = foreach.lerp(self._first, gradients, 1 - FIRST)
        second = foreach.mul(self._second, SECOND)
        foreach.addcmul_(second, gradients, gradients, value=1 - SECOND)
        ages = [age + 1 for age in self._ages]
        # Bias correction of the moments, which are initialised with 0.
        spread = foreach.sqrt(second)
        foreach.div_(spread, [math.sqrt(1 - SECOND**age) for age in ages])
        foreach.add_(spread, TINY)
        sizes = [-self.learning_rate / (1 - FIRST**age) for age in ages]
        moved = foreach.addcdiv(self.parameters, first, spread, sizes)
        finite_norm(moved)
        transaction = current()
        if transaction is None:
            foreach.copy_(self.parameters, moved)
        else:
            transaction.replace(self.parameters, moved)
        self._first, self._second, self._ages = list(first), list(second), ages

    def nbytes(self) -> int:
        """Bytes of the moments."""
        return sum(part.nbytes for part in (*self._first, *self._second))

    def state(self) -> dict[str, Tensor]:
        """The state, in a few tensors."""
        moments = (torch.cat([part.flatten() for part in parts]) for parts in (self._first, self._second))
        return dict(zip(("first", "second"), moments, strict=True)) | {"ages": torch.tensor(self._ages)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Load a state that `state` returned, for parameters of the same sizes."""
        sizes = [part.numel() for part in self.parameters]
        for name, mine in (("first", self._first), ("second", self._second)):
            if len(state[name]) != sum(sizes):
                theirs = len(state[name])
                raise ValueError(f"Adam has {theirs} parameters in the state, {sum(sizes)} in the network")
            for part, values in zip(mine, torch.split(state[name], sizes), strict=True):
                part.copy_(values.view_as(part))
        ages = state["ages"].tolist()
        if (
            not isinstance(ages, list)
            or len(ages) != len(sizes)
            or not all(type(age) is int and age >= 0 for age in ages)
        ):
            raise ValueError(f"Adam has {len(sizes)} parameters, but the state has other numbers of steps")
        self._ages = ages
