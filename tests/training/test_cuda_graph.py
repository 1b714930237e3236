"""Functions as CUDA graphs: what a capture must be kept from."""

import gc

import pytest
import torch

from everlearn.training.cuda_graph import EAGER_FIRST, Captured, uncollected


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_inside_and_the_collector_is_left_as_it_was(enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with uncollected():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
        with pytest.raises(ZeroDivisionError), uncollected():
            1 / 0  # noqa: B018
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_capture_succeeds_while_other_graphs_wait_to_be_collected():
    total = torch.zeros(3, device="cuda")

    class Holder:
        def __init__(self):
            self.itself, self.graphed = self, Captured(total.add_)
            for _ in range(EAGER_FIRST + 1):
                self.graphed(torch.ones(3, device="cuda"))

    def add(x):
        [[] for _ in range(100)]  # so that the collector would run
        total.add_(x)

    thresholds = gc.get_threshold()
    try:
        Holder()  # in a cycle with its graph: freed by the collector alone
        graphed = Captured(add)
        gc.set_threshold(1)
        for _ in range(EAGER_FIRST + 2):
            graphed(torch.ones(3, device="cuda"))
    finally:
        gc.set_threshold(*thresholds)
    assert total.tolist() == [2 * EAGER_FIRST + 3] * 3
