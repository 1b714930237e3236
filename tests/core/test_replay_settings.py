"""Optional settings of replay, each against a plain implementation."""

import copy
import re
import threading

import numpy as np
import pytest
import torch
from small_learners import first_digits
from torch import Tensor, nn

from everlearn import learners, load
from everlearn.checkpoint import CheckpointError
from everlearn.core.plan import plan_shape
from everlearn.core.prediction import scored
from everlearn.core.setup import add_classes
from everlearn.engine.cohort import Cohort, shape_of
from everlearn.engine.loop import Run
from everlearn.learners.cope import CoPE
from everlearn.learners.cope_plus import CoPEPlus
from everlearn.losses import ppp_loss
from everlearn.training.views import Change, Colours

WITH_ADDITIONS = ["cope", "cope+", "cope-ce", "reservoir", "mir"]


def stream(batches=12, size=4, seed=0):
    """Batches of 6 x 6 images of classes that come two by two."""
    g = torch.Generator().manual_seed(seed)
    for n in range(batches):
        y = torch.randint(0, 2, (size,), generator=g) + 2 * (n // 4)
        x = torch.randint(0, 100, (size, 1, 6, 6), generator=g)
        x += 25 * y[:, None, None, None]
        yield x.to(torch.uint8), y


def learner(name, **settings):
    settings = {"augmentation": "none"} | settings
    return learners.find(name)("mlp", hidden=12, memory_size=20, seed=3, **settings)


def all_added(name):
    changed = {"augmentation": "crop-flip", "colour": 0.3, "mixing": 0.4}
    return learner(name, iterations=2, replayed=7, **changed, averaging=0.9, mirrored=True)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_the_setting_replayed_is_the_number_of_replayed_exemplars(name):
    model = learner(name, replayed=7)
    met = []
    step = model.step
    model.step = lambda x, slots, *replay: met.append((len(x), len(replay[0]))) or step(x, slots, *replay)
    for x, y in stream():
        model.observe(x, y)
    assert met[-1] == (4, 7 if name != "mir" else 20)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_every_image_is_augmented_and_stored_unchanged(name):
    model = learner(name, augmentation="shift", iterations=2)
    shown = []
    step = model.step
    model.step = lambda x, slots, *replay: shown.append(x.clone()) or step(x, slots, *replay)
    sent = []
    for x, y in stream():
        model.observe(x, y)
        sent.append(x)
    assert not torch.equal(shown[0], shown[1])
    everything = {image.numpy().tobytes() for image in torch.cat(sent)}
    assert all(image.numpy().tobytes() in everything for image in model.memory.samples()[0])


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_every_image_is_mixed_with_another(name):
    images, mixed, seen = changes(learner(name, mixing=0.5))[-1]
    shares = []
    for place, number in enumerate(mixed.tolist()):
        other, level = divmod(number, 256)
        shares.append(0.5 * level / 255)
        expected = (1 - shares[-1]) * images[place] / 255 + shares[-1] * images[other] / 255
        torch.testing.assert_close(seen[place], expected)
    assert 0 <= min(shares) < 0.2 < max(shares) <= 0.5


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_every_image_has_colours_of_its_own_after_its_view_and_before_it_is_mixed(name):
    settings = {"augmentation": "shift", "colour": 0.5, "mixing": 0.5}
    images, numbers, seen = changes(learner(name, **settings), 1)[-1]
    assert images.dtype == torch.uint8 and seen.dtype == torch.float32
    assert len(set(numbers.tolist())) > 1
    torch.testing.assert_close(seen, Colours(0.5)(images, numbers))
    assert torch.equal(changes(learner(name, **settings), 2)[-1][0], seen)


def changes(model, which=0):
    """What one of the changes of a model was given, of B_n and B_M, with the numbers, and what it gave."""
    met = []
    for x, y in stream():
        model.observe(x, y)
        if not met:
            changes = model.images.changes
            changes[which] = Spied(changes[which], met)
    return met


class Spied(Change):
    """A change that is remembered."""

    def __init__(self, change, met):
        self.change, self.met = change, met

    def count(self, images):
        return self.change.count(images)

    def __call__(self, x, numbers):
        self.met.append((x, numbers, self.change(x, numbers)))
        return self.met[-1][2]


@pytest.mark.parametrize("setting", ["colour", "mixing"])
def test_samples_that_are_not_numbers_can_not_be_augmented(setting):
    model = CoPE(nn.EmbeddingBag(9, 4), memory_size=20, **{setting: 0.4})
    with pytest.raises(
        ValueError, match=f"{setting} takes bytes or floating numbers, not samples of torch.int64"
    ):
        model.observe(torch.zeros(2, 5, dtype=torch.int64), ["a", "b"])
    assert model.classes == []


@pytest.mark.parametrize("setting", [{"colour": 0.4}, {"mirrored": True}])
@pytest.mark.parametrize("width", [None, 5])
def test_samples_that_are_not_images_are_refused(setting, width):
    model = learner("cope", width=width, **setting)
    words = f"`{next(iter(setting))}` takes images [..., height, width] without the setting `width`, or flat"
    with pytest.raises(ValueError, match=re.escape(words)):
        model.observe(torch.zeros(2, 36), ["a", "b"])
    assert model.classes == [] and model.network is None


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_predictions_are_made_from_an_image_and_its_mirror_image(name, flat):
    settings = {"width": 6 if flat else None} | ({"calibration": "none"} if name.startswith("cope") else {})
    model, plain = learner(name, mirrored=True, **settings), learner(name, **settings)
    for x, y in stream():
        x = x.flatten(1) if flat else x
        model.observe(x, y)
        plain.observe(x, y)
    back = x.view(-1, 6, 6).flip(2).view(x.shape)
    scores = scored(plain, x), scored(plain, back)
    torch.testing.assert_close(scored(model, x), (scores[0] + scores[1]) / 2)
    assert np.allclose(model.predict_proba(x), model.predict_proba(back), atol=1e-6)
    assert model.snapshot().predict(x) == model.predict(x)
    assert torch.equal(model.embed(x), plain.embed(x))


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_each_iteration_learns_from_the_output_of_the_last_change_of_new_and_old_images(name):
    model = learner(name, augmentation="shift", colour=0.5, mixing=0.5, iterations=2)
    shown, step = [], model.step
    model.step = lambda x, slots, *replay: shown.append(torch.cat([x, replay[0]])) or step(x, slots, *replay)
    met = changes(model, 2)
    assert torch.equal(shown[-2], met[-2][2]) and torch.equal(shown[-1], met[-1][2])
    assert not torch.equal(met[-2][1], met[-1][1])


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_all_ways_to_change_an_image_are_drawn(name):
    colours = torch.cat([numbers for _, numbers, _ in changes(learner(name, colour=0.5))])
    for place in range(3):
        levels = colours // 256**place % 256
        assert levels.min() < 40 and levels.max() > 215
    met = changes(learner(name, mixing=0.5))
    others = torch.cat([numbers // 256 for _, numbers, _ in met[-6:]])
    assert others.unique().tolist() == list(range(len(met[-1][1])))


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_a_users_function_is_applied_before_colours_and_mixtures(name):
    seen = []

    def darker(x):
        seen.append(x // 2)
        return seen[-1]

    for setting in ("colour", "mixing"):
        met = changes(learner(name, augmentation=darker, **{setting: 0.5}))
        assert torch.equal(met[-1][0], seen[-1]) and len(met[-1][0]) == len(met[-1][1]) > 4


def test_a_learner_with_a_users_function_uses_no_graph_and_its_own_random_numbers():
    model = learner("cope", augmentation=lambda x: x + torch.randn(x.shape).to(x.device))
    assert not model.tensors_alone
    before = torch.get_rng_state()
    for x, y in stream():
        model.observe(x, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_users_function_may_hold_objects_that_can_not_be_copied(tmp_path):
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

        def __call__(self, x):
            with self.lock:
                return x // 2

    mine = Locked()
    model = learner("cope", augmentation=mine)
    for x, y in stream():
        model.observe(x, y)
    model.save(tmp_path / "state")
    again = load(tmp_path / "state", augmentation=mine)
    assert again.settings.augmentation is mine and again.predict(x) == model.predict(x)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"colour": 1.1}, "colour must be at least 0 and at most 1, not 1.1"),
        ({"colour": -0.1}, "colour must be at least 0 and at most 1, not -0.1"),
        ({"mixing": 1.0}, "mixing must be at least 0 and below 1, not 1.0"),
        ({"averaging": 1.0}, "averaging must be at least 0 and below 1, not 1.0"),
        ({"replayed": 0}, "replayed must be at least 1, not 0"),
        ({"width": 0}, "width must be at least 1, not 0"),
        ({"mirrored": 0.5}, "mirrored must be True or False, not 0.5"),
        ({"shifted": -1}, "shifted must be at least 0, not -1"),
        ({"turned": 1.0, "learn_prototypes": True}, "turned must be at least 0 and below 1, not 1.0"),
        ({"turned": 0.5}, "turned must be 0 unless learn_prototypes is set, not 0.5"),
        (
            {"augmentation": "flop"},
            "augmentation must be none, auto, shift, crop-flip, affine, strong, .* or .*, not 'flop'",
        ),
    ],
)
def test_an_invalid_setting_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        learner("cope", **wrong)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: 1 / 0, "the augmentation can't take a batch of shape [4, 1, 6, 6]: division by zero"),
        (lambda x: x[:, :, :3], "must keep the shape of a batch, [4, 1, 6, 6], but gave [4, 1, 3, 6]"),
        (lambda x: None, "must keep the shape of a batch, [4, 1, 6, 6], but gave NoneType"),
        (
            lambda x: x.long(),
            "must return floating numbers or torch.uint8, its input, but returned torch.int64",
        ),
        (lambda x: x / 0, "the augmentation gave NaN or infinity"),
    ],
)
def test_a_function_that_fails_changes_nothing(name, wrong, words):
    views = [lambda x: x]
    model = learner(name, augmentation=lambda x: views[0](x))
    batches = list(stream())
    for x, y in batches[:4]:
        model.observe(x, y)
    before = model.state_dict()
    views[0] = wrong
    with pytest.raises(ValueError, match=re.escape(words)):
        model.observe(*batches[4])  # which has classes that are new
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before if key != "meta")
    assert before["meta"] == after["meta"]


