"""A validation part of the training samples stands in for the test set."""

import torch

from everlearn import stream


def rows(x):
    return {sample.numpy().tobytes() for sample in x}


def test_a_tenth_of_the_training_samples_is_held_out_and_the_test_set_is_out_of_sight():
    whole, chosen = stream("split-digits", seed=3), stream("split-digits", seed=3, validation=True)
    held_out = torch.cat([x for x, _ in chosen.tests])
    sent = torch.cat([batch.x for batch in chosen])
    training = torch.cat([batch.x for batch in whole])
    assert len(held_out) + len(sent) == len(training)
    assert 0.09 < len(held_out) / len(training) < 0.11
    assert rows(held_out) | rows(sent) == rows(training)
    assert not rows(held_out) & (rows(torch.cat([x for x, _ in whole.tests])) - rows(training))


def test_what_is_held_out_does_not_depend_on_the_seed_and_has_every_class():
    tests = [stream("split-digits", seed=seed, validation=True).tests for seed in (0, 1)]
    for (x, y), (other, _) in zip(*tests, strict=True):
        assert torch.equal(x, other)
        assert len(set(y.tolist())) == 2
