"""MKD's step and its teacher, weight by weight."""

import copy

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches
from torch.nn.functional import cross_entropy

from everlearn.learners.mkd import MKD


def small(normed=False, **settings):
    options = {"memory_size": 8, "teacher_rate": 0.1, "distillation": 2.0, "temperature": 3.0, "clip": None}
    return MKD(body(normed), device="cpu", learning_rate=0.05, **options | settings)


def divergence(logits, taught):
    """T² Σ q log(q / p), the mean over samples."""
    p, q = (logits / 3).softmax(1), (taught / 3).softmax(1)
    return 9 * (q * (q.log() - p.log())).sum(1).mean()


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_a_step_is_on_the_labels_and_on_what_the_teacher_says(normed):
    learner = small(normed)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    teacher = copy.deepcopy(learner._teacher)
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches((4, 5, 3, 6))):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
        old_rows, old_slots, corrected = draws[0]
        both, owners = torch.cat([x, rows[old_rows]]), torch.cat([slots, old_slots])
        taught = teacher(both)[
            :, :3
        ].detach()  # in training mode: batch norm takes the statistics of the batch
        logits, plain = slow(both)[:, :3], slow(both)[:, :3]
        loss = (
            cross_entropy(logits, owners) + 2 * (divergence(logits, taught) + divergence(plain, taught)) / 2
        )
        loss.backward()
        optimiser.step()
        same_weights(learner.network, slow)
        with torch.no_grad():
            for mine, theirs in zip(teacher.parameters(), slow.parameters(), strict=True):
                mine.copy_(0.9 * mine + 0.1 / (1 - 0.1 ** corrected.item()) * theirs)
        same_weights(learner._teacher, teacher)


def test_the_bias_of_the_teacher_is_corrected_in_tens_of_batches():
    learner = small(memory_size=30)
    corrections = []
    original = learner.draw_replay
    learner.draw_replay = lambda size: corrections.append(original(size)[2].item()) or original(size)
    for x, y in some_batches((3,) * 25):
        learner.observe(x, y)
    assert corrections == [1] * 20 + [2] * 5


def test_predictions_are_by_the_mean_of_both_weights_and_the_statistics_of_the_trained_network():
    learner = small(normed=True)
    for x, y in some_batches((4, 5, 3, 6)):
        learner.observe(x, y)
    mean = copy.deepcopy(learner.network).eval()
    with torch.no_grad():
        for part, mine, other in zip(
            mean.parameters(), learner.network.parameters(), learner._teacher.parameters(), strict=True
        ):
            part.copy_((mine + other) / 2)
    x = torch.randn(7, 3)
    expected = mean(x)[:, : len(learner.classes)].softmax(1)
    torch.testing.assert_close(torch.from_numpy(learner.predict_proba(x)), expected)
    assert learner.footprint()["teacher"] == sum(part.nbytes for part in learner._teacher.parameters())


def test_when_the_last_layer_grows_the_teacher_keeps_what_it_has():
    learner = small(memory_size=30)
    for x, y in some_batches((6, 6)):
        learner.observe(x, y)
    before = learner._teacher.head.weight[:3].clone()
    learner.labels.extend(range(3, 20))
    learner.open_classes(20)
    assert learner._teacher.head.out_features == learner.network.head.out_features == 32
    assert torch.equal(learner._teacher.head.weight[:3], before)
