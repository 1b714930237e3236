"""Random numbers from a learner's own generator."""

import threading

import pytest
import torch
from torch import nn

from everlearn.randomness import DrawFrom

DRAWS = {
    "rand": lambda: torch.rand(3),
    "randn": lambda: torch.randn(3),
    "randint": lambda: torch.randint(1, 9, (4,)),
    "randperm": lambda: torch.randperm(6),
    "rand_like": lambda: torch.rand_like(torch.ones(4)),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(5), 3),
    "normal": lambda: torch.normal(torch.zeros(3), 1.0),
    "exponential": lambda: torch.empty(3).exponential_(),
    "dropout": lambda: nn.Dropout()(torch.ones(9)),
    "dropout of channels": lambda: nn.Dropout2d()(torch.ones(1, 8, 2, 2)),
    "a random slope": lambda: nn.RReLU().train()(-torch.ones(5)),
    "an LSTM's dropout": lambda: nn.LSTM(3, 4, 2, dropout=0.5)(torch.ones(2, 1, 3))[0].detach(),
    "a layer's initialisation": lambda: nn.Linear(3, 4).weight.detach(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_draw_comes_from_the_given_generator_and_leaves_torchs_own_alone(draw):
    torch.manual_seed(3)
    expected = draw()
    before = torch.get_rng_state()
    with DrawFrom(torch.Generator().manual_seed(3)) as drawing:
        drawn = draw()
    assert torch.equal(drawn, expected)
    assert torch.equal(torch.get_rng_state(), before)
    assert drawing.drawn


def test_who_names_a_generator_draws_from_that_one():
    with DrawFrom(torch.Generator().manual_seed(3)) as drawing:
        drawn = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    assert not drawing.drawn


def test_another_thread_is_not_concerned():
    drawn = []
    with DrawFrom(torch.Generator().manual_seed(3)) as drawing:
        torch.manual_seed(7)
        thread = threading.Thread(target=lambda: drawn.append(torch.rand(3)))
        thread.start()
        thread.join()
    torch.manual_seed(7)
    assert torch.equal(drawn[0], torch.rand(3))
    assert not drawing.drawn
