"""A step of SGD by hand, against autograd and torch's own optimiser."""

import copy

import pytest
import torch
from torch import nn

from everlearn import descent
from everlearn.descent import passages


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(12, 7),
        nn.ReLU(),
        nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 5)),
    )


def is_by_hand(network, parameters=None):
    parameters = list(network.parameters()) if parameters is None else parameters
    return isinstance(passages(network, parameters)(torch.rand(3, 12)), descent._ChainPassage)


def test_a_chain_of_linear_layers_moves_as_autograd_and_sgd_move_it():
    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1)
    through = passages(ours, list(ours.parameters()))
    for _ in range(5):
        x, y = torch.randn(8, 3, 4), torch.randint(0, 5, (8,))
        passage = through(x)
        torch.testing.assert_close(passage.output, theirs(x).detach())
        logits = passage.output.clone().requires_grad_()
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(logits, y), logits)
        passage.descend(slope, 0.1)
        optimiser.zero_grad()
        nn.functional.cross_entropy(theirs(x), y).backward()
        optimiser.step()
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other)
    assert is_by_hand(ours)


def test_any_other_network_goes_by_autograd_and_moves_the_same():
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Tanh(), nn.Linear(4, 2))
    theirs = copy.deepcopy(ours)
    x, slope = torch.randn(6, 12), torch.randn(6, 2)
    assert not is_by_hand(ours)
    passages(ours, list(ours.parameters()))(x).descend(slope, 0.2)
    theirs(x).backward(slope)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other - 0.2 * other.grad)


def test_what_a_hand_written_step_would_get_wrong_goes_by_autograd():
    twice = nn.Linear(12, 12)
    assert not is_by_hand(nn.Sequential(nn.Flatten(), twice, nn.ReLU(), twice))
    assert not is_by_hand(nn.Sequential(nn.Flatten(), nn.Linear(12, 4, bias=False)))
    assert not is_by_hand(nn.Sequential(nn.Linear(12, 4)))
    frozen = mlp()
    frozen[1].weight.requires_grad_(False)
    assert not is_by_hand(frozen, [part for part in frozen.parameters() if part.requires_grad])
    watched = mlp()
    watched[3][0].register_forward_hook(lambda *_: None)
    assert not is_by_hand(watched)


@pytest.mark.parametrize("kind", [nn.Linear, nn.Flatten])
def test_a_single_layer_is_no_accident(kind):
    layer = nn.Linear(12, 3) if kind is nn.Linear else nn.Flatten()
    assert not is_by_hand(layer, [torch.zeros(1, requires_grad=True)])


def test_a_copy_of_a_network_and_its_passage_moves_apart_from_the_original():
    network = mlp()
    through = passages(network, list(network.parameters()))
    twin, of_twin = copy.deepcopy((network, through))
    before = [part.clone() for part in network.parameters()]
    of_twin(torch.rand(4, 12)).descend(torch.ones(4, 5), 0.1)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
    assert not torch.equal(twin[1].weight, network[1].weight)