def test_a_function_that_works_in_place_does_not_change_the_stored_samples():
    model = learner("cope", augmentation=lambda x: x.zero_())
    for x, y in stream():
        sent = x.clone()
        model.observe(x, y)
        assert torch.equal(x, sent)
    assert model.memory.samples()[0].flatten(1).any(1).all()


def test_a_run_with_a_function_that_draws_resumes_exactly(tmp_path):
    def noisy(x):
        return x.float() / 255 + torch.randn(x.shape, device=x.device) / 10

    batches = list(stream())
    whole, half = (learner("cope", augmentation=noisy) for _ in range(2))
    for n, (x, y) in enumerate(batches):
        whole.observe(x, y)
        torch.rand(3)  # other draws in between do not matter
        half.observe(x, y)
        if n == 6:
            half.save(tmp_path / "half")
            half = load(tmp_path / "half", augmentation=noisy)
    assert torch.equal(whole.embed(x), half.embed(x))


def test_loading_a_state_with_a_users_function_requires_the_function(tmp_path):
    def darker(x):
        return x // 2

    model = learner("cope", augmentation=darker)
    for x, y in stream():
        model.observe(x, y)
    model.save(tmp_path / "state")
    with pytest.raises(CheckpointError, match="saved with your own augmentation: use load"):
        load(tmp_path / "state")
    again = load(tmp_path / "state", augmentation=darker)
    assert torch.equal(again.embed(x), model.embed(x))


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_averaged_weights_follow_the_weights_and_the_age_of_the_newest_class(name):
    model = learner(name, averaging=0.5, iterations=1)
    expected, newest = None, 0
    for n, (x, y) in enumerate(stream()):
        before = len(model.classes)
        model.observe(x, y)
        if expected is None:
            fresh = learner(name, averaging=0.5, iterations=1)
            add_classes(fresh, x, y)
            expected = copy.deepcopy(fresh.network.state_dict())
        if len(model.classes) > before:
            newest = n
        decay = min(0.5, (1 + n - newest) / (10 + n - newest))
        for part, weight in model.network.state_dict().items():
            expected[part] = decay * expected[part] + (1 - decay) * weight
    for part, mean in model.predictor.state_dict().items():
        torch.testing.assert_close(mean, expected[part])


