"""CN-DPM: whose a sample is, when an expert is born, and what waits."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from everlearn import load
from everlearn.learners.cn_dpm import ASSIGNMENT_TEMPERATURE, CNDPM

SMALL = {
    "hidden": 16,
    "added": 8,
    "latent": 3,
    "draws": 4,
    "learning_rate": 0.01,
    "generative_learning_rate": 0.01,
    "short_term_memory": 40,
    "generative_steps": 60,
    "discriminative_steps": 60,
}


def blobs(labels, count, seed=0, centres={"a": -3.0, "b": 0.0, "c": 3.0, "d": 6.0}):  # noqa: B006
    generator = torch.Generator().manual_seed(seed)
    y = [labels[i % len(labels)] for i in range(count)]
    return torch.randn(count, 6, generator=generator) / 2 + torch.tensor([[centres[label]] for label in y]), y


def teach(learner, labels, count, seed=0, size=10):
    x, y = blobs(labels, count, seed)
    for start in range(0, count, size):
        learner.observe(x[start : start + size], y[start : start + size])


@pytest.fixture
def grown():
    """A learner with one expert, of two classes."""
    learner = CNDPM(seed=0, device="cpu", **SMALL)
    teach(learner, "ab", 40)
    assert len(learner.experts) == 1
    return learner


def accuracy(learner, labels, count=100):
    x, y = blobs(labels, count, seed=9)
    return sum(a == b for a, b in zip(learner.predict(x), y, strict=True)) / count


def test_no_expert_is_born_while_data_is_familiar(grown):
    teach(grown, "ab", 200, seed=1)
    assert len(grown.experts) == 1
    assert len(grown.short_term) == 0
    assert grown._counts.tolist() == pytest.approx([240], abs=1)
    assert accuracy(grown, "ab") > 0.95


def test_an_expert_is_born_when_as_much_foreign_data_came_as_the_short_term_memory_holds(grown):
    teach(grown, "cd", 30, seed=1)
    assert (len(grown.experts), len(grown.short_term)) == (1, 30)
    teach(grown, "cd", 10, seed=2)
    assert (len(grown.experts), len(grown.short_term)) == (2, 0)
    assert grown._counts.tolist() == pytest.approx([40, 40], abs=1)
    teach(grown, "abcd", 80, seed=3)
    assert len(grown.experts) == 2
    assert accuracy(grown, "abcd") > 0.9


def test_known_samples_under_each_others_labels_are_foreign(grown):
    teach(grown, "ab", 40, seed=3)
    x, y = blobs("ab", 20, seed=1)
    grown.observe(x, [{"a": "b", "b": "a"}[label] for label in y])
    assert len(grown.short_term) == 20


def test_a_later_expert_leaves_the_earlier_ones_as_they_were(grown):
    before = [part.clone() for part in grown.experts[0].parameters()]
    teach(grown, "cd", 40, seed=1)
    assert len(grown.experts) == 2
    assert all(torch.equal(a, b) for a, b in zip(before, grown.experts[0].parameters(), strict=True))


def test_samples_that_still_wait_take_part_in_predictions(grown):
    teach(grown, "c", 5, seed=1)
    assert (len(grown.experts), len(grown.short_term)) == (1, 5)
    assert accuracy(grown, "abc") > 0.9


def test_as_published_waiting_samples_take_no_part_in_predictions():
    learner = CNDPM(seed=0, device="cpu", original=True, **SMALL)
    teach(learner, "ab", 40)
    teach(learner, "d", 5, seed=1, size=5)
    assert (len(learner.experts), len(learner.short_term)) == (1, 5)
    x, _ = blobs("d", 20, seed=9)
    assert "d" not in learner.predict(x)


def test_as_published_what_is_left_of_a_batch_waits_and_is_not_given_to_the_new_expert():
    x, y = blobs("ab", 60)
    original = CNDPM(seed=0, device="cpu", original=True, **SMALL)
    original.observe(x, y)
    assert len(original.short_term) == 20
    assert original._counts.tolist() == [40]
    ours = CNDPM(seed=0, device="cpu", **SMALL)
    ours.observe(x, y)
    assert len(ours.short_term) < 20  # the expert explains what is left


def test_before_the_first_expert_what_waits_is_all_there_is():
    learner = CNDPM(seed=0, device="cpu", **SMALL)
    x, y = blobs("abcd", 8)
    learner.observe(x, y)
    assert learner.experts == []
    assert learner.predict(x) == y
    near = torch.stack([Normal(centre, 1.0).log_prob(x).sum(1) for centre in x], 1)  # [samples, waiting]
    whose = torch.tensor([[label == other for other in learner.classes] for label in y]).double()
    direct = near.double().softmax(1) @ whose
    assert torch.allclose(torch.from_numpy(learner.predict_proba(x)).double(), direct, atol=1e-5)


def test_a_batch_that_is_larger_than_the_short_term_memory_never_overfills_it():
    learner = CNDPM(seed=0, device="cpu", **SMALL)
    x, y = blobs("ab", 300)
    learner.observe(x, y)
    assert len(learner.experts) == 1  # the first 40; all others are familiar to it, or wait
    assert learner._counts.sum() + len(learner.short_term) == pytest.approx(300, abs=1)
    assert learner.footprint()["short-term memory"] == 40 * 6 * 4 + 40 * 8


# What the mixture computes, one number at a time.


def direct_bound(expert, features, x, noise):
    """E_q[log p(x | z)] − KL(q ‖ p) of one sample, by torch's distributions."""
    mean, log_variance = expert.generative.posterior(features).chunk(2)
    posterior = Normal(mean, (log_variance / 2).exp())
    fits = [
        Normal(expert.generative.decoder.layers((mean + posterior.stddev * e)[None])[0], 1.0)
        .log_prob(x)
        .sum()
        for e in noise
    ]
    return sum(fits) / len(fits) - kl_divergence(posterior, Normal(torch.zeros(3), torch.ones(3))).sum()


