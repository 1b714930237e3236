"""SCR's step and its nearest means, written out."""

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches

from everlearn.learners.scr import SCR


def small(normed=False, **settings):
    return SCR(
        body(normed),
        device="cpu",
        learning_rate=0.1,
        projection=4,
        clip=None,
        **{"memory_size": 6} | settings,
    )


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_a_step_is_on_the_supervised_contrastive_loss_of_samples_and_views(normed):
    learner = small(normed, temperature=0.3)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches()):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
        ((old_rows, old_slots),) = draws
        both, owners = torch.cat([rows[old_rows], x]), [*old_slots.tolist(), *slots.tolist()] * 2
        projected = torch.cat([unit(slow(both)), unit(slow(both))])  # a view of a row is the row itself
        losses = []
        for i, own in enumerate(owners):
            others = [j for j in range(len(owners)) if j != i]
            normaliser = torch.stack([projected[i] @ projected[j] / 0.3 for j in others]).logsumexp(0)
            positives = [j for j in others if owners[j] == own]
            losses.append(
                sum(normaliser - projected[i] @ projected[j] / 0.3 for j in positives) / len(positives)
            )
        (sum(losses) / len(losses)).backward()
        optimiser.step()
        same_weights(learner.network, slow)


def test_predictions_are_by_the_nearest_mean_of_the_exemplars_at_unit_length():
    learner = small(memory_size=12)
    for x, y in some_batches(sizes=(6, 6, 6)):
        learner.observe(x, y)
    exemplars, labels = learner.memory.samples()
    features = unit(learner.embed(exemplars))
    means = {}
    for label in learner.classes:
        means[label] = unit(
            torch.stack([f for f, own in zip(features, labels, strict=True) if own == label]).mean(0)
        )
    x = torch.randn(9, 3)
    nearest = [min(means, key=lambda c: (f - means[c]).square().sum().item()) for f in unit(learner.embed(x))]
    assert learner.predict(x) == nearest


def test_a_class_without_exemplars_is_not_predicted():
    learner = small(memory_size=3)
    learner.observe(torch.randn(3, 3), ["a", "b", "a"])
    learner.memory._slots[:3] = 0
    learner.invalidate()
    assert set(learner.predict(torch.randn(20, 3))) == {"a"}
    assert learner.predict_proba(torch.randn(4, 3))[:, 1].tolist() == [0, 0, 0, 0]


def test_means_are_computed_once_until_something_is_learnt():
    learner = small()
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    learner.predict(torch.randn(2, 3))
    means = learner._means
    learner.predict(torch.randn(2, 3))
    assert learner._means is means and learner.footprint()["means"] == means.nbytes
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    assert learner._means is None
