"""A step on a GPU that keeps the values of before, if any new one is infinite or NaN.

The host doesn't wait for a CUDA graph, so it can't undo what the graph has done. A mask on the device does.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from everlearn import foreach
from everlearn.transaction import Transaction, suspended

__all__ = ["FiniteGuard"]


class FiniteGuard:
    """Calls a learner's `learn`; if the result is not finite, everything on the device stays as it was.

    refused: whether a batch was refused since this was last set to False, on the device.
    rows: whether a refused batch leaves no samples in the memory, either; the caller must then undo the index.

    A buffer that was not finite from the start, such as a mask of −∞, may stay as it is.
    """

    def __init__(self, learner: Any, rows: bool = True) -> None:
        self._learner, self._rows = learner, rows
        self.refused = torch.zeros((), dtype=torch.bool, device=learner.device)

    @torch.no_grad()
    def __call__(self, x: Tensor, plan: Any) -> None:
        """Learn from a batch. Tensor operations only."""
        learner = self._learner
        checked, others = _by_type(learner.learnt_tensors(), self._constants())
        groups = [*checked, *others]
        before = [_flat(group) for group in groups]
        restores_rows = self._rows and plan.keep is not None
        rows = learner.memory.overwritten(plan.keep) if restores_rows else None
        with torch.enable_grad():
            learner.learn(x, plan)
        after = [_flat(group) for group in groups]
        # The difference of a number and itself is 0, or NaN if it is not finite: less work than `isfinite`.
        finite = torch.stack([(part - part).sum() for part in after[: len(checked)]]).sum() == 0
        for group, old, new in zip(groups, before, after, strict=True):
            values = torch.split(torch.where(finite, new, old), [part.numel() for part in group])
            foreach.copy_(group, [value.view(part.shape) for value, part in zip(values, group, strict=True)])
        if rows is not None:
            learner.memory.write(torch.where(finite, x.to(rows.dtype), rows), plan.keep)
        self.refused.logical_or_(~finite)

    def remember(self, transaction: Transaction, x: Tensor, plan: Any) -> None:
        """Let a transaction remember what the device is about to change."""
        transaction.keep(self._learner.learnt_tensors())
        if self._rows and plan.keep is not None:
            memory = self._learner.memory
            transaction.on_undo(functools.partial(_write, memory, memory.overwritten(plan.keep), plan.keep))

    def _constants(self) -> set[int]:
        """The ids of buffers that need not be finite."""
        must_be = {id(part) for part in self._learner.traits.finite_buffers}
        return {id(part) for part in self._learner.network.buffers()} - must_be


def _by_type(tensors: list[Tensor], constants: set[int]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Tensors that must be finite, and others: those of one type together."""
    checked: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    others: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        must_be_finite = tensor.is_floating_point() and id(tensor) not in constants
        (checked if must_be_finite else others)[tensor.dtype].append(tensor)
    return list(checked.values()), list(others.values())


def _write(memory: Any, x: Tensor, rows: Tensor) -> None:
    with suspended():
        memory.write(x, rows)


def _flat(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
