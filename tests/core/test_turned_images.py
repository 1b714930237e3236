"""Turned images as classes of their own, and predictions over shifted images, against plain implementations."""

import copy

import pytest
import torch
from torch.nn.functional import normalize

from everlearn import learners, load
from everlearn.core.prediction import scored
from everlearn.losses.proxy import proxy_loss
from everlearn.training.views import Turns

TURNING = ["cope", "cope+", "cope-ce", "reservoir"]


def learner(name, **settings):
    prototypes = {"learn_prototypes": True} if name == "cope" else {}
    defaults = {"augmentation": "none", "averaging": 0.0, "iterations": 1, "clip": None}
    settings = (
        {"device": "cpu"} | prototypes | defaults | settings
    )  # a captured step calls no Python to spy on
    return learners.find(name)("mlp", hidden=12, memory_size=20, seed=3, **settings)


def batches(count=8, side=6):
    """Images of three classes."""
    g = torch.Generator().manual_seed(0)
    for _ in range(count):
        y = torch.randint(3, (4,), generator=g)
        yield torch.rand(4, 1, side, side, generator=g) + y[:, None, None, None], y.tolist()


def taught(name, **settings):
    model = learner(name, **settings)
    for x, y in batches():
        model.observe(x, y)
    return model


def spied(model, x, y, **settings):
    """Observe a batch; returns the images of each step with their classes and turns."""
    met, step = [], model.step

    def spy(new, slots, old, old_slots):
        met.append((torch.cat([new, old]), torch.cat([slots, old_slots]), model.images.turns.clone()))
        return step(new, slots, old, old_slots)

    model.step = spy
    model.observe(x, y, **settings)
    return met


def turned_by_hand(vector, turns):
    quarter = len(vector) // 4
    return torch.cat([vector[len(vector) - turns * quarter :], vector[: len(vector) - turns * quarter]])


@pytest.mark.parametrize("name", TURNING)
def test_a_share_of_the_images_is_turned(name):
    model, counts = taught(name, turned=0.4), torch.zeros(4)
    for x, y in batches(40):
        given, shown = [], []
        change = model.images.changes[-1]
        assert isinstance(change, Turns)
        model.images.changes[-1] = Spy(change, given, shown)
        model.observe(x, y)
        model.images.changes[-1] = change
        for image, seen, turns in zip(given[0], shown[0], change.turns(shown[1]).tolist(), strict=True):
            assert torch.equal(torch.rot90(image, turns, (1, 2)), seen)
            counts[turns] += 1
    shares = counts / counts.sum()
    assert 0.5 < shares[0] < 0.7 and (shares[1:] > 0.08).all()


class Spy(Turns):
    """Turns that remember what they were given and what they returned."""

    def __init__(self, change, given, shown):
        self.__dict__.update(vars(change))
        self.given, self.shown = given, shown

    def __call__(self, x, numbers):
        self.given.append(x)
        self.shown += [super().__call__(x, numbers), numbers]
        return self.shown[0]


@pytest.mark.parametrize("name", ["cope", "cope+"])
def test_a_step_is_one_on_the_cross_entropy_over_all_prototypes_upright_and_turned(name):
    model = taught(name, turned=0.6, learning_rate=0.1)
    network = copy.deepcopy(model.network)
    before = model.prototype_memory.vectors[:3].clone().requires_grad_()
    x, y = next(batches())
    ((images, slots, turns),) = spied(model, x, y)
    assert len(set(turns.tolist())) > 1
    joint = torch.stack([turned_by_hand(before[c], k) for k in range(4) for c in range(3)])
    features = normalize(network(images), dim=1)
    loss = proxy_loss(features, turns * 3 + slots, joint, model.settings.temperature)
    *weights, by_prototypes = torch.autograd.grad(loss, [*network.parameters(), before])
    for part, slope, after in zip(network.parameters(), weights, model.parameters, strict=True):
        torch.testing.assert_close(after, part - 0.1 * slope)
    expected = normalize(before - 0.1 * by_prototypes, dim=1)
    torch.testing.assert_close(model.prototype_memory.vectors[:3], expected.detach())


