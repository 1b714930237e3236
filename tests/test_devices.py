"""Devices by name: which are accepted where, and what a device without float64 changes."""

import numpy as np
import pytest
import torch

from everlearn import arrays
from everlearn.cli import main
from everlearn.core.arguments import as_device
from everlearn.core.rejection import Known
from everlearn.experiments import environment
from everlearn.experiments.estimate import seconds
from everlearn.experiments.job import Job
from everlearn.experiments.options import SweepOptions
from everlearn.learners.gem import multipliers
from everlearn.losses import ppp_fast, ppp_loss
from everlearn.memory.herded import herd

REFUSED = "device is 'mps', but torch finds no Apple GPU here: use auto or cpu"


@pytest.fixture
def machine(monkeypatch):
    """Pretend that this machine has these GPUs."""

    def has(cuda=0, mps=False):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return has


def test_mps_is_accepted_on_a_machine_that_has_it(machine):
    machine(mps=True)
    assert as_device("mps") == torch.device("mps")
    SweepOptions(device="mps").check()


def test_mps_is_refused_with_one_sentence_on_other_machines(machine, capsys):
    machine(mps=False)
    for check in (lambda: as_device("mps"), SweepOptions(device="mps").check):
        with pytest.raises(ValueError) as caught:
            check()
        assert str(caught.value) == REFUSED
    for command in (["run", "--device", "mps"], ["reproduce", "balanced", "--device", "mps"]):
        assert main(command) == 2
        assert REFUSED in " ".join(capsys.readouterr().err.split())
    SweepOptions(device="mps", backend="ray").check()  # other machines may have it


def test_cuda_is_refused_with_one_sentence_without_an_nvidia_gpu(machine):
    machine(mps=True)
    for check in (lambda: as_device("cuda"), SweepOptions(device="cuda").check):
        with pytest.raises(ValueError, match="'cuda', but torch finds no NVIDIA GPU here: use auto or cpu"):
            check()


@pytest.mark.parametrize(("cuda", "mps", "chosen"), [(0, False, "cpu"), (0, True, "cpu"), (1, False, "cuda")])
def test_auto_is_an_nvidia_gpu_or_the_cpu(machine, cuda, mps, chosen):
    machine(cuda, mps)
    assert as_device("auto").type == chosen


def test_cohorts_and_their_rates_are_for_nvidia_gpus_alone(machine):
    machine(cuda=1, mps=True)
    assert [environment.on_gpu(name) for name in ("auto", "cuda", "cuda:1", "cpu", "mps")] == [
        *[True] * 3,
        *[False] * 2,
    ]
    assert seconds(Job("cope", "split-digits", 0, device="cpu"), {}) is not None
    assert seconds(Job("cope", "split-digits", 0, device="mps"), {}) is None


def test_runs_on_an_apple_gpu_are_not_taken_for_runs_on_its_cpu():
    assert environment.hardware("mps") != environment.hardware("cpu")


def test_only_tensors_on_the_cpu_become_numpy_arrays():
    there = torch.zeros(2, device="meta")  # any device whose memory numpy can't use
    assert arrays.as_arrays(torch.zeros(2), None)[0] is np
    module, found = arrays.as_arrays(torch.zeros(2), there)
    assert module is torch
    assert found[1] is there


def test_float64_is_computed_on_the_cpu_for_a_device_that_lacks_it(monkeypatch):
    assert not arrays.has_float64(torch.device("mps"))
    generator = torch.Generator().manual_seed(0)
    features = torch.nn.functional.normalize(torch.randn(12, 5, generator=generator))
    slots, prototypes = torch.arange(12) % 3, torch.eye(3, 5)

    def computed():
        loss = ppp_loss(features, slots, prototypes, 0.1), ppp_loss.gradient(features, slots, prototypes, 0.1)
        past = multipliers(features[:3], features[5], 0.5)
        return [*loss, herd(features, 5), past, torch.tensor(Known(features, 0.1).least)]

    expected = computed()
    monkeypatch.setattr(arrays, "has_float64", lambda device: False)
    monkeypatch.setattr(ppp_fast, "has_float64", lambda device: False)
    assert all(torch.equal(one, other) for one, other in zip(computed(), expected, strict=True))