def test_averaged_weights_include_the_statistics_of_batch_norm():
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8))
    model = CoPE(network, memory_size=20, averaging=0.9, seed=0)
    for x, y in stream():
        model.observe(x, y)
    mean = model.predictor[2].running_mean
    assert not torch.equal(mean, network[2].running_mean)
    assert mean.any()


def test_averaged_weights_follow_a_buffer_that_the_network_replaces():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(36))

        def forward(self, x):
            x = x.flatten(1)
            if self.training:
                self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            return x - self.mean

    batches = list(stream())
    model = CoPE(nn.Sequential(Centred(), nn.Linear(36, 8)), memory_size=20, averaging=0.9, seed=0)
    add_classes(model, *batches[0])
    for n, (x, y) in enumerate(batches[:3]):
        before, newest = model.predictor[0].mean.clone(), model.newest
        model.observe(x, y)
        newest = n - max(newest, model.newest)
        decay = min(0.9, (1 + newest) / (10 + newest))
        expected = decay * before + (1 - decay) * model.network[0].mean
        torch.testing.assert_close(model.predictor[0].mean, expected)
    assert model.network[0].mean.any()


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_with_all_settings_on_a_stopped_run_resumes_exactly(name, tmp_path):
    batches = list(stream())
    whole, part = all_added(name), all_added(name)
    for x, y in batches:
        whole.observe(x, y)
    for x, y in batches[:7]:
        part.observe(x, y)
    part.save(tmp_path / "state")
    part = load(tmp_path / "state")
    for x, y in batches[7:]:
        part.observe(x, y)
    x = batches[-1][0]
    assert np.array_equal(part.predict_proba(x), whole.predict_proba(x))
    assert all(torch.equal(a, b) for a, b in zip(part.parameters, whole.parameters, strict=True))


