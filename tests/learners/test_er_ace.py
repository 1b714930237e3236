"""ER-ACE's step, sample by sample and logit by logit."""

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches

from everlearn.learners.er_ace import ERACE


def negative_log_probability(logits, among, slot):
    return torch.stack([logits[other] for other in among]).logsumexp(0) - logits[slot]


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_new_samples_are_compared_with_the_classes_of_their_batch_and_old_ones_with_all(normed):
    learner = ERACE(body(normed), device="cpu", learning_rate=0.1, memory_size=6, clip=None)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches()):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
        ((old_rows, old_slots),) = draws
        present, everything = sorted(set(slots.tolist())), range(len(learner.classes))
        new, old = slow(x), slow(rows[old_rows])
        loss = sum(negative_log_probability(new[i], present, y) for i, y in enumerate(slots)) / len(x)
        loss += sum(negative_log_probability(old[i], everything, y) for i, y in enumerate(old_slots)) / len(
            old
        )
        loss.backward()
        optimiser.step()
        same_weights(learner.network, slow)


def test_the_logits_of_absent_classes_get_no_gradient_from_new_samples():
    learner = ERACE(body(), device="cpu", learning_rate=0.1, memory_size=6)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2])
    before = learner.network.head.weight.clone()
    learner.step(
        torch.randn(3, 3), torch.tensor([0, 2, 2]), torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    )
    moved = (learner.network.head.weight != before).any(1)
    assert moved[:3].tolist() == [True, False, True]
