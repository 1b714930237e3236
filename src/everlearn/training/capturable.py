"""Whether a CUDA graph can capture a user's network, which may do anything."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Watch", "needs_values"]


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that notes whether the host needs values of the device, and whether a network replaces its buffers.

    A graph can do neither: the first is an error, and after the second it would go on with the buffers of before.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._network, self._buffers = network, list(network.buffers())
        self._host_reads = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here; otherwise torch would import its compiler, which takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._host_reads = self._host_reads or needs_values(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def can_be_captured(self) -> bool:
        """Whether a graph can do what was done in this context."""
        now = list(self._network.buffers())
        same = len(now) == len(self._buffers) and all(map(lambda a, b: a is b, now, self._buffers))
        return same and not self._host_reads


def needs_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the host needs values from the device for an operation: for its result, or for the shape of it."""
    name = func._schema.name
    if name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1])
    if name == "aten::_to_copy" and args[0].device.type == "cuda":
        return kwargs.get("device") is not None and torch.device(kwargs["device"]).type == "cpu"
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))