def test_averaged_weights_that_layers_share_are_averaged_and_counted_once():
    shared = nn.Linear(36, 36)
    model = CoPE(nn.Sequential(nn.Flatten(), shared, nn.ReLU(), shared), memory_size=20, averaging=0.9)
    x, y = next(iter(stream()))
    add_classes(model, x, y)
    before = shared.weight.detach().clone()
    model.observe(x, y)
    # The newest class is 0 batches old, so that the decay is a tenth.
    torch.testing.assert_close(model.predictor[1].weight, 0.1 * before + 0.9 * shared.weight.detach())
    assert model.footprint()["averaged weights"] == sum(part.nbytes for part in model.parameters)


@pytest.mark.parametrize("name", ["cope-ce", "reservoir", "mir"])
def test_averaged_weights_stay_when_the_last_layer_grows(name):
    model = learner(name, averaging=0.9)
    for x, y in stream():
        model.observe(x, y)
    before = model.predict_proba(x)
    add_classes(model, x.repeat(3, 1, 1, 1), list("abcdefghijkl"))  # 18 classes, and there was room for 16
    assert model.network.head.out_features == 32
    after = model.predict_proba(x)[:, :6]
    np.testing.assert_allclose(after / after.sum(1, keepdims=True), before, rtol=1e-4)


