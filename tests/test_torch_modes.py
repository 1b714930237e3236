"""Modes of torch that an interrupted context left on are switched off again."""

import pytest
import torch

from everlearn import CoPE, learner, load
from everlearn.randomness import DrawFrom
from everlearn.torch_modes import TorchModes


def test_a_mode_left_on_and_gradients_left_off_are_restored():
    with DrawFrom(torch.Generator()) as outer:
        modes = TorchModes()
        DrawFrom(torch.Generator()).__enter__()
        DrawFrom(torch.Generator()).__enter__()
        torch.set_grad_enabled(False)
        for _ in range(2):
            modes.restore()
        assert torch.is_grad_enabled()
        torch.rand(2)
        assert outer.drawn  # the one that was on before still is
    assert torch._C._len_torch_dispatch_stack() == 0


class Interrupted(torch.nn.Module):
    """A network whose user presses Ctrl-C while it leaves a context."""

    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 4:
            DrawFrom(torch.Generator()).__enter__()
            torch.set_grad_enabled(False)
            raise KeyboardInterrupt
        return self.layer(x)


@pytest.mark.parametrize("call", ["observe", "predict"])
def test_an_interrupted_call_leaves_no_mode_on(call):
    network = Interrupted()
    learner = CoPE(network, device="cpu")
    learner.observe(torch.randn(4, 4), ["a", "b"] * 2)
    network.calls = 3
    arguments = (torch.randn(4, 4), ["a", "b"] * 2)[: 2 if call == "observe" else 1]
    with pytest.raises(KeyboardInterrupt):
        getattr(learner, call)(*arguments)
    assert torch.is_grad_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize("name", ["cope", "cope+", "reservoir"])
def test_a_learner_that_began_in_inference_mode_goes_on_outside_of_it(name):
    x, y = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), ["a", "b"] * 2
    inside, outside = (learner(name, memory_size=20, seed=0) for _ in range(2))
    with torch.inference_mode():
        inside.observe(x.clone(), y)
        assert torch.is_inference_mode_enabled()
    outside.observe(x, y)
    for each in (inside, outside):
        each.observe(x, ["c", *y[1:]])
    assert all(torch.equal(a, b) for a, b in zip(inside.parameters, outside.parameters, strict=True))


def test_a_learner_that_was_loaded_in_inference_mode_goes_on_outside_of_it(tmp_path):
    x, y = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), ["a", "b"] * 2
    first = CoPE(memory_size=20, seed=0)
    first.observe(x, y)
    first.save(tmp_path / "state")
    with torch.inference_mode():
        again = load(tmp_path / "state")
        assert again.predict(x) == first.predict(x)
    for each in (first, again):
        each.observe(x, y)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters, again.parameters, strict=True))
