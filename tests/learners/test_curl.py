"""CURL: components, the copy, and what it generates."""

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli, Categorical, Normal, kl_divergence

from everlearn import Horizon, load, run, stream
from everlearn.learners.curl import CURL
from everlearn.streams.datasets import load as dataset

SMALL = {"hidden": 12, "latent": 2, "learning_rate": 0.01}


def task(labels, count=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = [labels[i % len(labels)] for i in range(count)]
    return torch.randint(0, 256, (count, 5), dtype=torch.uint8, generator=generator), y


def test_the_loss_is_that_of_the_model_one_sample_at_a_time():
    learner = CURL(seed=0, device="cpu", **SMALL)
    x, y = task("abc")
    learner.observe(x, y, 0)
    slots = torch.tensor(learner.labels.slots(y))
    seen = (x / 255 > 0.5).float()
    noise = torch.randn(1, 20, 2)
    model = learner.network
    with torch.no_grad():
        losses = learner.loss(seen, slots, noise)
        for i in range(20):
            features = model.body(seen[i : i + 1])[0]
            own = model.components[slots[i]]
            mean, spread = own.posterior(features).chunk(2)
            posterior = Normal(mean, (torch.nn.functional.softplus(spread) + 1e-6).sqrt())
            mean, spread = own.prior.chunk(2)
            prior = Normal(mean, (torch.nn.functional.softplus(spread) + 1e-6).sqrt())
            z = posterior.mean + posterior.stddev * noise[0, i]
            fit = Bernoulli(logits=model.decoder.layers(z[None])[0]).log_prob(seen[i]).sum()
            logits = torch.cat([component.logit(features) for component in model.components])
            chosen = Categorical(logits=logits).log_prob(slots[i])
            expected = -fit + kl_divergence(posterior, prior).sum() - chosen
            assert losses[i].item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_component_comes_with_its_class_and_a_copy_with_the_next_task():
    learner = CURL(seed=0, device="cpu", **SMALL)
    learner.observe(*task("ab"), 0)
    assert len(learner.network.components) == 2
    assert learner.copy is None
    assert learner.footprint()["copy"] == 0
    learner.observe(*task("abc"), 0)
    assert len(learner.network.components) == 3
    assert learner.copy is None
    learner.observe(*task("de"), 1)
    assert len(learner.network.components) == 5
    assert learner.copy.counts.tolist() == [17, 17, 6]
    decoder = sum(part.nbytes for part in learner.network.decoder.parameters())
    assert learner.footprint()["copy"] == decoder + 4 * 3 * (2 + 2 + 1)


def test_the_copy_stays_as_it_was_while_the_model_learns_and_is_taken_anew_with_each_task():
    learner = CURL(seed=0, device="cpu", **SMALL)
    learner.observe(*task("ab"), 0)
    learner.observe(*task("cd"), 1)
    before = [part.clone() for part in (*learner.copy.decoder.parameters(), *learner.copy.priors)]
    learner.observe(*task("cd", seed=1), 1)
    learner.revisit(*task("cd", seed=2), 1)
    after = [*learner.copy.decoder.parameters(), *learner.copy.priors]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    model = [part.clone() for part in learner.network.decoder.parameters()]
    learner.observe(*task("ef"), 2)
    assert all(torch.equal(a, b) for a, b in zip(model, learner.copy.decoder.parameters(), strict=True))


def test_classes_are_generated_as_often_as_they_came():
    learner = CURL(seed=0, device="cpu", **SMALL)
    learner.observe(*task("aaab", 40), 0)
    learner.observe(*task("c", 4), 1)
    x, slots = learner.copy.generate(4000, torch.Generator().manual_seed(0))
    assert x.shape == (4000, 5)
    assert np.bincount(slots.numpy()) / 4000 == pytest.approx([0.75, 0.25], abs=0.03)


def test_what_is_generated_is_recognised_by_a_classifier_trained_elsewhere():
    from sklearn.linear_model import LogisticRegression

    source = stream("split-digits", seed=0, batch_size=20)
    learner = CURL(seed=0, device="cpu", hidden=100, latent=8, learning_rate=3e-3)
    run(learner, source, horizon=Horizon("task", epochs=20), samples=600)
    digits = dataset("digits")
    judge = LogisticRegression(max_iter=500).fit(digits.x_train.reshape(-1, 64) > 127, digits.y_train)
    x, slots = learner.copy.generate(500, torch.Generator().manual_seed(0))
    truth = np.array(learner.classes)[slots.numpy()]
    assert set(truth.tolist()) == {0, 1, 2, 3}
    recognised = judge.predict(x.numpy() > 0.5) == truth
    assert all(recognised[truth == label].mean() > 0.5 for label in range(4))
    assert recognised.mean() > 0.8


def test_replay_is_why_old_classes_are_remembered():
    def accuracy(copies):
        source = stream("split-digits", seed=0, batch_size=20)
        learner = CURL(seed=0, device="cpu", hidden=100, latent=8)
        if not copies:
            learner._take_copy = lambda: None
        return run(learner, source, horizon=Horizon("task", epochs=6)).accuracy

    assert accuracy(copies=True) > accuracy(copies=False) + 0.3


def test_a_run_resumed_between_two_tasks_goes_on_as_if_it_had_not_stopped(tmp_path):
    learner = CURL(seed=0, device="cpu", **SMALL)
    learner.observe(*task("ab"), 0)
    learner.observe(*task("cd"), 1)
    learner.observe(*task("de"), 1)
    learner.save(tmp_path / "half")
    other = load(tmp_path / "half", device="cpu")
    for one in (learner, other):
        one.observe(*task("cd", seed=3), 1)
        one.observe(*task("fg", seed=4), 2)
        one.revisit(*task("ag", seed=5), 2)
    states = learner.state_dict(), other.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0] if key != "meta")


def test_grey_images_become_black_and_white():
    x = torch.randint(0, 256, (6, 8, 8), dtype=torch.uint8)
    sharp = torch.where(x > 127, 255, 0).to(torch.uint8)
    grey, black = (CURL("mlp", hidden=8, latent=2, seed=0, device="cpu") for _ in range(2))
    for task in (0, 1):
        grey.observe(x, list("abcabc") if task else list("ababab"), task)
        black.observe(sharp, list("abcabc") if task else list("ababab"), task)
    states = grey.state_dict(), black.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0] if key != "meta")
    as_it_came = CURL("mlp", hidden=8, latent=2, seed=0, device="cpu", binarised=False)
    as_it_came.observe(x, list("ababab"), 0)
    assert not torch.equal(as_it_came.embed(x), grey.embed(x))


def test_images_in_colour_are_left_as_they_are():
    learner = CURL("slim-resnet18", seed=0, device="cpu", latent=4, binarised=False)
    x = torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8)
    assert torch.equal(learner._preprocess(x / 255), x / 255)
    learner.observe(x, [0, 1, 0, 1], 0)
    learner.observe(x, [2, 3, 2, 3], 1)
    generated, _ = learner.copy.generate(3, torch.Generator().manual_seed(0))
    assert generated.shape == (3, 3 * 16 * 16)
    assert 0 < generated.min() < generated.max() < 1
    with pytest.raises(ValueError, match="images whose sides are multiples of 4, not"):
        CURL("slim-resnet18", device="cpu").observe(torch.zeros(2, 3, 18, 18, dtype=torch.uint8), [0, 1], 0)


def test_the_latent_vector_must_have_a_size():
    with pytest.raises(ValueError, match="latent must be at least 1, not 0"):
        CURL(latent=0)