@pytest.mark.parametrize("new", [False, True])
def test_a_merge_makes_the_newest_class_young_if_it_brings_one_and_else_leaves_its_age(new):
    model, other = (learner("cope", averaging=0.9) for _ in range(2))
    batches = list(stream(20))
    for x, y in batches[:6]:
        model.observe(x, y)
    for x, y in batches[4:20] if new else batches[:6]:
        other.observe(x, y)
    age = model.batches - model.newest
    model.merge(other)
    assert model.batches - model.newest == (0 if new else age)


def test_averaged_weights_are_counted():
    model = learner("cope", averaging=0.9)
    for x, y in stream():
        model.observe(x, y)
    assert model.footprint()["averaged weights"] == sum(part.nbytes for part in model.parameters)


def test_the_table_of_views_is_counted():
    model = learner("cope", augmentation="shift")
    model.observe(*next(iter(stream())))
    assert model.footprint()["views"] == 25 * 6 * 6 * 2


def test_recalibrated_prototypes_are_the_mean_embedding_of_the_exemplars():
    model = CoPEPlus("mlp", hidden=12, memory_size=20, seed=0)
    for x, y in stream():
        model.observe(x, y)
    assert model.predict(x) == [model.classes[i] for i in anew(model, x).argmax(1)]
    held = model.footprint()["prototypes"]
    model.plan(y.tolist(), keep=False)
    assert (
        held - model.footprint()["prototypes"] == 6 * 100 * 4
    )  # those from the memory, which are not valid any more
    still = model.snapshot()
    expected = still.predict_proba(x)
    model.observe(x, y)
    assert np.array_equal(still.predict_proba(x), expected)
    torch.testing.assert_close(*(torch.from_numpy(part) for part in (model.predict_proba(x), anew(model, x))))


def test_recalibrated_prototypes_include_classes_without_exemplars():
    model = CoPEPlus("mlp", hidden=12, memory_size=20, seed=0)
    for x, y in stream():
        model.observe(x, y)
    assert model.predict_proba(x).shape == (4, 6)
    add_classes(model, x, [6, 7, 8, 9])  # they have no exemplar yet
    answers = model.predict_proba(x)
    assert answers.shape == (4, 10) and (answers > 0).all()


def anew(model, x):
    """The predictions with the mean embedding of each class's exemplars."""
    exemplars, labels = model.memory.samples()
    embedded = model.embed(exemplars)
    means = torch.stack([embedded[[of == c for of in labels]].mean(0) for c in model.classes])
    near = model.embed(x) @ nn.functional.normalize(means, dim=1).T
    return (near / model.settings.temperature).softmax(1).numpy()


def test_with_a_reference_batch_negatives_weigh_as_in_a_batch_of_that_size():
    x, y = next(iter(stream()))
    for reference, weight in (
        (None, 1.0),
        (4, 1.0),
        (8, 2.0),
        (2, 0.5),
    ):  # B has 4 samples: nothing is replayed
        model = learner("cope", reference_batch=reference)
        add_classes(model, x, y)
        slots = torch.tensor(model.labels.slots(y.tolist()))
        features = nn.functional.normalize(model.network(x / 255), dim=1)
        prototypes = torch.stack(list(model.prototypes.values()))
        loss = ppp_loss(features, slots, prototypes, model.settings.temperature, repellor=weight)
        slopes = torch.autograd.grad(loss, model.parameters)
        expected = [part - 0.01 * slope for part, slope in zip(model.parameters, slopes, strict=True)]
        model.observe(x, y)
        torch.testing.assert_close(
            [part.detach() for part in model.parameters], [*map(Tensor.detach, expected)]
        )


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_a_class_is_forgotten_by_the_averaged_weights_too(name):
    model = all_added(name)
    for x, y in stream():
        model.observe(x, y)
    before = model.predict_proba(x)
    model.forget(2)
    assert 2 not in model.classes
    after = model.predict_proba(x)
    others = [0, 1, 3, 4, 5]
    if name not in ("cope", "cope+"):  # the other logits are what they were, so are their odds
        kept = before[:, others] / before[:, others].sum(1, keepdims=True)
        np.testing.assert_allclose(after, kept, rtol=1e-4)
    model.observe(x, y)
    model.observe(x, [2] * len(x))
    assert model.classes[-1] == 2


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_learners_whose_plans_differ_in_shape_are_of_another_shape(name):
    met = {}
    for added in (
        {},
        {"mixing": 0.4},
        {"mixing": 0.2},
        {"colour": 0.2},
        {"averaging": 0.9},
        {"iterations": 2},
        {"replayed": 15},
    ):
        model = learner(name, augmentation="shift", **added)
        for x, y in stream():
            model.observe(x, y)
        plan = tuple(part.shape for part in model.plan(y.tolist()).arrays())
        met.setdefault(plan_shape(model, len(y)), set()).add(plan)
    assert all(len(plans) == 1 for plans in met.values())
    shapes = [plan_shape(learner(name, mixing=mixing), 4) for mixing in (0.4, 0.2, 0.0)]
    assert shapes[0] == shapes[1] != shapes[2]


