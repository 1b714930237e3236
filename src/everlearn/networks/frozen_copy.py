"""A copy of a network as it is now, for distillation."""

from __future__ import annotations

import copy
from typing import TypeVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["frozen_copy"]

Network = TypeVar("Network", bound=nn.Module)


def frozen_copy(network: Network) -> Network:
    """A copy that is not trained, in training mode: batch norm uses the statistics of each batch, and keeps none.

    >>> import torch
    >>> copied = frozen_copy(nn.BatchNorm1d(2))
    >>> copied(torch.tensor([[0.0, 1.0], [2.0, 3.0]])).round(), list(copied.buffers())
    (tensor([[-1., -1.],
            [ 1.,  1.]]), [])
    """
    copied = copy.deepcopy(network).train().requires_grad_(False)
    for module in copied.modules():
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
            module.running_mean = module.running_var = module.num_batches_tracked = None
    return copied
