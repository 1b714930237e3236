"""A tensor-only function as a CUDA graph: recorded once, replayed with one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from everlearn.transaction import suspended

__all__ = ["Captured", "Graphed"]

# How often a shape is run eagerly before a graph is captured; libraries are also initialised in these runs.
EAGER_FIRST = 3

Shapes = tuple[torch.Size, ...]


class Graphed(Protocol):
    """A replacement for a function of tensor operations only, which may have recorded the tensors it uses."""

    def __call__(self, *inputs: Any) -> None:
        """Call the function with these inputs."""

    def forget(self) -> None:
        """Drop all recordings, since the tensors were replaced."""


class Captured:
    """Calls `function`, as a CUDA graph for every input shape that occurs repeatedly.

    The function changes tensors on the GPU in place, allocates nothing that outlives it, and never reads a value
    from the device. Irregular shapes (a first batch, a short last one) run eagerly. Code that replaces a tensor
    used by the function must call `forget`.

    An input is a tensor, or an object with `arrays()`, its tensors, and `filled(tensors)`, one like it with others.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.forget()

    def forget(self) -> None:
        """Drop all graphs, since the tensors they use were replaced."""
        self._met: Counter[Shapes] = Counter()
        self._graphs: dict[Shapes, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}

    def __call__(self, *inputs: Any) -> None:
        tensors = _tensors(inputs)
        shapes = tuple(part.shape for part in tensors)
        self._met[shapes] += 1
        if self._met[shapes] <= EAGER_FIRST:
            self._function(*inputs)
            return
        if shapes not in self._graphs:
            self._graphs[shapes] = self._capture(inputs)
        graph, places = self._graphs[shapes]
        for place, part in zip(places, tensors, strict=True):
            place.copy_(part, non_blocking=True)
        graph.replay()

    def _capture(self, inputs: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        copies = [
            part.clone()
            if isinstance(part, Tensor)
            else part.filled([each.clone() for each in part.arrays()])
            for part in inputs
        ]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with suspended(), torch.cuda.graph(graph):
            self._function(*copies)
        return graph, _tensors(copies)


def _tensors(inputs: Any) -> list[Tensor]:
    return [tensor for part in inputs for tensor in ([part] if isinstance(part, Tensor) else part.arrays())]
