"""Adam against torch's own."""

import pytest
import torch

from everlearn.training.adam import Adam


def parts(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator).requires_grad_() for shape in ((3, 2), (4,))]


def loss(parameters, i):
    return sum(
        ((part - i) ** 2 * (1 + torch.arange(part.numel()).view_as(part))).sum() for part in parameters
    )


@pytest.mark.parametrize("decay", [0.0, 0.03])
def test_it_steps_as_torchs_adam_does(decay):
    mine, theirs = parts(), parts()
    adam = Adam(mine, 0.1, decay=decay)
    other = torch.optim.Adam(theirs, 0.1, weight_decay=2 * decay, foreach=False)
    for i in range(20):
        adam.descend(loss(mine, i))
        other.zero_grad()
        loss(theirs, i).backward()
        other.step()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_large_gradients_are_clipped_entry_by_entry():
    weight = torch.zeros(2, requires_grad=True)
    clipped, other = Adam([weight], 0.1, clip=0.5), Adam([weight], 0.1)
    gradient = torch.tensor([-30.0, 0.25])
    clipped.step([gradient.clone()])
    other.step([gradient.clamp(-0.5, 0.5)])
    assert torch.equal(clipped._second[0], other._second[0])


def test_a_parameter_that_comes_later_steps_as_if_it_were_alone():
    (early, late), (_, alone) = parts(), parts()
    adam = Adam([early], 0.1)
    for i in range(5):
        adam.descend(loss([early], i))
    adam.add([late])
    single = Adam([alone], 0.1)
    for i in range(5):
        adam.descend(loss([early, late], i))
        single.descend(loss([alone], i))
    assert torch.equal(late, alone)


def test_its_state_resumes_exactly_and_a_foreign_one_is_refused():
    mine, other = parts(), parts()
    first, second = Adam(mine, 0.1), Adam(other, 0.1)
    for i in range(3):
        first.descend(loss(mine, i))
    second.restore(first.state())
    for a, b in zip(mine, other, strict=True):
        b.data.copy_(a.data)
    first.descend(loss(mine, 7))
    second.descend(loss(other, 7))
    assert all(torch.equal(a, b) for a, b in zip(mine, other, strict=True))
    with pytest.raises(ValueError, match="Adam has 10 parameters in the state, 4 in the network"):
        Adam(parts()[1:], 0.1).restore(first.state())
