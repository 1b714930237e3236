"""The visible state of a learner and of the process, bit by bit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["differing", "frozen", "in_another_thread", "process"]


def frozen(state: dict[str, Any]) -> dict[str, Any]:
    """A state in a form whose equality is that of every bit."""
    return {
        name: part if isinstance(part, str) else (part.dtype, tuple(part.shape), _bytes(part))
        for name, part in state.items()
    }


def _bytes(part: Tensor) -> bytes:
    return part.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes() if part.numel() else b""


WEIGHTS = ("network.", "average.", "adam.")


def differing(given: dict[str, Any], right: dict[str, Any]) -> list[str]:
    """The parts that differ: by name, weights together."""
    names = {key for key in given.keys() | right.keys() if given.get(key) != right.get(key)}
    return sorted({key.split(".")[0] if key.startswith(WEIGHTS) else key for key in names})


def process() -> tuple[Any, ...]:
    """What belongs to the process, and no learner may change."""
    return (
        torch.get_rng_state().numpy().tobytes(),
        *(torch.is_grad_enabled(), torch._C._len_torch_dispatch_stack(), torch.get_num_threads()),
    )


def in_another_thread(function: Callable[[], Any]) -> Any:
    """The result of a function in another thread, or None if it waits for a lock that nobody will release."""
    given: list[Any] = []

    def call() -> None:
        try:
            given.append(function())
        except Exception as problem:
            given.append(problem)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(1)
    if given and isinstance(given[0], Exception):
        raise given[0]
    return given[0] if given else None