@pytest.mark.parametrize("name", ["cope-ce", "reservoir"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_of_a_softmax_is_one_on_the_cross_entropy_over_all_classes_upright_and_turned(name, weighted):
    model = taught(name, turned=0.6, learning_rate=0.1)
    network = copy.deepcopy(model.network)
    x, y = next(batches())
    own = torch.tensor([0.5, 1.0, 2.0, 1.5]) if weighted else torch.ones(4)
    ((images, slots, turns),) = spied(model, x, y, sample_weight=own if weighted else None)
    total, weights = 0, torch.cat([own, torch.ones(len(images) - 4)])
    for image, slot, turn, weight in zip(images, slots, turns.tolist(), weights, strict=True):
        features = network.body(image[None])[0]
        quarter = len(features) // 4
        logits = [network.head(features.roll(-k * quarter))[:3] for k in range(4)]
        probabilities = torch.cat(logits).softmax(0)
        total = total - weight * probabilities[turn * 3 + slot].log() / weights.sum()
    slopes = torch.autograd.grad(total, list(network.parameters()))
    for part, slope, after in zip(network.parameters(), slopes, model.parameters, strict=True):
        torch.testing.assert_close(after, part - 0.1 * slope, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TURNING)
def test_it_resumes_exactly_and_learns_new_classes_forgets_and_merges(name, tmp_path):
    model = taught(name, turned=0.5, iterations=2)
    model.save(tmp_path / "state")
    again = load(tmp_path / "state")
    for x, y in batches(3):
        for each in (model, again):
            each.observe(x, [label + 2 for label in y])
    for key, part in model.state_dict().items():
        assert (
            torch.equal(part, again.state_dict()[key]) if key != "meta" else part == again.state_dict()[key]
        )
    model.forget(0)
    model.merge(again)
    model.observe(x, y)
    assert set(model.classes) >= {1, 2, 3, 4}


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", TURNING)
def test_predictions_are_made_from_an_image_and_shifted_ones(name, flat):
    shape = {"width": 6} if flat else {}
    view = (lambda x: x.flatten(1)) if flat else (lambda x: x)
    model, plain = learner(name, shifted=2, mirrored=True, **shape), learner(name, **shape)
    for x, y in batches():
        x = (x * 60).to(torch.uint8)
        model.observe(view(x), y)
        plain.observe(view(x), y)
    views = []
    for down, right in ((0, 0), (-2, 0), (2, 0), (0, -2), (0, 2)):
        moved = torch.zeros_like(x)
        for i in range(6):
            for j in range(6):
                if 0 <= i - down < 6 and 0 <= j - right < 6:
                    moved[:, :, i, j] = x[:, :, i - down, j - right]
        views += [moved, moved.flip(3)]
    expected = torch.stack([scored(plain, view(each)) for each in views]).mean(0)
    torch.testing.assert_close(scored(model, view(x)), expected)


def test_images_that_are_not_square_are_refused_before_anything_changes():
    model = learner("cope+", turned=0.5)
    with pytest.raises(ValueError, match="the setting `turned` takes square images, not 4 x 6 pixels"):
        model.observe(torch.zeros(2, 1, 4, 6), ["a", "b"])
    assert model.classes == [] and model.network is None


def test_a_shift_beyond_the_image_is_refused_before_anything_changes():
    model = learner("cope+", shifted=6)
    with pytest.raises(ValueError, match="shifted must be less than the size of the images, 6 pixels, not 6"):
        model.observe(torch.zeros(2, 1, 6, 8), ["a", "b"])
    assert model.classes == [] and model.network is None


def test_methods_with_their_own_losses_have_no_turned_images():
    with pytest.raises(TypeError, match="has no setting 'turned'"):
        learners.find("er-ace")("mlp", turned=0.5)
