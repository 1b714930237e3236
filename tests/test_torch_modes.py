"""Modes of torch that an interrupted context left on are switched off again."""

import pytest
import torch

from everlearn import CoPE
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
