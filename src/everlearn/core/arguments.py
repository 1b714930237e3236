"""Validation of what a learner is made with: its network, seed and device."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from everlearn.memory.labels import shortened
from everlearn.networks import check_name

__all__ = ["as_device", "as_network", "as_seed"]

MLP, IDENTITY = "mlp", "identity"  # networks by default


def as_device(name: Any) -> torch.device:
    """The torch device with this name, if it is available; `auto` is an NVIDIA GPU if there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        raise ValueError(
            f"device is auto, cpu, cuda, mps or another of torch's, not {shortened(name)}"
        ) from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        found = torch.cuda.device_count() or "no"
        raise ValueError(f"device is {name!r}, but torch finds {found} NVIDIA GPU here: use auto or cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device is {name!r}, but torch finds no Apple GPU here: use auto or cpu")
    return device


def as_seed(seed: Any) -> int:
    """A seed as an int."""
    try:
        torch.Generator().manual_seed(operator.index(seed))
    except (TypeError, RuntimeError, ValueError):
        raise ValueError(f"a seed is a whole number of at most 64 bits, not {shortened(seed)}") from None
    return operator.index(seed)


def as_network(network: Any, encoded: bool) -> str | nn.Module:
    """The network, by default the MLP; with an encoder, whose features are compared as they are, `identity`.

    Raises a ValueError for an unknown name, another object than a module, or a module that can't be saved.
    """
    if network is None:
        return IDENTITY if encoded else MLP
    if isinstance(network, str):
        check_name(network)
        return network
    if not isinstance(network, nn.Module):
        made = f"the class {network.__name__}, give an object" if isinstance(network, type) else repr(network)
        raise ValueError(f"a network is a name or an nn.Module, not {made}")
    scripted = [part for part in network.modules() if isinstance(part, torch.jit.ScriptModule)]
    if network in scripted or any(part.requires_grad for each in scripted for part in each.parameters()):
        raise ValueError(
            "a learner can't copy a scripted or traced network that it trains: give the nn.Module it was made from"
        )
    for name, part in network.state_dict().items():
        if not isinstance(part, Tensor):
            raise ValueError(
                f"the network's {name} is of type {type(part).__name__}, but a learner saves only tensors: "
                "let get_extra_state return a tensor"
            )
        if is_lazy(part):
            raise ValueError(f"the network's {name} has no size yet: pass a batch through the network first")
        if part.is_complex():
            raise ValueError(
                f"the network's {name} is of type {part.dtype}, but a learner saves only real numbers: "
                "give its real and imaginary part as two parameters"
            )
    return network
