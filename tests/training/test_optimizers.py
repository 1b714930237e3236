"""Optimisers with a state, against torch's own; resumed, undone, grown and captured."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch import nn

from everlearn import learners, load
from everlearn.core.settings import Settings
from everlearn.training.optimizers import StatefulOptimizer, make_optimizer
from everlearn.training.passes import NotFinite
from everlearn.training.sgd import SGD

CHOICES = [
    {"optimizer": "sgd", "optimizer_momentum": 0.9},
    {"optimizer": "sgd", "weight_decay": 0.1},
    {"optimizer": "sgd", "optimizer_momentum": 0.5, "weight_decay": 0.01},
    {"optimizer": "adam"},
    {"optimizer": "adam", "weight_decay": 0.1},
    {"optimizer": "adamw", "weight_decay": 0.1, "second_moment": 0.99},
]
# Every learner whose network is trained by SGD.
BY_SGD = sorted(name for name, kind in learners.registry().items() if kind.Settings.trains_with is None)


def theirs(parameters, optimizer, optimizer_momentum=0.0, weight_decay=0.0, second_moment=0.999):
    if optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=0.01, momentum=optimizer_momentum, weight_decay=weight_decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[optimizer]
    return kind(parameters, lr=0.01, weight_decay=weight_decay, betas=(0.9, second_moment))


def batches(number=6, size=8):
    generator = torch.Generator().manual_seed(0)
    for i in range(number):
        # A new class now and then, and more of them than a softmax has room for at first.
        y = torch.randint(0, 4 + 6 * i, (size,), generator=generator)
        yield torch.randn(size, 5, generator=generator) + y[:, None], y


def trained(name, choice, **more):
    made = learners.find(name)(hidden=8, seed=1, device="cpu", **choice, **more)
    for x, y in batches():
        made.observe(x, y, 0)
    return made


def same_state(one, other):
    mine, others = one.state_dict(), other.state_dict()
    assert mine.keys() == others.keys()
    return all(name == "meta" or torch.equal(mine[name], others[name]) for name in mine)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_step_is_that_of_torch(choice):
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Flatten(), nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    other = copy.deepcopy(ours)
    mine = make_optimizer(ours, list(ours.parameters()), Settings(**choice))
    reference = theirs(other.parameters(), **choice)
    for _ in range(20):
        x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
        loss = nn.functional.cross_entropy(ours(x), y)
        mine.step(torch.autograd.grad(loss, list(ours.parameters())))
        reference.zero_grad()
        nn.functional.cross_entropy(other(x), y).backward()
        reference.step()
        for a, b in zip(ours.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a, b)


def test_plain_sgd_keeps_its_fast_path():
    network = nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
    assert type(make_optimizer(network, list(network.parameters()), Settings())) is SGD


def test_a_long_gradient_is_shortened_before_it_is_used():
    weight = nn.Parameter(torch.zeros(3))
    settings = Settings(optimizer_momentum=0.5, learning_rate=0.1, clip=1.0)
    make_optimizer(nn.ParameterList([weight]), [weight], settings).step([torch.tensor([0.0, 30.0, 40.0])])
    assert torch.allclose(weight, torch.tensor([0.0, -0.6, -0.8]))


@pytest.mark.parametrize("name", BY_SGD)
def test_every_learner_trains_with_adam_and_resumes_exactly(name, tmp_path):
    needed = {"tasks": 2} if name == "gem" else {}
    choice = {"optimizer": "adamw", "weight_decay": 0.01, "learning_rate": 0.002}
    whole = trained(name, choice, **needed)
    plain = trained(name, {"learning_rate": 0.002}, **needed)
    assert isinstance(whole.sgd, StatefulOptimizer) and not isinstance(plain.sgd, StatefulOptimizer)
    assert not torch.equal(whole.parameters[0], plain.parameters[0])
    part = learners.find(name)(hidden=8, seed=1, device="cpu", **choice, **needed)
    for place, (x, y) in enumerate(batches()):
        part.observe(x, y, 0)
        if place == 3:
            part.save(tmp_path / "state.safetensors")
            part = load(tmp_path / "state.safetensors", device="cpu")
    assert same_state(whole, part)
    assert whole.footprint()["optimiser"] == whole.sgd.nbytes() > 0


@pytest.mark.parametrize("choice", CHOICES[::3], ids=str)
def test_a_batch_that_fails_leaves_no_trace(choice):
    learner = learners.find("reservoir")(
        hidden=8, seed=1, device="cpu", clip=None, **{**choice, "learning_rate": 1e30}
    )
    before = {}
    with contextlib.suppress(NotFinite):
        for x, y in batches():
            parts = learner.state_dict().items()
            before = {name: part.clone() for name, part in parts if name != "meta"}
            learner.observe(x, y)
    assert learner.batches < 6
    after = learner.state_dict()
    assert float(after["optimizer.steps"]) == learner.batches >= 1
    assert all(torch.equal(part, after[name]) for name, part in before.items())


def test_a_head_that_grows_keeps_the_moments_of_its_first_rows():
    learner = learners.find("finetune")(hidden=8, device="cpu", optimizer="adam")
    learner.observe(torch.randn(4, 5), [0, 1, 2, 3])
    first = [part.clone() for part in learner.sgd.moments["second"]]
    from everlearn.core.setup import add_classes

    add_classes(learner, torch.randn(20, 5), list(range(20)))
    grown = learner.sgd.moments["second"]
    assert len(grown[-1]) == 32 and float(learner.sgd.steps) == 1
    assert all(torch.equal(old, new[: len(old)]) for old, new in zip(first, grown, strict=True))
    assert grown[-1][16:].count_nonzero() == 0


def test_a_forgotten_class_leaves_a_learner_that_goes_on():
    learner = trained("reservoir", {"optimizer": "adam"})
    learner.forget(2)
    learner.observe(torch.randn(4, 5), [0, 1, 0, 1])
    assert 2 not in learner.classes


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"optimizer": "adm"}, "optimizer must be sgd, adam or adamw, not 'adm'"),
        (
            {"optimizer": "adam", "optimizer_momentum": 0.5},
            "optimizer_momentum must be 0 with the optimizer adam",
        ),
        ({"optimizer_momentum": 1.0}, "optimizer_momentum must be at least 0 and below 1"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"second_moment": 1.0}, "second_moment must be between 0 and 1"),
    ],
)
def test_a_mistake_is_one_clear_sentence(choice, message):
    with pytest.raises(ValueError, match=message):
        learners.find("finetune")(**choice)


@pytest.mark.parametrize("name", sorted(learners.registry().keys() - set(BY_SGD)))
def test_a_method_with_its_own_optimiser_says_so(name):
    kind = learners.find(name)
    only = kind.Settings.trains_with
    other = "adam" if only == "sgd" else "sgd"
    with pytest.raises(
        ValueError, match=f"optimizer must be {only}, the only one of this method, not '{other}'"
    ):
        kind(optimizer=other)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_a_captured_step_gives_the_numbers_of_an_eager_one(choice, gpu):
    made = [learners.find("reservoir")(hidden=8, seed=1, device=gpu, **choice) for _ in range(2)]
    made[1].graphs = None
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        x, y = torch.randn(8, 5, generator=generator), torch.randint(0, 4, (8,), generator=generator)
        for learner in made:
            learner.observe(x, y)
    for a, b in zip(made[0].parameters, made[1].parameters, strict=True):
        torch.testing.assert_close(a, b)
