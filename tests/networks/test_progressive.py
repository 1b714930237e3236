"""Columns that grow side by side."""

import pytest
import torch
from torch import nn

from everlearn.networks.progressive import convolutional_column, mlp_column, own_column, residual_column

SHAPE = (3, 16, 16)
KINDS = {
    "mlp": lambda number: mlp_column(number, SHAPE, 6, 2),
    "convolutional": lambda number: convolutional_column(number, SHAPE),
    "residual": lambda number: residual_column(number, SHAPE),
    "own": lambda number: own_column(number, nn.Sequential(nn.Flatten(), nn.Linear(768, 5)), 5),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_gives_the_features_of_its_predecessors_beside_its_own(kind):
    x, before, widths = torch.rand(4, *SHAPE), [], []
    for number in range(3):
        column = KINDS[kind](number)
        after = column(x, before)
        assert after[-1].shape == (4, column.features)
        for earlier, now in zip(before, after, strict=False):
            assert torch.equal(now[:, : earlier.shape[1]], earlier)
        widths.append(column.features)
        before = [part.detach() for part in after]
    assert widths[2] - widths[1] == widths[1] - widths[0] > 0


@pytest.mark.parametrize("kind", ["mlp", "convolutional", "residual"])
def test_what_a_column_gives_depends_on_its_predecessors_at_every_stage(kind):
    torch.manual_seed(0)
    x = torch.rand(4, *SHAPE)
    before = [part.detach().requires_grad_() for part in KINDS[kind](0)(x, [])]
    column = KINDS[kind](1)
    own = column(x, before)[-1][:, before[-1].shape[1] :].sum()
    gradients = torch.autograd.grad(own, before[:-1])
    assert all(gradient.any() for gradient in gradients)


def test_copies_of_a_users_network_begin_alike_and_part():
    network = nn.Linear(4, 3)
    column = own_column(0, network, 3)
    assert torch.equal(column.stages[0].weight, network.weight)
    assert column.stages[0].weight is not network.weight
