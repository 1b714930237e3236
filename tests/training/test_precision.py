"""Training with convolutions in bfloat16, and networks of one's own on a GPU."""

import pytest
import torch
from torch import nn

from everlearn import CoPE, CoPEPlus, learners, load, split
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(n):
    generator = torch.Generator().manual_seed(n)
    return torch.randint(0, 256, (6, 3, 32, 32), generator=generator, dtype=torch.uint8), [0, 1, 2] * 2


def taught(precision, device="cpu", batches=3, kind=CoPE):
    learner = kind(
        "slim-resnet18", memory_size=9, learning_rate=0.01, precision=precision, seed=0, device=device
    )
    for n in range(batches):
        learner.observe(*batch(n))
    return learner


def test_a_cpu_computes_in_full_precision(tmp_path):
    full, mixed = taught("full"), taught("mixed")
    for part, other in zip(full.parameters, mixed.parameters, strict=True):
        assert torch.equal(part, other)
    mixed.save(tmp_path / "mixed")
    assert load(tmp_path / "mixed").settings.precision == "mixed"


def test_another_precision_is_refused():
    with pytest.raises(ValueError, match="precision must be full or mixed, not 'half'"):
        CoPE("mlp", precision="half")


@GPU
@pytest.mark.parametrize("name", ["cope", "cope+", "reservoir", "cope-ce"])
def test_mixed_precision_stays_near_full_precision(name):
    full, mixed = (taught(p, "cuda", batches=5, kind=learners.find(name)) for p in ("full", "mixed"))
    assert mixed.graphs._graphs
    assert all(part.dtype == torch.float32 for part in mixed.parameters)
    assert not all(torch.equal(a, b) for a, b in zip(full.parameters, mixed.parameters, strict=True))
    for part, other in zip(full.parameters, mixed.parameters, strict=True):
        apart = float((part - other).detach().norm())
        assert apart <= 0.05 * (1 + float(part.detach().norm()))


@GPU
def test_predictions_are_in_full_precision():
    learner = taught("mixed", "cuda")
    x = batch(9)[0]
    learner.network.eval()
    inside = learner.network(x.to("cuda") / 255)
    for part in learner.network.modules():
        part.mixed = False
    assert torch.equal(inside, learner.network(x.to("cuda") / 255))


def test_a_network_of_ones_own_runs_in_a_cohort(gpu):
    def network():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(256, 16))

    x, y = (
        torch.cat(parts)
        for parts in zip(*((batch(n)[0], torch.tensor([0, 1, 2] * 2)) for n in range(20)), strict=True)
    )

    def runs():
        for seed in (0, 1, 2):
            source = split(x, y, tasks=3, test=0.2, batch_size=4, seed=seed)
            yield Run(CoPEPlus(network(), memory_size=30, seed=seed, device=gpu), source)

    together = list(runs())
    assert shape_of(together[0]) is not None
    Cohort(together).finish()
    for member, alone in zip(together, runs(), strict=True):
        alone.finish()
        for part, other in zip(member.learner.parameters, alone.learner.parameters, strict=True):
            torch.testing.assert_close(part, other, rtol=1e-3, atol=1e-3)
