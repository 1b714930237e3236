"""Random numbers from a given generator, also in layers that use torch's default generator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from everlearn.torch_modes import OperationMode

__all__ = ["DrawFrom", "on_cpu"]


class DrawFrom(OperationMode):
    """A context in which CPU random numbers of this thread come from the given generator by default.

    So dropout, or the initialisation of a layer, neither depends on other random draws nor affects them.

    drawn: whether any random numbers were drawn.

    >>> with DrawFrom(torch.Generator().manual_seed(0)):
    ...     first = torch.rand(3)
    >>> _ = torch.manual_seed(0)
    >>> torch.equal(first, torch.rand(3))
    True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator, self.drawn = generator, False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        overload = _with_generator(func)
        if overload is not None and kwargs.get("generator") is None and _on_cpu(args, kwargs):
            func, self.drawn = overload, True
            place = [argument.name for argument in overload._schema.arguments].index("generator")
            if place < len(args):  # given by position
                args = (*args[:place], self.generator, *args[place + 1 :])
            else:
                kwargs["generator"] = self.generator
        return func(*args, **kwargs)


@contextmanager
def on_cpu(network: nn.Module) -> Iterator[None]:
    """A context in which a network is on the CPU, to draw weights: a GPU would draw from its own generator."""
    held = next(itertools.chain(network.parameters(), network.buffers()), None)
    device = None if held is None else held.device
    network.cpu()
    try:
        yield
    finally:
        if device is not None:
            network.to(device)


_OVERLOADS: dict[Any, Any] = {}


def _with_generator(func: Any) -> Any | None:
    """The same operation with a generator as its argument, if it draws random numbers."""
    if func not in _OVERLOADS:
        _OVERLOADS[func] = _find_overload(func)
    return _OVERLOADS[func]


def _find_overload(func: Any) -> Any | None:
    if any(argument.name == "generator" for argument in func._schema.arguments):
        return func
    packet = func.overloadpacket
    wanted = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
    return getattr(packet, wanted) if wanted in packet.overloads() else None


def _on_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device).type == "cpu"
    return all(arg.device.type == "cpu" for arg in args if isinstance(arg, torch.Tensor))
