"""PCR's step, anchor by anchor and proxy by proxy."""

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches

from everlearn.learners.pcr import PCR


def cosine(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_a_step_is_a_cross_entropy_over_the_proxies_of_the_samples_in_the_batch(normed):
    learner = PCR(body(normed), device="cpu", learning_rate=0.1, memory_size=6, temperature=0.2, clip=None)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches()):
        optimiser = torch.optim.SGD([part for part in slow.parameters() if part.requires_grad], lr=0.1)
        ((old_rows, old_slots),) = draws
        # No views of rows: each sample comes twice. B_n and B_M pass the network one after the other.
        new = slow.body(torch.cat([x, x]))
        old = slow.body(torch.cat([rows[old_rows]] * 2))
        features, owners = torch.cat([old, new]), [*old_slots.tolist() * 2, *slots.tolist() * 2]
        losses = []
        for anchor, own in zip(features, owners, strict=True):
            similarities = [cosine(anchor, slow.head.weight[other]) / 0.2 for other in owners]
            normaliser = torch.stack(similarities).logsumexp(0)
            positives = [s for s, other in zip(similarities, owners, strict=True) if other == own]
            losses.append(sum(normaliser - s for s in positives) / len(positives))
        (sum(losses) / len(losses)).backward()
        optimiser.step()
        same_weights(learner.network, slow)


def test_proxies_of_absent_classes_stay():
    learner = PCR(body(), device="cpu", learning_rate=0.1, memory_size=3)
    learner.observe(torch.randn(6, 3), [0, 1, 2, 2, 1, 0])
    before = learner.network.head.weight.clone()
    nothing = torch.zeros(2, 0, 3), torch.zeros(0, dtype=torch.int64)
    learner.step(torch.randn(2, 2, 3), torch.tensor([0, 2]), *nothing)
    assert (learner.network.head.weight != before).any(1)[:3].tolist() == [True, False, True]


def test_predictions_are_by_the_largest_cosine():
    learner = PCR(body(), device="cpu", memory_size=6, temperature=0.5)
    for x, y in some_batches():
        learner.observe(x, y)
    x = torch.randn(5, 3)
    features = learner.embed(x)
    expected = [
        max(range(3), key=lambda c: cosine(f, learner.network.head.weight[c]).item()) for f in features
    ]
    assert learner.predict(x) == [learner.classes[slot] for slot in expected]


def test_images_are_shown_beside_a_view_of_each():
    learner = PCR("slim-resnet18", device="cpu", memory_size=8, augmentation="strong")
    met = []
    original = learner.step
    learner.step = lambda *parts: met.append(parts) or original(*parts)
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    for _ in range(2):
        learner.observe(images, [0, 1, 2, 3])
    x, _, old, _ = met[-1]
    assert x.shape == old.shape == (2, 4, 3, 8, 8)
    assert torch.equal(x[0], images / 255)
    assert not torch.equal(x[1], x[0])
    assert x.min() >= 0 and x.max() <= 1


def test_a_temperature_of_zero_is_refused():
    with pytest.raises(ValueError, match="temperature must be above 0, not 0"):
        PCR(temperature=0.0)