def all_added_on_a_gpu(gpu, name, seed=0, rate=0.01):
    settings = {"iterations": 2, "replayed": 7, "averaging": 0.9, "learning_rate": rate, "mirrored": True}
    changed = {"augmentation": "shift", "width": 8, "colour": 0.3, "mixing": 0.4, "shifted": 1}
    if name not in ("cope", "mir"):
        changed["turned"] = 0.3
    return learners.find(name)("mlp", hidden=64, seed=seed, device=gpu, **changed, **settings)


def assert_alike(one, other):
    for key, part in one.state_dict().items():
        if key != "meta":
            torch.testing.assert_close(part, other.state_dict()[key], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_with_all_settings_on_a_captured_run_equals_the_eager_one_and_resumes(name, gpu, tmp_path):
    captured, eager = (all_added_on_a_gpu(gpu, name) for _ in range(2))
    eager.graphs = None
    for n, (x, y, t) in enumerate(first_digits()):
        captured.observe(x, y, t)
        eager.observe(x, y, t)
        if n == 15:
            assert captured.graphs._graphs
            captured.save(tmp_path / "half")
            captured = load(tmp_path / "half", device=gpu)
    assert captured.graphs._graphs
    assert_alike(captured, eager)


@pytest.mark.parametrize("name", WITH_ADDITIONS)
def test_with_all_settings_on_a_member_of_a_cohort_has_the_same_result_as_alone(name, gpu):
    def runs():
        for seed, rate in ((0, 0.01), (1, 0.01), (0, 0.02)):
            yield Run(all_added_on_a_gpu(gpu, name, seed, rate), first_digits(seed, 100))

    together = list(runs())
    assert len({shape_of(run) for run in together}) == 1 and shape_of(together[0]) is not None
    Cohort(together).finish()
    for member, alone in zip(together, runs(), strict=True):
        alone.finish()
        assert_alike(alone.learner, member.learner)


def test_a_black_square_is_cut_out_of_every_image():
    model = learner("cope", augmentation="none", cutout=3)
    x, y = next(iter(stream()))
    x = x.clamp(min=1)
    met = []
    original = model.step
    model.step = lambda new, *rest: met.append(new) or original(new, *rest)
    model.observe(x, y)
    for image, seen in zip(x, met[0], strict=True):
        gone = (seen == 0).nonzero()[:, -2:]
        height, width = (gone.amax(0) - gone.amin(0) + 1).tolist()
        assert 1 <= height <= 3 and 1 <= width <= 3 and len(gone) == height * width * image.shape[0]
        kept = seen != 0
        assert torch.equal(seen[kept], image[kept])


@pytest.mark.parametrize(("planes", "views"), [(1, 25), (3, 162), (5, None)])
def test_automatic_views_depend_on_the_planes_of_the_images(planes, views):
    model = learner("cope", augmentation="auto")
    model.observe(torch.randint(256, (4, planes, 8, 8), dtype=torch.uint8), [0, 1, 0, 1])
    assert [change.count(1) for change in model.images.changes] == ([] if views is None else [views])
