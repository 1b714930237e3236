"""A tensor-only function as a CUDA graph: recorded once, replayed with one launch."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from everlearn.training.capturable import Watch, are_same, buffers_of, modules_with_buffers
from everlearn.training.finite_guard import FiniteGuard
from everlearn.training.passes import NotFinite
from everlearn.transaction import Transaction, current, suspended

__all__ = ["Captured", "Graphed", "available", "uncollected"]

# How often a shape is run eagerly before a graph is captured; libraries are also initialised in these runs.
EAGER_FIRST = 3

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


class Captured:
    """Calls `function`, as a CUDA graph for inputs of every form that occurs repeatedly.

    The function changes tensors on the GPU in place, returns nothing or a list of tensors, and never reads a value
    from the device. Irregular shapes (a first batch, a short last one) run eagerly. Code that replaces a tensor
    used by the function must call `forget`.

    An input is a tensor, or an object with `arrays()`, its tensors; `form()`, which these are; and
    `filled(tensors)`, one like it with others.

    guard: the same function, which refuses results that are not finite; it is what a graph captures. The host learns
    of a refusal in `settle`, before the next batch or prediction, and undoes its own part of the batch. In a
    transaction that goes on after the batch, the host remembers the values of before, and waits.

    watched: the learners in the function that have code of the user's. It may do what no graph can; then all runs are
    eager.
    """

    def __init__(
        self, function: Callable[..., Result], guard: FiniteGuard | None = None, watched: Sequence[Any] = ()
    ) -> None:
        self._function, self._guard, self._watched = function, guard, watched
        self._ran: Tensor | None = None  # how often a graph has run, on the device
        self._known_runs = 0  # the same, as far as the host knows
        self._last: Transaction | None = None  # of the batch of the last replay, until it is settled
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy captures its own graphs."""
        self.settle()
        return vars(self) | {"_met": Counter(), "_graphs": {}, "_with_buffers": [], "_buffers": []}

    def forget(self) -> None:
        """Drop all graphs, since the tensors they use were replaced."""
        self._eager = False
        self._met: Counter[Hashable] = Counter()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], Result]] = {}
        # Of the networks that are watched: the modules with buffers, and the buffers that are in the graphs.
        self._with_buffers: list[nn.Module] = []
        self._buffers: list[Tensor | None] = []

    def __call__(self, *inputs: Any) -> Result:
        tensors = _tensors(inputs)
        self.settle()
        form = _form(inputs)
        self._met[form] += 1
        if self._watched and self._met[form] == EAGER_FIRST:
            with Watch(self._networks()) as watch:
                done = self._function(*inputs)
            self._eager = self._eager or not watch.can_be_captured()
            return done
        if self._met[form] <= EAGER_FIRST or self._must_be_eager():
            return self._function(*inputs)
        if form not in self._graphs:
            self._graphs[form] = self._capture(inputs)
        graph, places, results = self._graphs[form]
        for place, part in zip(places, tensors, strict=True):
            place.copy_(part, non_blocking=True)
        transaction = current()
        waits = transaction is not None and transaction.goes_on
        if transaction is not None and self._guard is not None:
            if waits:
                transaction.on_undo(self._undo_run)
                self._guard.remember(transaction, *inputs)
            else:
                transaction.point_of_no_return = functools.partial(self._ran_since, self._known_runs)
                self._last = transaction
        graph.replay()
        self._known_runs += 1
        if waits and self._guard is not None and bool(self._guard.refused):
            raise NotFinite
        # The next replay overwrites its own.
        return None if results is None else [result.clone() for result in results]

    def _networks(self) -> list[nn.Module]:
        return [learner.network for learner in self._watched]

    def _must_be_eager(self) -> bool:
        """Whether code of the user's does what no graph can, such as replacing a buffer, here or elsewhere."""
        if self._watched and not self._eager:
            if not self._graphs:
                self._with_buffers = modules_with_buffers(self._networks())
            now = buffers_of(self._with_buffers)
            self._eager = bool(self._graphs) and not are_same(self._buffers, now)
            self._buffers = now
        return self._eager

    def _ran_since(self, before: int) -> bool:
        """Whether the device has run a graph since then: an interrupt may come on either side of the launch."""
        self._known_runs = 0 if self._ran is None else int(self._ran)
        if self._known_runs == before:
            self._last = None
        return self._known_runs > before

    def _undo_run(self) -> None:
        """The values of before are restored, whether the device has run the graph or not."""
        assert self._guard is not None
        self._guard.refused.zero_()
        self._known_runs = 0 if self._ran is None else int(self._ran)

    def settle(self) -> None:
        """Wait for the device; raise a NotFinite if it refused the last batch, after undoing it on the host.

        An interrupt may come at any point, most likely while the host waits. The next call then settles again.
        """
        last = self._last
        if last is None or self._guard is None:
            return
        if not bool(self._guard.refused):
            self._last = None
            last.release()
            return
        transaction = current()
        if transaction is None:
            last.undo()
        else:
            transaction.undo_before = last
        self._guard.refused.zero_()
        self._last = None
        raise NotFinite(
            "the batch before this call would have made the network's weights infinite or NaN, so nothing was learnt "
            "from it, and this call was not carried out: scale x, or lower learning_rate, and call again"
        )

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


def _form(inputs: Any) -> Hashable:
    """What inputs of one graph have in common: not shapes alone, as there may be as many weights as rows to store."""
    of_objects = [part.form() for part in inputs if not isinstance(part, Tensor)]
    return tuple((part.shape, part.dtype) for part in _tensors(inputs)), *of_objects


def _tensors(inputs: Any) -> list[Tensor]:
    return [tensor for part in inputs for tensor in ([part] if isinstance(part, Tensor) else part.arrays())]
