"""Predictions in chunks."""

import pytest
import torch
from torch import nn

from everlearn import CoPE, learner


@pytest.mark.parametrize(
    ("network", "shape", "chunks"),
    [
        ("slim-resnet18", (3, 32, 32), [97, 97, 6]),
        ("cnn", (1, 28, 28), [127, 73]),
        (nn.Linear(784, 8), (784,), [200]),
    ],
)
def test_as_few_images_pass_a_network_at_once_as_a_cache_holds(network, shape, chunks):
    own = CoPE(network, memory_size=4, device="cpu")
    own.observe(torch.rand(4, *shape), [0, 1, 0, 1])
    x = torch.rand(200, *shape)
    one_by_one = torch.cat([own.embed(part) for part in x.split(20)])
    met = []
    own.network.register_forward_pre_hook(lambda module, inputs: met.append(len(inputs[0])))
    torch.testing.assert_close(own.embed(x), one_by_one, rtol=1e-4, atol=1e-5)
    assert met == chunks


def test_of_the_largest_images_four_pass_at_a_time():
    own = CoPE("cnn", memory_size=2, device="cpu")
    own.observe(torch.rand(2, 1, 400, 300), [0, 1])
    met = []
    own.network.register_forward_pre_hook(lambda module, inputs: met.append(len(inputs[0])))
    own.predict(torch.rand(9, 1, 400, 300))
    assert met == [4, 4, 1]


@pytest.mark.parametrize("name", ["knn", "cope+"])
def test_exemplars_pass_in_such_chunks_too(name):
    own = learner(name, network="slim-resnet18", memory_size=120, device="cpu")
    own.observe(torch.rand(100, 3, 32, 32), [0, 1] * 50)
    met = []
    own.predictor.register_forward_pre_hook(lambda module, inputs: met.append(len(inputs[0])))
    own.predict(torch.rand(2, 3, 32, 32))
    assert max(met) == 97
