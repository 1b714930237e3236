"""Small arrays: computed by torch on a GPU; on the host by numpy, whose operations cost a third of torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["Array", "as_arrays", "largest", "product"]

Array = Any
"""A torch tensor or a numpy array."""


def as_arrays(*tensors: Tensor | None) -> tuple[Any, list[Array]]:
    """The namespace to compute with, torch or numpy, and the tensors as its arrays, on the same memory."""
    if any(tensor is not None and tensor.is_cuda for tensor in tensors):
        return torch, list(tensors)
    return np, [None if tensor is None else tensor.detach().numpy() for tensor in tensors]


def product(left: Array, right: Array) -> Array:
    """A matrix product, by torch in any case: numpy's would start threads of its own."""
    if isinstance(left, Tensor):
        return left @ right
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def largest(values: Array) -> Array:
    """The largest of each row, in a column."""
    return values.amax(1, keepdim=True) if isinstance(values, Tensor) else values.max(axis=1, keepdims=True)