def columns(expert, x, before):
    """The two hidden layers of the expert's encoder and of its classifier, each beside those before."""
    after = []
    for column, earlier in zip((expert.generative.encoder, expert.discriminative.body), before, strict=True):
        first = torch.cat([earlier[0], column.stages[0][1](x).relu()])
        after.append((first, torch.cat([earlier[1], column.stages[1][0](first).relu()])))
    return after


def test_responsibilities_and_predictions_are_those_of_the_mixture(grown):
    teach(grown, "cd", 40, seed=1)
    noise = torch.randn(4, 1, 3)
    x, y = blobs("abcd", 8, seed=5)
    slots = torch.tensor(grown.labels.slots(y))
    joint, scores = torch.zeros(8, 3), torch.zeros(8, 2, 4)
    with torch.no_grad():
        for i in range(8):
            nothing = torch.zeros(0)
            before = [(nothing, nothing), (nothing, nothing)]
            joint[i, 0] = -400 + Normal(torch.zeros(6), 1.0).log_prob(x[i]).sum() - math.log(4)
            for k, expert in enumerate(grown.experts):
                before = columns(expert, x[i], before)
                bound = direct_bound(expert, before[0][1], x[i], noise[:, 0])
                classes = expert.discriminative.head(before[1][1]).log_softmax(0)
                classes = torch.cat([classes, torch.full((4 - len(classes),), -1e4)])
                prior = math.log(grown._counts[k])
                joint[i, k + 1] = prior + bound + (classes / ASSIGNMENT_TEMPERATURE).log_softmax(0)[slots[i]]
                scores[i, k] = prior + bound + classes
        own = (joint.argmax(1) > 0)[:, None]
        expected = joint[:, 1:].softmax(1) * own
        assert own.any()
        grown._noise = lambda seed, samples: noise
        torch.testing.assert_close(grown.scores(x), scores.logsumexp(1), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(grown.step(x, slots, noise), expected, rtol=1e-4, atol=1e-4)


def test_awake_an_expert_makes_a_step_of_adam_on_what_it_is_responsible_for():
    learner = CNDPM(seed=0, device="cpu", **SMALL, awake_factor=0.5)
    teach(learner, "ab", 40)
    x, y = blobs("ab", 10, seed=5)
    slots, noise = torch.tensor(learner.labels.slots(y)), torch.randn(4, 1, 3)
    slots[3] = 1 - slots[3]  # so that nobody explains it
    expert, adams = learner.experts[0], learner._optimisers[0]
    bounds, classes = learner.network.log_probabilities(x, noise, 2)
    theirs = [i for i in range(10) if i != 3]
    loss = -(bounds[theirs, 0] + classes[theirs, 0, slots[theirs]]).sum()
    expected, clipped = [], 0
    for part, adam, rate in zip((expert.generative, expert.discriminative), adams, (0.01, 0.01), strict=True):
        weights = list(part.parameters())
        slopes = torch.cat([g.flatten() for g in torch.autograd.grad(loss, weights, retain_graph=True)])
        clipped += int((slopes.abs() > 0.5).sum())
        slopes = slopes.clamp(-0.5, 0.5)  # and no squared weights are added
        state = adam.state()
        first = 0.9 * state["first"] + 0.1 * slopes
        second = 0.999 * state["second"] + 0.001 * slopes**2
        age = int(state["ages"][0]) + 1
        down = (first / (1 - 0.9**age)) / ((second / (1 - 0.999**age)).sqrt() + 1e-8)
        expected.append(torch.cat([w.detach().flatten() for w in weights]) - 0.5 * rate * down)
    assert clipped
    responsibilities = learner.step(x, slots, noise)
    assert responsibilities[:, 0].tolist() == [float(i != 3) for i in range(10)]
    for part, moved in zip((expert.generative, expert.discriminative), expected, strict=True):
        weights = torch.cat([w.detach().flatten() for w in part.parameters()])
        torch.testing.assert_close(weights, moved, rtol=1e-4, atol=1e-6)


def test_what_a_later_expert_learns_never_reaches_an_earlier_one(grown):
    teach(grown, "cd", 40, seed=1)
    bounds, classes = grown.network.log_probabilities(blobs("abcd", 8)[0], torch.randn(4, 1, 3), 4)
    earlier = list(grown.experts[0].parameters())
    for said in (bounds[:, 1], classes[:, 1]):
        slopes = torch.autograd.grad(said.sum(), earlier, retain_graph=True, allow_unused=True)
        assert not any(slope is not None and slope.any() for slope in slopes)


# State, networks and errors.


def test_a_run_resumed_before_a_growth_goes_on_as_if_it_had_not_stopped(grown, tmp_path):
    teach(grown, "cd", 20, seed=1)
    grown.save(tmp_path / "half")
    other = load(tmp_path / "half", device="cpu")
    fresh = CNDPM(seed=3, device="cpu", **SMALL)
    fresh.load_state_dict(grown.state_dict())
    for learner in (grown, other, fresh):
        teach(learner, "cd", 40, seed=2)
        teach(learner, "abcd", 40, seed=4)
    assert len(grown.experts) == len(other.experts) == 2
    states = [learner.state_dict() for learner in (grown, other, fresh)]
    assert states[0].keys() == states[1].keys() == states[2].keys()
    for key in states[0]:
        if key != "meta":
            assert torch.equal(states[0][key], states[1][key]), key
            assert torch.equal(states[0][key], states[2][key]), key


def test_a_state_with_more_experts_than_the_learner_has_now_or_fewer_is_taken_up(grown):
    early = grown.state_dict()
    teach(grown, "cd", 40, seed=1)
    late = grown.state_dict()
    grown.load_state_dict(early)
    assert len(grown.experts) == 1
    grown.load_state_dict(late)
    assert len(grown.experts) == 2
    assert accuracy(grown, "abcd") > 0.9


def test_a_snapshot_stays_as_it_is_when_an_expert_is_born(grown):
    still = grown.snapshot()
    x, _ = blobs("ab", 20, seed=9)
    before = still.predict_proba(x)
    teach(grown, "cd", 50, seed=1)
    assert (still.predict_proba(x) == before).all()
    assert still.classes == ["a", "b"]


def test_the_footprint_grows_with_the_experts(grown):
    first = grown.footprint()
    parameters = sum(part.numel() for part in grown.experts[0].parameters())
    assert first["experts"] == 4 * parameters
    assert first["optimisers"] == 2 * 4 * parameters
    teach(grown, "cd", 40, seed=1)
    assert grown.footprint()["experts"] > first["experts"]


def test_experts_of_images_are_convolutional():
    settings = SMALL | {"short_term_memory": 4, "generative_steps": 2, "discriminative_steps": 2}
    learner = CNDPM("slim-resnet18", seed=0, device="cpu", **settings)
    for label in "abc":
        x = torch.randint(
            0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
        )
        learner.observe(x, [label] * 4)
    assert len(learner.experts) >= 2
    assert sum(isinstance(part, nn.Conv2d) for part in learner.experts[1].modules()) > 5
    assert learner.predict_proba(x).shape == (4, len(learner.classes))


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 18, 18)])
def test_images_that_the_experts_cannot_take_are_refused_in_a_sentence(shape):
    learner = CNDPM("slim-resnet18", device="cpu")
    with pytest.raises(ValueError, match="at least 16 x 16 whose sides are multiples of 4, not"):
        learner.observe(torch.zeros(2, *shape, dtype=torch.uint8), [0, 1])
    assert learner.classes == []
    assert learner.network is None


@pytest.mark.parametrize("name", ["draws", "latent", "short_term_memory", "generative_steps"])
def test_settings_that_make_no_sense_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        CNDPM(**{name: 0})
