"""The emulation of CUDA graphs: it does what a graph does, and shows what would go wrong on a GPU."""

import pytest
import torch
from emulated_graph import EmulatedGraph, HostRead, captured_functions, eager, emulated_gpu
from torch import nn

from everlearn import learners
from everlearn.training.cuda_graph import EAGER_FIRST, Captured


@pytest.fixture
def emulated():
    with emulated_gpu():
        yield


def called(captured, times=EAGER_FIRST + 3, size=3):
    for n in range(times):
        captured(torch.full((size,), float(n)))


def test_a_replay_changes_the_tensors_that_were_captured(emulated):
    total, seen = torch.zeros(3), []

    def add(x):
        seen.append(1)
        total.add_(2 * x)

    called(Captured(add))
    assert total.tolist() == [2.0 * sum(range(EAGER_FIRST + 3))] * 3
    assert len(seen) == EAGER_FIRST + 1  # Python runs no more after the capture


def test_results_are_copied_out_of_the_graph(emulated):
    captured = Captured(lambda x: [x * x, x.sum()])
    kept = [captured(torch.tensor([n, 1.0])) for n in range(EAGER_FIRST + 4)]
    for n, (square, total) in enumerate(kept):
        assert square.tolist() == [n * n, 1.0]
        assert total.item() == n + 1


def test_a_training_step_is_replayed_to_the_bit(emulated):
    torch.manual_seed(0)
    networks = [
        nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)
    ]
    networks[1].load_state_dict(networks[0].state_dict())

    def step_of(network):
        def step(x):
            parameters = list(network.parameters())
            gradients = torch.autograd.grad(network(x).square().mean(), parameters)
            with torch.no_grad():
                for part, gradient in zip(parameters, gradients, strict=True):
                    part -= 0.1 * gradient

        return step

    captured, plain = Captured(step_of(networks[0])), step_of(networks[1])
    for _ in range(8):
        x = torch.randn(5, 4)
        captured(x)
        plain(x)
    for name, part in networks[0].state_dict().items():
        assert torch.equal(part, networks[1].state_dict()[name])


def test_a_tensor_that_was_replaced_shows(emulated):
    held = {"total": torch.zeros(3)}
    captured = Captured(lambda x: held.update(total=held["total"] + x))
    called(captured)
    assert held["total"].tolist() != [float(sum(range(EAGER_FIRST + 3)))] * 3


def test_a_value_of_the_host_is_kept_by_the_graph(emulated):
    total, host = torch.zeros(3), iter(range(100))
    called(Captured(lambda x: [total.add_(next(host))]), EAGER_FIRST + 3)
    assert total[0] == sum(range(EAGER_FIRST)) + 3 * EAGER_FIRST


@pytest.mark.parametrize(
    "read", [float, bool, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.item]
)
def test_the_host_may_not_read_while_a_graph_is_captured(read, emulated):
    def step(x):
        read(x.sum()) if read in (float, bool) else getattr(x.sum(), read.__name__)()

    with pytest.raises(HostRead):
        called(Captured(step))


@pytest.mark.parametrize(
    "function", [lambda x: [x[x > 1]], lambda x: [x.unique()], lambda x: [(x > 1).nonzero()]]
)
def test_values_may_not_decide_a_shape(function, emulated):
    with pytest.raises(HostRead):
        called(Captured(function))


def test_outside_of_the_emulation_nothing_is_captured():
    with emulated_gpu():
        inside = learners.find("cope")("mlp", hidden=8, device="cpu")
    outside = learners.find("cope")("mlp", hidden=8, device="cpu")
    assert inside.graphs is not None
    assert outside.graphs is None
    assert not torch.zeros(1).is_cuda
    assert torch.cuda.CUDAGraph is not EmulatedGraph


def test_a_learner_that_replaces_what_its_graphs_use_must_say_so(emulated, monkeypatch):
    def taught():
        torch.manual_seed(0)
        made = learners.find("reservoir")("mlp", hidden=8, memory_size=20, learning_rate=0.1, device="cpu")
        for n in range(8):
            made.observe(torch.randn(4, 6), ["a", "b", "c", "d"])
            if n == 5:
                made.memory.rows = made.memory.rows.clone()
                made.tensors_replaced()
        return made

    right = taught()
    assert captured_functions(eager(taught())) == set()
    monkeypatch.setattr("everlearn.learners.reservoir.Reservoir.tensors_replaced", lambda self: None)
    wrong = taught()
    assert not torch.equal(wrong.memory.rows, right.memory.rows)
