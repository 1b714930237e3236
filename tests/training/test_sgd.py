"""A step of SGD by hand, against autograd and torch's own optimiser."""

import copy

import pytest
import torch
from torch import nn

from everlearn.training.passes import ChainPass, NotFinite
from everlearn.training.sgd import SGD


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(12, 7),
        nn.ReLU(),
        nn.Sequential(nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 5)),
    )


def is_by_hand(network, parameters=None):
    parameters = list(network.parameters()) if parameters is None else parameters
    return isinstance(SGD(network, parameters, 0.1).forward(torch.rand(3, 12)), ChainPass)


def test_a_chain_of_linear_layers_moves_as_autograd_and_sgd_move_it():
    torch.manual_seed(0)
    ours = mlp()
    theirs = copy.deepcopy(ours)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1)
    descent = SGD(ours, list(ours.parameters()), 0.1)
    for _ in range(5):
        x, y = torch.randn(8, 3, 4), torch.randint(0, 5, (8,))
        passed = descent.forward(x)
        torch.testing.assert_close(passed.output, theirs(x).detach())
        logits = passed.output.clone().requires_grad_()
        (slope,) = torch.autograd.grad(nn.functional.cross_entropy(logits, y), logits)
        passed.descend(slope)
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
    SGD(ours, list(ours.parameters()), 0.2).forward(x).descend(slope)
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


def test_a_copy_of_a_network_and_its_optimiser_moves_apart_from_the_original():
    network = mlp()
    descent = SGD(network, list(network.parameters()), 0.1)
    twin, of_twin = copy.deepcopy((network, descent))
    before = [part.clone() for part in network.parameters()]
    of_twin.forward(torch.rand(4, 12)).descend(torch.ones(4, 5))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
    assert not torch.equal(twin[1].weight, network[1].weight)


def other():
    """A network whose passes go by autograd."""
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 5))


@pytest.mark.parametrize("kind", [mlp, other])
def test_a_step_that_is_too_long_is_shortened_and_keeps_its_direction(kind):
    torch.manual_seed(0)
    ours = kind()
    theirs = copy.deepcopy(ours)
    x, slope = torch.randn(6, 12), torch.randn(6, 5)
    SGD(ours, list(ours.parameters()), 0.2, clip=0.5).forward(x).descend(slope)
    theirs(x).backward(slope)
    norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5 / 0.2)
    assert norm > 0.5 / 0.2
    for mine, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, expected - 0.2 * expected.grad)


@pytest.mark.parametrize("kind", [mlp, other])
def test_a_step_that_is_not_too_long_stays_as_it_is(kind):
    torch.manual_seed(0)
    ours = kind()
    theirs = copy.deepcopy(ours)
    x, slope = torch.randn(6, 12), torch.randn(6, 5)
    SGD(ours, list(ours.parameters()), 0.2, clip=100).forward(x).descend(slope)
    SGD(theirs, list(theirs.parameters()), 0.2).forward(x).descend(slope)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


@pytest.mark.parametrize("wild", [1e30, float("nan"), float("inf")])
def test_a_step_through_a_chain_that_is_not_finite_is_refused_and_nothing_has_moved(wild):
    network = mlp()
    before = [part.detach().clone() for part in network.parameters()]
    passed = SGD(network, list(network.parameters()), 0.1).forward(torch.full((3, 12), 1e30))
    with pytest.raises(NotFinite, match="infinite or NaN.*lower learning_rate"):
        passed.descend(torch.full((3, 5), wild))
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))


def test_a_finite_gradient_whose_norm_is_not_is_shortened_and_keeps_its_direction():
    network = nn.Linear(2, 1)
    before = network.weight.detach().clone()
    descent = SGD(network, [network.weight], 0.2, clip=0.5)
    descent.step([torch.tensor([[3e30, -4e30]])])
    moved = network.weight.detach() - before
    assert 0.1 < float(moved.norm()) <= 0.5
    torch.testing.assert_close(moved / moved.norm(), torch.tensor([[-0.6, 0.8]]))


def test_a_parameter_without_elements_does_not_matter():
    network = nn.Linear(2, 1)
    parameters = [network.weight, nn.Parameter(torch.zeros(0))]
    before = network.weight.detach().clone()
    SGD(network, parameters, 0.1, clip=0.5).step([torch.ones(1, 2), torch.zeros(0)])
    torch.testing.assert_close(network.weight.detach(), before - 0.1)
    SGD(network, parameters[1:], 0.1, clip=0.5).step([torch.zeros(0)])
