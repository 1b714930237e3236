"""What Adam remembers, as a few flat tensors: for states that resume exactly."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MOMENTS", "moments", "start", "take_moments"]

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def start(optimiser: torch.optim.Adam) -> None:
    """Let it remember, of every parameter that it has never moved, that nothing was yet."""
    for part in _parameters(optimiser):
        if part not in optimiser.state:
            step = torch.zeros((), device=part.device)
            nothing = (step, torch.zeros_like(part), torch.zeros_like(part))
            optimiser.state[part] = dict(zip(MOMENTS, nothing, strict=True))


def moments(optimiser: torch.optim.Adam) -> dict[str, Tensor]:
    """What it remembers of all its parameters, in their order; all have been moved by it, or started.

    >>> weight = torch.ones(3, requires_grad=True)
    >>> optimiser = torch.optim.Adam([weight])
    >>> weight.sum().backward()
    >>> optimiser.step()
    >>> {name: len(part) for name, part in moments(optimiser).items()}
    {'step': 1, 'exp_avg': 3, 'exp_avg_sq': 3}
    """
    remembered = [optimiser.state[part] for part in _parameters(optimiser)]
    return {name: torch.cat([state[name].detach().reshape(-1) for state in remembered]) for name in MOMENTS}


def take_moments(optimiser: torch.optim.Adam, remembered: dict[str, Tensor]) -> None:
    """Let it remember what `moments` gave, of parameters of the same sizes in the same order."""
    parameters = _parameters(optimiser)
    for name, values in remembered.items():
        one_each = name == "step"
        sizes = [1 if one_each else part.numel() for part in parameters]
        if len(values) != sum(sizes):
            raise ValueError(f"Adam has {len(values)} of {name} in the state, {sum(sizes)} in the network")
        parts = torch.split(values, sizes)
        for parameter, part in zip(parameters, parts, strict=True):
            shaped = part.reshape(()) if one_each else part.view_as(parameter)
            optimiser.state[parameter][name] = shaped.to(parameter.device, torch.float32, copy=True)


def _parameters(optimiser: torch.optim.Adam) -> list[Tensor]:
    return [part for group in optimiser.param_groups for part in group["params"]]
