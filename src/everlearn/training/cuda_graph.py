"""A tensor-only function as a CUDA graph: recorded once, replayed with one launch."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite
from everlearn.transaction import Transaction, current, suspended

__all__ = ["Captured", "Graphed", "available", "uncollected"]

# How often a shape is run eagerly before a graph is captured; libraries are also initialised in these runs.
EAGER_FIRST = 3

Shapes = tuple[torch.Size, ...]
Result = list[Tensor] | None


def available(device: torch.device) -> bool:
    """Whether functions of tensors on this device can be captured."""
    return device.type == "cuda"


class Graphed(Protocol):
    """A replacement for a function of tensor operations only, which may have recorded the tensors it uses."""

    def __call__(self, *inputs: Any) -> Any:
        """Call the function with these inputs."""

    def forget(self) -> None:
        """Drop all recordings, since the tensors were replaced."""

    def settle(self) -> None:
        """Wait for the device; raise a NotFinite if it refused the last batch, after undoing it on the host."""

    def drop(self) -> None:
        """Forget the last batch, since a state was loaded."""


class Captured:
    """Calls `function`, as a CUDA graph for every input shape that occurs repeatedly.

    The function changes tensors on the GPU in place, returns nothing or a list of tensors, and never reads a value
    from the device. Irregular shapes (a first batch, a short last one) run eagerly. Code that replaces a tensor
    used by the function must call `forget`.

    An input is a tensor, or an object with `arrays()`, its tensors, and `filled(tensors)`, one like it with others.

    guard: the same function, which refuses results that are not finite; it is what a graph captures. The host learns
    of a refusal in `settle`, before the next batch or prediction, and undoes its own part of the batch.
    """

    def __init__(self, function: Callable[..., Result], guard: FiniteGuard | None = None) -> None:
        self._function, self._guard = function, guard
        self._ran: Tensor | None = None  # how often a graph has run, on the device
        self._known_runs = 0  # the same, as far as the host knows
        self._last: Transaction | None = None  # of the batch of the last replay, until it is settled
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy captures its own graphs."""
        self.settle()
        return vars(self) | {"_met": Counter(), "_graphs": {}}

    def forget(self) -> None:
        """Drop all graphs, since the tensors they use were replaced."""
        self._met: Counter[Shapes] = Counter()
        self._graphs: dict[Shapes, tuple[torch.cuda.CUDAGraph, list[Tensor], Result]] = {}

    def __call__(self, *inputs: Any) -> Result:
        tensors = _tensors(inputs)
        self.settle()
        shapes = tuple(part.shape for part in tensors)
        self._met[shapes] += 1
        if self._met[shapes] <= EAGER_FIRST:
            return self._function(*inputs)
        if shapes not in self._graphs:
            self._graphs[shapes] = self._capture(inputs)
        graph, places, results = self._graphs[shapes]
        for place, part in zip(places, tensors, strict=True):
            place.copy_(part, non_blocking=True)
        transaction = current()
        if transaction is not None and self._guard is not None:
            transaction.point_of_no_return = functools.partial(self._ran_since, self._known_runs)
            self._last = transaction
        graph.replay()
        self._known_runs += 1
        # The next replay overwrites its own.
        return None if results is None else [result.clone() for result in results]

    def _ran_since(self, before: int) -> bool:
        """Whether the device has run a graph since then: an interrupt may come on either side of the launch."""
        self._known_runs = 0 if self._ran is None else int(self._ran)
        if self._known_runs == before:
            self._last = None
        return self._known_runs > before

    def settle(self) -> None:
        """Wait for the device; raise a NotFinite if it refused the last batch, after undoing it on the host."""
        last, self._last = self._last, None
        if last is None or self._guard is None:
            return
        if not bool(self._guard.refused):
            last.release()
            return
        self._guard.refused.zero_()
        transaction = current()
        if transaction is None:
            last.undo()
        else:
            transaction.undo_before = last
        raise NotFinite(
            "the batch before this call would have made the network's weights infinite or NaN, so nothing was learnt "
            "from it, and this call was not carried out: scale x, or lower learning_rate, and call again"
        )

    def drop(self) -> None:
        """Forget the last batch, since a state was loaded."""
        self._last = None
        if self._guard is not None:
            self._guard.refused.zero_()

    def _capture(self, inputs: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Result]:
        copies = [
            part.clone()
            if isinstance(part, Tensor)
            else part.filled([each.clone() for each in part.arrays()])
            for part in inputs
        ]
        graph = torch.cuda.CUDAGraph()
        if self._ran is None:
            self._ran = torch.zeros((), dtype=torch.int64, device=_tensors(copies)[0].device)
        torch.cuda.synchronize()
        with suspended(), uncollected(), torch.cuda.graph(graph):
            results = (self._guard or self._function)(*copies)
            self._ran += 1
        return graph, _tensors(copies), results


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from running: if it freed another CUDA graph now, the capture would fail."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tensors(inputs: Any) -> list[Tensor]:
    return [tensor for part in inputs for tensor in ([part] if isinstance(part, Tensor) else part.arrays())]
