"""Operations on lists of tensors: one kernel launch for many tensors, where torch has it.

PyTorch's own optimisers are built on these functions, but their names are private. So they are used in this file
only, with a loop over the tensors for a version of torch that lacks one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

__all__ = [
    "add",
    "add_",
    "addcdiv",
    "addcmul_",
    "clamp_",
    "copy_",
    "div",
    "div_",
    "largest",
    "lerp",
    "lerp_",
    "mul",
    "mul_",
    "norm",
    "sqrt",
    "sub",
]

Tensors = list[Tensor] | tuple[Tensor, ...]
Function = TypeVar("Function", bound=Callable[..., Any])


def _fused(loop: Function) -> Function:
    """The function of torch's of this name, if there is one; otherwise the loop."""
    return cast(Function, getattr(torch, f"_foreach_{loop.__name__}", loop))


@_fused
def add(tensors: Tensors, others: Tensors, alpha: float = 1) -> Tensors:
    """tensor + alpha · other, for each pair."""
    return [torch.add(tensor, other, alpha=alpha) for tensor, other in zip(tensors, others, strict=True)]


@_fused
def add_(tensors: Tensors, others: Tensors | float, alpha: float = 1) -> None:
    """The same in place; `others` may be one number for all."""
    for tensor, other in zip(tensors, _each(others, tensors), strict=True):
        tensor.add_(other, alpha=alpha)


@_fused
def sub(tensors: Tensors, others: Tensors) -> Tensors:
    """tensor − other, for each pair."""
    return [tensor - other for tensor, other in zip(tensors, others, strict=True)]


@_fused
def mul(tensors: Tensors, factor: Tensor | float) -> Tensors:
    """tensor · factor, for each tensor."""
    return [tensor * factor for tensor in tensors]


@_fused
def mul_(tensors: Tensors, factor: Tensor | float) -> None:
    """The same in place."""
    for tensor in tensors:
        tensor.mul_(factor)


@_fused
def div(tensors: Tensors, divisors: Tensors) -> Tensors:
    """tensor / divisor, for each pair."""
    return [tensor / divisor for tensor, divisor in zip(tensors, divisors, strict=True)]


@_fused
def div_(tensors: Tensors, divisors: Sequence[float]) -> None:
    """tensor / divisor in place, for each pair."""
    for tensor, divisor in zip(tensors, divisors, strict=True):
        tensor.div_(divisor)


@_fused
def lerp(tensors: Tensors, ends: Tensors, weight: float) -> Tensors:
    """tensor + weight · (end − tensor), for each pair."""
    return [torch.lerp(tensor, end, weight) for tensor, end in zip(tensors, ends, strict=True)]


@_fused
def lerp_(tensors: Tensors, ends: Tensors, weight: float) -> None:
    """The same in place."""
    for tensor, end in zip(tensors, ends, strict=True):
        tensor.lerp_(end, weight)


@_fused
def addcmul_(tensors: Tensors, factors: Tensors, others: Tensors, value: float = 1) -> None:
    """tensor + value · factor · other in place, for each triple."""
    for tensor, factor, other in zip(tensors, factors, others, strict=True):
        tensor.addcmul_(factor, other, value=value)


@_fused
def addcdiv(tensors: Tensors, numerators: Tensors, divisors: Tensors, values: Sequence[float]) -> Tensors:
    """tensor + value · numerator / divisor, for each."""
    parts = zip(tensors, numerators, divisors, values, strict=True)
    return [torch.addcdiv(tensor, above, below, value=value) for tensor, above, below, value in parts]


@_fused
def sqrt(tensors: Tensors) -> Tensors:
    """The square root of each tensor."""
    return [tensor.sqrt() for tensor in tensors]


@_fused
def norm(tensors: Tensors, ord: float = 2) -> Tensors:
    """The norm of each tensor: the Euclidean one, or another."""
    return [torch.linalg.vector_norm(tensor, ord) for tensor in tensors]


def largest(tensors: Tensors) -> Tensor:
    """The largest absolute value of all; no tensor may be empty."""
    if tensors[0].is_cuda:
        return torch.stack(list(norm(tensors, math.inf))).max()
    ends = [torch.aminmax(tensor) for tensor in tensors]  # on a CPU 20 times as fast as the norm
    return torch.stack([torch.maximum(-each.min, each.max) for each in ends]).max()


@_fused
def copy_(tensors: Tensors, others: Tensors) -> None:
    """Copy each of the others to its tensor."""
    for tensor, other in zip(tensors, others, strict=True):
        tensor.copy_(other)


def clamp_(tensors: Tensors, most: float) -> None:
    """Clamp each tensor to −most … most, in place."""
    for tensor in tensors:
        tensor.clamp_(-most, most)


def _each(others: Tensors | float, tensors: Tensors) -> Sequence[Any]:
    return others if isinstance(others, list | tuple) else [others] * len(tensors)
