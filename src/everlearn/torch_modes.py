"""Torch's modes in this thread: whether gradients are on, and the dispatch modes, such as `DrawFrom`.

A context manager written in Python may be interrupted while it is left, and then its mode stays on. A learner notes
the modes at the start of a call, and restores them at its end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["OperationMode", "TorchModes", "keeping_modes", "without_gradients"]

Function = TypeVar("Function", bound=Callable[..., Any])


class OperationMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that sees every operation of torch. Subclasses define `__torch_dispatch__`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled in here; otherwise torch would import its compiler, which takes seconds."""
        return False


class TorchModes:
    """The modes of this thread as they are now; `restore` may be called more than once."""

    __slots__ = ("_depth", "_gradients")

    def __init__(self) -> None:
        self._gradients = torch.is_grad_enabled()
        self._depth = torch._C._len_torch_dispatch_stack()

    def restore(self) -> None:
        """Switch off the modes that were left on since, and set gradients as they were."""
        while torch._C._len_torch_dispatch_stack() > self._depth:
            torch._C._pop_torch_dispatch_stack(None)
        if torch.is_grad_enabled() != self._gradients:
            torch.set_grad_enabled(self._gradients)


_set_gradients: Any = getattr(torch._C, "_set_grad_enabled", torch.set_grad_enabled)  # without an object


class without_gradients:  # noqa: N801
    """`torch.no_grad()` in a quarter of its time."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = torch.is_grad_enabled()
        _set_gradients(False)

    def __exit__(self, *error: object) -> None:
        _set_gradients(self._before)


def keeping_modes(function: Function) -> Function:
    """A decorator: after the function, torch's modes are as before, even if it was interrupted."""

    @functools.wraps(function)
    def keeping(*args: Any, **kwargs: Any) -> Any:
        modes = TorchModes()
        # An interrupt may come just before the modes are restored, so it is done twice.
        try:
            try:
                return function(*args, **kwargs)
            finally:
                modes.restore()
        finally:
            modes.restore()

    return cast(Function, keeping)
