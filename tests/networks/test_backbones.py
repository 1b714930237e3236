import pytest
import torch
from torch import nn

from everlearn.networks import SoftmaxNetwork, as_input, embedding_network, trunk
from everlearn.networks.backbones import BatchNorm


def size(network):
    return sum(part.numel() for part in network.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "hidden", "outputs", "parameters"),
    [
        ("mlp", (784,), 400, 10, 478_410),
        ("mlp", (784,), 400, 100, 514_500),
        ("mlp", (28, 28), 100, 64, 95_064),
        ("slim-resnet18", (3, 32, 32), 0, 10, 1_094_750),
        ("slim-resnet18", (3, 32, 32), 0, 100, 1_109_240),
        ("slim-resnet18", (3, 32, 32), 0, 256, 1_134_356),
    ],
)
def test_networks_have_the_papers_number_of_parameters(name, shape, hidden, outputs, parameters):
    network = embedding_network(name, shape, hidden, outputs)
    assert size(network) == parameters
    assert network(torch.rand(2, *shape)).shape == (2, outputs)
    body, features = trunk(name, shape, hidden)
    assert size(SoftmaxNetwork(body, features, outputs)) == parameters


def test_the_mlp_is_xavier_uniform_with_zero_biases():
    network = embedding_network("mlp", (784,), 400, 100)
    first = next(layer for layer in network.modules() if isinstance(layer, nn.Linear))
    bound = (6 / (784 + 400)) ** 0.5
    assert not first.bias.any()
    assert bound * 0.99 < first.weight.abs().max() <= bound


def test_bytes_are_scaled_to_one_and_other_numbers_are_left_alone():
    assert as_input(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, 1.0]
    assert as_input(torch.tensor([0.0, 255.0])).tolist() == [0.0, 255.0]
    assert as_input(torch.tensor([1, 2])).dtype == torch.int64


def test_a_growing_head_keeps_what_it_had():
    network = SoftmaxNetwork(nn.Identity(), 5, 4)
    x = torch.randn(3, 5)
    before = network(x)
    assert not network.make_room(4)
    assert network.make_room(9)
    assert network(x).shape == (3, 16)
    torch.testing.assert_close(network(x)[:, :4], before)


def test_an_unknown_network_suggests_the_nearest():
    with pytest.raises(ValueError, match="there is no network 'slim-resnet'; did you mean 'slim-resnet18'"):
        embedding_network("slim-resnet", (3, 32, 32), 1, 1)


def test_a_resnet_says_what_it_takes():
    with pytest.raises(ValueError, match=r"slim-resnet18 takes images .* not \[784\]"):
        embedding_network("slim-resnet18", (784,), 1, 1)


def test_batch_norm_is_torchs_without_the_count():
    ours, theirs = BatchNorm(3), nn.BatchNorm2d(3)
    for _ in range(3):
        x = torch.randn(4, 3, 5, 5) * 2 + 1
        assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours.running_mean, theirs.running_mean)
    assert torch.equal(ours.running_var, theirs.running_var)
    assert (int(ours.num_batches_tracked), int(theirs.num_batches_tracked)) == (0, 3)
    assert torch.equal(ours.eval()(x), theirs.eval()(x))
