"""A CUDA graph without a GPU: what a capture records is replayed on the CPU.

A recording holds the very memory that was used, as a graph does, and the capture itself changes nothing. So the tests
see on any machine what would go wrong on a GPU: a tensor that was replaced since, a value of the host that the graph
keeps, a value that the host reads from the device, a random number that the host draws.
"""

from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten, tree_map_only

from everlearn.core import setup
from everlearn.training import cuda_graph
from everlearn.training.capturable import needs_values

READS = ("numpy", "tolist", "cpu")


class HostRead(AssertionError):
    """The host takes part in what is captured: it reads a value, or a graph would keep one of its values for good."""


class EmulatedGraph(TorchDispatchMode):
    """Records every operation, and runs all of them again, on the same memory."""

    def __init__(self):
        super().__init__()
        self.operations = []
        self._before = {}  # what the operations write to, with its content of before
        self._random_states = []

    @classmethod
    def _should_skip_dynamo(cls):
        """Nothing is compiled in here; otherwise torch would import its compiler, which takes seconds."""
        return False

    def __enter__(self):
        modes = _get_current_dispatch_mode_stack()
        generators = [mode.generator for mode in modes if hasattr(mode, "generator")]
        self._random_states = [(each, each.get_state()) for each in (*generators, torch.default_generator)]
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        for storage, content in self._before.values():
            storage.copy_(content)
        for generator, state in self._random_states:
            generator.set_state(state)
        self._before, self._random_states = {}, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if needs_values(func, args, kwargs):
            raise HostRead(f"{func._schema.name} in a capture")
        if any(isinstance(part, torch.Generator) for part in (*args, *kwargs.values())):
            raise HostRead(f"{func._schema.name} with a generator of the host in a capture")
        for part in _written(func, args, kwargs):
            storage = part.untyped_storage()
            if storage._cdata not in self._before:
                self._before[storage._cdata] = storage, storage.clone()
        # Aliases: `data` of a tensor may be set to other memory later, and a graph goes on with this one.
        recorded = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
        out = func(*args, **kwargs)
        self.operations.append((func, *recorded, [part.detach() for part in _tensors(out)]))
        return out

    @torch.inference_mode()
    def replay(self):
        """Run the operations."""
        for func, args, kwargs, recorded in self.operations:
            for held, value in zip(recorded, _tensors(func(*args, **kwargs)), strict=True):
                if held.data_ptr() != value.data_ptr():
                    held.copy_(value)


def _written(func, args, kwargs):
    """The tensors that an operation writes to."""
    if "batch_norm" in func._schema.name:  # not all of them say that they change the running statistics
        return _tensors((args, kwargs))
    given = zip(func._schema.arguments, args, strict=False)
    named = [(each, kwargs[each.name]) for each in func._schema.arguments if each.name in kwargs]
    return _tensors([part for each, part in (*given, *named) if each.alias_info and each.alias_info.is_write])


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
