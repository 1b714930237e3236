"""A CUDA graph without a GPU: what a capture records is replayed on the CPU.

A recording holds the very tensors that were used, as a graph does. So the tests see on any machine what would go
wrong on a GPU: a tensor that was replaced since, a value of the host that the graph keeps, a value that the host
reads from the device.
"""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from everlearn.core import setup
from everlearn.training import cuda_graph

READS = ("numpy", "tolist", "cpu")


class HostRead(AssertionError):
    """The host reads a value while a graph is captured; CUDA forbids it."""


class EmulatedGraph(TorchDispatchMode):
    """Records every operation, and runs all of them again, on the same tensors."""

    def __init__(self):
        super().__init__()
        self.operations = []
        self.replays = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _waits(func, args):
            raise HostRead(f"{func._schema.name} in a capture")
        out = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, _tensors(out)))
        return out

    @torch.inference_mode()
    def replay(self):
        """Run the operations again, but for the first time: the capture has run them once, on the same inputs."""
        self.replays += 1
        if self.replays == 1:
            return
        for func, args, kwargs, recorded in self.operations:
            for held, value in zip(recorded, _tensors(func(*args, **kwargs)), strict=True):
                if held.data_ptr() != value.data_ptr():
                    held.copy_(value)


def _waits(func, args):
    """Whether the host needs values from the device for an operation: for its result, or for the shape of it."""
    if func._schema.name in ("aten::index", "aten::index_put", "aten::index_put_"):
        return any(part is not None and part.dtype in (torch.bool, torch.uint8) for part in args[1])
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags))


class EmulatedStream:
    """Runs everything in the order in which it is launched."""

    def record_event(self):
        """The end of what was launched so far, which is over."""

    def wait_event(self, event):
        """Nothing is left to wait for."""


def _tensors(out):
    return [part for part in tree_flatten(out)[0] if isinstance(part, torch.Tensor)]


@contextmanager
def _capture(graph):
    with pytest.MonkeyPatch.context() as patch, graph:
        for name in READS:
            patch.setattr(torch.Tensor, name, _refuse(name))
        yield


def _refuse(name):
    def read(*arguments, **options):
        raise HostRead(f"Tensor.{name} in a capture")

    return read


@contextmanager
def emulated_gpu():
    """A context in which tensors claim to be on a GPU, and CUDA graphs are emulated."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", True, raising=False)
        patch.setattr(torch.Tensor, "is_cpu", False, raising=False)
        patch.setattr(cuda_graph, "available", lambda device: True)
        patch.setattr(setup, "batch_is_used", lambda learner: False)
        patch.setattr(torch.cuda, "CUDAGraph", EmulatedGraph)
        patch.setattr(torch.cuda, "graph", _capture)
        patch.setattr(torch.cuda, "synchronize", lambda: None)
        for name in ("Stream", "current_stream"):
            patch.setattr(torch.cuda, name, lambda *device: EmulatedStream())
        patch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        yield


def eager(learner):
    """The learner, which captures nothing from now on."""
    learner.graphs, learner.part_graphs = None, {}
    return learner


def captured_functions(learner):
    """The names of the functions of a learner of which there are graphs now."""
    graphs = learner.part_graphs | ({} if learner.graphs is None else {"learn": learner.graphs})
    return {name for name, each in graphs.items() if each._graphs}
