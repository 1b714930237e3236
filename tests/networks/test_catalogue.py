"""Networks by name: the library's, timm's, and a user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from everlearn import CoPE, load
from everlearn.checkpoint import CheckpointError
from everlearn.learners import find
from everlearn.networks import ResNet18, SlimResNet18, check_name, embedding_network, trunk

OWN = """
from torch import nn

def small(shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 12))

class Fixed(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(12, 7), nn.ReLU())

made = Fixed()

def nothing():
    return "a network"
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the working directory."""
    (tmp_path / "own_networks.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)
    return "own_networks"


def test_the_full_resnet18_is_the_slim_one_with_64_filters():
    body, features = trunk("resnet18", (3, 32, 32), 0)
    assert isinstance(body, ResNet18) and isinstance(body, SlimResNet18) and features == 512
    # 11.17 million parameters without the last layer, as ResNet18 with a 3 x 3 stem has.
    assert sum(part.numel() for part in body.parameters()) == 11_168_832
    assert body(torch.zeros(2, 3, 32, 32)).shape == (2, 512)


def test_the_cnn_takes_batches_of_one_and_any_number_of_channels():
    body, features = trunk("cnn", (1, 9, 11), 0)
    assert body.train()(torch.zeros(1, 1, 9, 11)).shape == (1, features)


@pytest.mark.parametrize("name", ["cnn", "resnet18"])
def test_learners_train_these_networks(name: str):
    for learner in (CoPE(name, memory_size=10), find("finetune")(name, optimizer="adam")):
        learner.observe(torch.rand(4, 3, 8, 8), ["a", "b", "a", "b"])
        assert len(learner.predict(torch.rand(3, 3, 8, 8))) == 3
    with pytest.raises(ValueError, match=rf"{name} takes images of shape \[channels, height, width\]"):
        find("finetune")(name).observe(torch.rand(4, 9), [0, 1, 0, 1])


def test_a_function_of_the_users_makes_a_network_for_the_shape_and_the_seed(own: str):
    learners = [CoPE(f"{own}:small", memory_size=10, seed=seed) for seed in (0, 0, 1)]
    for learner in learners:
        learner.observe(torch.ones(4, 3, 2, 2), [0, 1, 0, 1])
    weights = [learner.network[1].weight for learner in learners]
    assert weights[0].shape == (12, 12)
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert embedding_network(f"{own}:Fixed", (3, 2, 2), 0, embedding=5)(torch.ones(2, 3, 2, 2)).shape == (
        2,
        5,
    )


def test_a_saved_learner_is_loaded_with_the_name_of_its_network_and_a_file_imports_nothing(
    own: str, tmp_path: Path
):
    learner = find("reservoir")(f"{own}:Fixed", memory_size=10)
    x = torch.rand(4, 3, 2, 2)
    learner.observe(x, [0, 1, 0, 1])
    learner.save(tmp_path / "state")
    sys.modules.pop(own)
    with pytest.raises(CheckpointError, match=rf"use load\(path, network='{own}:Fixed'\)"):
        load(tmp_path / "state")
    assert own not in sys.modules
    again = load(tmp_path / "state", network=f"{own}:Fixed")
    assert (again.predict_proba(x) == learner.predict_proba(x)).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet-18", "there is no network 'resnet-18'; did you mean 'resnet18'"),
        ("not_there:net", "there is no network 'not_there:net': No module named 'not_there'"),
        ("own_networks:big", "there is no network 'own_networks:big'"),
        ("own_networks:made", "must be a function that returns an nn.Module, or its class"),
    ],
)
def test_a_mistake_is_one_clear_sentence(own: str, name: str, message: str):
    with pytest.raises(ValueError, match=message):
        check_name(name)


def test_a_function_must_return_a_module(own: str):
    with pytest.raises(ValueError, match="own_networks:nothing must return an nn.Module, not str"):
        trunk("own_networks:nothing", (3, 2, 2), 0)


def test_networks_of_timm_need_timm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match="pip install timm"):
        check_name("timm:resnet18")


@pytest.fixture
def timm() -> None:
    """Skip where timm, or the torchvision that it imports, is not installed."""
    try:
        check_name("timm:resnet18")
    except ImportError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("timm")
def test_a_network_of_timm_is_built_for_the_channels_of_the_images():
    body, features = trunk("timm:resnet18", (1, 32, 32), 0)
    assert body(torch.zeros(2, 1, 32, 32)).shape == (2, features) == (2, 512)
    assert trunk("timm:mobilenetv3_small_050", (3, 32, 32), 0)[1] == 1024
    with pytest.raises(ValueError, match="timm has no network 'resnet19'; did you mean"):
        check_name("timm:resnet19")
    with pytest.raises(
        ValueError, match=r"vit_tiny_patch16_224 can't take images of shape \[3, 32, 32\]: .*224"
    ):
        trunk("timm:vit_tiny_patch16_224", (3, 32, 32), 0)


@pytest.mark.usefixtures("timm")
def test_a_learner_with_a_network_of_timm_learns_and_is_loaded_by_name(tmp_path):
    x = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    learner = CoPE("timm:resnet10t", memory_size=10, device="cpu")
    for _ in range(2):
        learner.observe(x, ["a", "b"] * 4)
    learner.save(tmp_path / "state")
    other = load(tmp_path / "state", device="cpu")
    assert other.network_name == "timm:resnet10t"
    torch.testing.assert_close(other.embed(x), learner.embed(x))
