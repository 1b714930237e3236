"""Operations on small arrays: with torch on a GPU, with numpy on the CPU, where they take a third of the time;
float64 on devices that do not have it; and a user's arrays as tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "LARGEST_VALUE",
    "Array",
    "as_arrays",
    "as_double",
    "as_tensor",
    "has_float64",
    "in_float64",
    "in_type_of",
    "largest",
    "like",
    "product",
    "take",
    "takes_arrays",
    "unit_rows",
]

Array = Any
"""A torch tensor or a numpy array."""

FEW = 2**17
LARGEST_VALUE = 1e12  # of a sample: squares of it, and sums of these, are far from float32's end

Function = TypeVar("Function", bound=Callable[..., Any])


def as_tensor(x: Any) -> Tensor:
    """Numbers in an array, in lists, or in a list of arrays or tensors, as one tensor, which may share their memory.

    >>> as_tensor([torch.zeros(3), torch.ones(3)]).shape
    torch.Size([2, 3])
    """
    first = x[0] if isinstance(x, (list, tuple)) and x else None
    if isinstance(first, Tensor):
        return torch.stack([torch.as_tensor(each) for each in x])
    if isinstance(first, np.ndarray):
        x = np.stack(x)
    if isinstance(x, np.ndarray):
        # torch supports neither another byte order, nor negative strides, nor memory that is read-only.
        x = np.ascontiguousarray(x, x.dtype.newbyteorder("="))
        x = x if x.flags.writeable else x.copy()
    return torch.as_tensor(x)


def as_arrays(*tensors: Tensor | None) -> tuple[Any, list[Array]]:
    """The module to compute with, torch or numpy, and the tensors as its arrays, which share memory."""
    if any(tensor is not None and not tensor.is_cpu for tensor in tensors):
        return torch, list(tensors)
    return np, [None if tensor is None else tensor.detach().numpy() for tensor in tensors]


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64; Apple's `mps` does not."""
    return device.type != "mps"


def in_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64; on the CPU if its device has no float64."""
    return (tensor if has_float64(tensor.device) else tensor.cpu()).double()


def product(left: Array, right: Array) -> Array:
    """A matrix product; a large one always with torch, since numpy would start its own threads."""
    if isinstance(left, Tensor) or left.size * right.shape[1] < FEW:
        return left @ right
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def take(values: Array, columns: Array) -> Array:
    """These columns, in this order."""
    return values[:, columns] if isinstance(values, Tensor) else values.take(columns, 1)


def takes_arrays(function: Function) -> Function:
    """A decorator: marks a method that takes tensors as one that takes numpy arrays, too."""
    function.takes_arrays = True  # type: ignore[attr-defined]
    return function


def unit_rows(values: Array) -> Array:
    """The rows at unit length; a row of zeros stays zero."""
    if isinstance(values, Tensor):
        lengths = torch.linalg.vector_norm(values, dim=1, keepdim=True)
        return values / torch.threshold(lengths, 1e-12, torch.inf)  # lengths up to 1e-12 become infinite
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values))[:, None]
    lengths[lengths <= 1e-12] = np.inf
    return values / lengths


def in_type_of(other: Array, values: Tensor) -> Array:
    """A tensor as it is, or as an array that shares its memory, like the other."""
    return values if isinstance(other, Tensor) else values.detach().numpy()


def as_double(values: Array) -> Array:
    """The values in float64."""
    return values.double() if isinstance(values, Tensor) else values.astype(np.float64)


def like(values: Array, other: Array) -> Array:
    """The values in the other's type."""
    return values.to(other.dtype) if isinstance(values, Tensor) else values.astype(other.dtype)


def largest(values: Array) -> Array:
    """The largest of each row, in a column."""
    return values.amax(1, keepdim=True) if isinstance(values, Tensor) else values.max(axis=1, keepdims=True)
