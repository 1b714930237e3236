"""`sample_weight`: a weight of 2 is the sample twice in the mean of the loss, and 0 leaves it out."""

import numpy as np
import pytest
import torch
from small_learners import NAMES, make, same_state
from torch.nn.functional import cross_entropy, normalize

from everlearn import Finetune, learners
from everlearn.core.learner import Learner
from everlearn.core.setup import add_classes
from everlearn.losses import ppp_loss

WEIGHED = [name for name in NAMES if learners.find(name).weighs_samples]
OTHERS = [name for name in NAMES if name not in WEIGHED]


def batch(size=4, seed=0):
    return torch.randn(size, 6, generator=torch.Generator().manual_seed(seed)), ["a", "b"] * (size // 2)


def observed(name, x, y, weights=None, **settings):
    learner = make(name, iterations=1, **settings)
    learner.observe(x, y, 0 if "t" in learner.needs else None, weights)
    return learner


def weights_of(learner):
    return torch.cat([part.flatten() for part in learner.network.parameters()])


# A first batch has no replay, so that a sample given twice is the oracle; but not in the PPP-loss, whose terms are
# pairs of samples, nor in MKD, which also distils them.
@pytest.mark.parametrize("name", [name for name in WEIGHED if name not in ("mkd", "cope", "cope+")])
def test_a_weight_of_two_is_the_sample_twice_in_the_loss(name):
    x, y = batch()
    options = {"standardise": False, "averaging": 0.0}
    weighted = observed(name, x, y, [1, 2, 1, 1], **options)
    twice = observed(name, torch.cat([x, x[1:2]]), [*y, y[1]], **options)
    plain = observed(name, x, y, **options)
    torch.testing.assert_close(weights_of(weighted), weights_of(twice), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(weights_of(weighted), weights_of(plain), atol=1e-6)


def test_in_the_ppp_loss_a_weight_multiplies_the_gradient_of_its_sample():
    x, y = batch()
    weights = torch.tensor([1.0, 2, 1, 1])
    learner, model = (make("cope", iterations=1, standardise=False) for _ in range(2))
    add_classes(model, x, y)
    learner.observe(x, y, sample_weight=weights)
    features = normalize(model.network(x))
    prototypes, slots = model.prototype_memory.vectors[:2], torch.tensor([0, 1, 0, 1])
    loss = ppp_loss(features, slots, prototypes, model.settings.temperature, pseudo_prototypes=False)
    (slope,) = torch.autograd.grad(loss, features, retain_graph=True)
    expected = torch.autograd.grad(features, model.parameters, slope * (weights / weights.mean())[:, None])
    for part, before, gradient in zip(learner.parameters, model.parameters, expected, strict=True):
        torch.testing.assert_close(
            part, before - model.settings.learning_rate * gradient, atol=1e-6, rtol=1e-4
        )


@pytest.mark.parametrize("name", WEIGHED)
def test_only_the_ratio_of_weights_counts_where_nothing_is_replayed(name):
    x, y = batch()
    one, other = (observed(name, x, y, weights) for weights in ([1, 3, 1, 1], [2, 6, 2, 2]))
    torch.testing.assert_close(weights_of(one), weights_of(other), atol=1e-6, rtol=1e-5)
    same_state(observed(name, x, y).state_dict(), observed(name, x, y, None).state_dict())


def test_weights_beside_replayed_samples_are_a_weighted_mean_over_both():
    learner = make("reservoir", iterations=1, standardise=False)
    x, y = batch()
    learner.observe(x, y)
    drawn = []
    fit = learner.fit
    learner.fit = lambda *args: drawn.append(args) or fit(*args)
    before = {name: part.clone() for name, part in learner.network.named_parameters()}
    new, labels = batch(seed=1)
    learner.observe(new, labels, sample_weight=[5, 1, 1, 1])
    both, slots, _ = drawn[0]
    model = make("reservoir", iterations=1, standardise=False)
    model.observe(x, y)
    weights = torch.cat([torch.tensor([5.0, 1, 1, 1]), torch.ones(len(both) - 4)])
    losses = cross_entropy(model.logits(both), slots, reduction="none")
    slope = torch.autograd.grad((losses * weights).sum() / weights.sum(), model.parameters)
    for (name, part), gradient in zip(learner.network.named_parameters(), slope, strict=True):
        expected = before[name] - learner.settings.learning_rate * gradient
        torch.testing.assert_close(part, expected, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("name", WEIGHED)
def test_a_weight_of_zero_leaves_the_sample_out(name):
    x, y = batch(6)
    y[5] = "only here"
    weighted = observed(name, x, y, np.array([1.0, 1, 1, 1, 0, 0]))
    same_state(weighted.state_dict(), observed(name, x[:4], y[:4], [1] * 4).state_dict())
    assert weighted.classes == ["a", "b"]
    before = weighted.state_dict()
    weighted.observe(x, y, 0 if "t" in weighted.needs else None, torch.zeros(6))
    same_state(weighted.state_dict(), before)


def test_weights_of_a_revisited_batch_count_too():
    x, y = batch()
    learners = [observed("finetune", x, y) for _ in range(2)]
    learners[0].revisit(x, y, sample_weight=[1, 1, 1, 2])
    learners[1].revisit(torch.cat([x, x[3:]]), [*y, y[3]])
    torch.testing.assert_close(*map(weights_of, learners), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_a_learner_without_a_loss_for_each_sample_says_so(name):
    learner = make(name)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        learner.observe(*batch(), 0 if "t" in learner.needs else None, [1, 1, 1, 2])
    assert learner.batches == 0


def test_an_own_learner_says_so_too():
    class Own(Learner):
        Settings = Finetune.Settings

        def step(self, x, slots, *replay):
            self.fit(x, slots)

    with pytest.raises(ValueError, match="Own.observe takes no sample_weight"):
        Own("mlp", device="cpu").observe(*batch(), sample_weight=[1, 1, 1, 1])


def test_a_network_that_is_not_trained_has_no_loss_to_weigh():
    with pytest.raises(ValueError, match="the network identity, which is not trained"):
        make("cope", network="identity", embedding=None).observe(*batch(), sample_weight=[1, 1, 1, 2])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"4 samples but sample_weight of shape \[2\]"),
        ([1, 1, 1, -1], "at least 0 and at most 1e[+]06, not -1"),
        ([1, 1, 1, float("nan")], "not nan"),
        ([1, 1, 1, float("inf")], "not inf"),
        (["a"] * 4, "one number for each sample"),
        (2, r"of shape \[\]"),
    ],
)
def test_wrong_weights_are_one_sentence(weights, message):
    learner = make("cope")
    with pytest.raises(ValueError, match=message):
        learner.observe(*batch(), sample_weight=weights)
    assert learner.batches == 0
