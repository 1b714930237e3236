"""Whether a CUDA graph can capture code of the user's, which may do anything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from everlearn.torch_modes import OperationMode

__all__ = ["HostReads", "Watch", "are_same", "buffers_of", "modules_with_buffers", "needs_values"]


class HostReads(OperationMode):  # type: ignore[no-untyped-call]
    """A context that calls `found` with the name of every operation for which the host needs values."""

    def found(self, name: str) -> None:
        """Called before such an operation."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if needs_values(func, args, kwargs or {}):
            self.found(func._schema.name)
        return func(*args, **(kwargs or {}))


class Watch(HostReads):
    """A context that notes whether the host needs values of the device, and whether networks replace their buffers.

    A graph can do neither: the first is an error, and after the second it would go on with the buffers of before.
    """

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._networks = list(networks)
        self._buffers = buffers_of(modules_with_buffers(self._networks))
        self._host_reads = False

    def found(self, name: str) -> None:
        """Note it."""
        self._host_reads = True

    def can_be_captured(self) -> bool:
        """Whether a graph can do what was done in this context."""
        now = buffers_of(modules_with_buffers(self._networks))
        return are_same(self._buffers, now) and not self._host_reads


def modules_with_buffers(networks: Iterable[nn.Module]) -> list[nn.Module]:
    """The modules in several networks that have buffers of their own."""
    return [module for network in networks for module in network.modules() if module._buffers]


def buffers_of(modules: Iterable[nn.Module]) -> list[Tensor | None]:
    """Their own buffers."""
    return [buffer for module in modules for buffer in module._buffers.values()]


def are_same(tensors: list[Tensor | None], others: list[Tensor | None]) -> bool:
    """Whether these are the same objects."""
    return len(tensors) == len(others) and all(map(lambda a, b: a is b, tensors, others))


def needs_values(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the host takes part in an operation: by a copy, or since its result or its shape needs values."""
    name = func._schema.name
    if name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1])
    if name == "aten::_to_copy" and kwargs.get("device") is not None:
        return bool(torch.device(kwargs["device"]).type != args[0].device.type)
    if name == "aten::copy_":
        return bool(args[0].device.type != args[1].device.type)
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))
