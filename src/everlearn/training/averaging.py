"""Averaged weights: the moving average of a network, used for predictions."""

from __future__ import annotations

import copy
import functools

import torch
from torch import Tensor, nn

from everlearn import foreach
from everlearn.networks import SoftmaxNetwork
from everlearn.transaction import Update, current

__all__ = ["WeightAverage"]


class WeightAverage:
    """The average of a network's weights, including the statistics of batch norm.

    While the newest class is `age` batches old, the decay is at most (1 + age) / (10 + age). So a short task at the
    end of a stream is not dominated by earlier ones.

    before: the average so far, if the network has grown; new weights start with their current values.
    """

    def __init__(self, network: nn.Module, before: WeightAverage | None = None) -> None:
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        if before is not None:
            mine = self.network.state_dict()
            for name, part in before.network.state_dict().items():
                shared = tuple(slice(min(sizes)) for sizes in zip(part.shape, mine[name].shape, strict=True))
                mine[name][shared] = part[shared]
        averaged = _averaged(network)
        self._weights = list(averaged.values())
        buffers = dict(network.named_buffers(remove_duplicate=False))
        self._buffers = [
            (place, network.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2])
            for place, name in enumerate(averaged)
            if name in buffers
        ]
        mine = self.network.state_dict(keep_vars=True)
        self.means = [mine[name] for name in averaged]

    @torch.no_grad()
    def follow(self, decay: float, age: Tensor) -> None:
        """Move towards the current weights. Tensor operations only."""
        if not self.means:  # a fixed embedding
            return
        for place, module, name in self._buffers:  # a network may replace them as it learns
            self._weights[place] = module.get_buffer(name)
        transaction = current()
        if age.is_cuda:
            if transaction is not None:
                transaction.flush()  # the weights first
                transaction.keep(self.means)
            share = 1 - ((1 + age[0]) / (10 + age[0])).clamp(max=decay)
            changes = foreach.sub(self._weights, self.means)
            foreach.mul_(changes, share)
            foreach.add_(self.means, changes)
            return
        share_of_new = 1 - min(decay, (1 + int(age)) / (10 + int(age)))
        move = functools.partial(foreach.lerp_, self.means, self._weights, share_of_new)
        if transaction is None:
            move()
        else:
            transaction.at_commit(Update(self.means, move))  # after the update of the weights

    def forget(self, slot: int) -> None:
        """Remove the logit of a class, if there are any; those after it move down by one."""
        if isinstance(self.network, SoftmaxNetwork):
            for part in self.network.head.parameters():
                part.data = torch.cat([part[:slot], part[slot + 1 :]])

    def copy(self) -> WeightAverage:
        """A copy that does not follow the network."""
        return WeightAverage(self.network)

    def nbytes(self) -> int:
        """Bytes held."""
        return sum(part.nbytes for part in self.means)


def _averaged(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that are averaged, by name: each once, since layers may share one, and no masks of −∞."""
    parts: dict[str, Tensor] = dict(network.named_parameters(remove_duplicate=False))
    parts |= dict(network.named_buffers(remove_duplicate=False))
    saved = {name: parts[name] for name in network.state_dict(keep_vars=True) if name in parts}
    first = {id(part): name for name, part in reversed(saved.items())}
    return {
        name: part
        for name, part in saved.items()
        if first[id(part)] == name and part.is_floating_point() and bool(part.isfinite().all())
    }
