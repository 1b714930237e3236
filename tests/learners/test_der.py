"""DER++ against its three terms written out, with logits remembered in a dict."""

import pytest
import torch
from replayed_steps import body, same_weights, some_batches, watched_batches

from everlearn.checkpoint import CheckpointError
from everlearn.learners.der import DERPlusPlus


def small(normed=False, **settings):
    return DERPlusPlus(
        body(normed), device="cpu", learning_rate=0.1, clip=None, **{"memory_size": 6} | settings
    )


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("outputs", [0, 4], ids=["growing", "all outputs"])
def test_a_step_adds_the_batch_the_distance_to_stored_logits_and_the_rehearsal(normed, outputs):
    learner = small(normed, distillation=0.3, rehearsal=0.7, outputs=outputs)
    said = {}  # of each sample by its values: its logits when it came

    def remember(x, logits, classes):
        said.update(
            {tuple(sample.tolist()): row[:classes].detach() for sample, row in zip(x, logits, strict=True)}
        )

    batches = list(some_batches(sizes=(4, 5, 3, 6, 4), labels=4))
    for i, (x, slots, draws, rows, slow) in enumerate(
        watched_batches(started(learner, batches[0]), batches[1:])
    ):
        if i == 0:
            remember(batches[0][0], learner.first_logits, outputs or len(set(batches[0][1])))
        classes = outputs or len(learner.classes)
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
        ((both, old_slots, distilled),) = draws
        half = len(distilled)
        assert torch.equal(both[:half], distilled)
        new = slow(x)
        loss = torch.nn.functional.cross_entropy(new[:, :classes], slots)
        squares = [
            (logit - then).square()
            for sample, now in zip(rows[distilled], slow(rows[distilled]), strict=True)
            for logit, then in zip(now, said[tuple(sample.tolist())], strict=False)
        ]
        loss += 0.3 * torch.stack(squares).mean()
        again = slow(rows[both[half:]])[:, :classes]
        loss += 0.7 * torch.nn.functional.cross_entropy(again, old_slots[half:])
        loss.backward()
        optimiser.step()
        remember(x, new, classes)
        if len(slow.head.weight) == len(learner.network.head.weight):
            same_weights(learner.network, slow)


def started(learner, batch):
    """The learner after its first batch, with the logits it gave for it in `first_logits`."""
    original = learner.step
    learner.step = lambda *parts: setattr(learner, "first_logits", original(*parts)) or learner.first_logits
    learner.observe(*batch)
    del learner.step
    return learner


def test_classes_that_were_not_known_when_an_exemplar_came_are_not_distilled():
    learner = small(distillation=1.0, rehearsal=0.0)
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    learner.observe(torch.randn(2, 3), [2, 2])
    assert learner._known[: len(learner.memory)].tolist() == [2, 2, 2, 2, 3, 3]


def test_stored_logits_move_with_their_exemplars_when_a_class_is_forgotten():
    learner = small()
    for x, y in some_batches(sizes=(6, 6, 6)):
        learner.observe(x, y)
    rows, slots = learner.memory.kept()
    stays = slots != 1
    expected = learner._stored[rows[stays]][:, [0, 2]]
    learner.forget(learner.classes[1])
    assert torch.equal(learner._stored[: stays.sum(), :2], expected)
    assert learner._known.max() == 2


def test_after_a_merge_every_exemplar_has_the_logits_of_the_network():
    first, second = small(), small()
    for learner, seed in ((first, 1), (second, 2)):
        for x, y in some_batches(seed=seed):
            learner.observe(x, y)
    first.merge(second)
    x = first.memory.samples()[0]
    first.network.eval()
    torch.testing.assert_close(first._stored[first.memory.kept()[0]], first.network(x))


def test_a_state_without_the_logits_of_every_exemplar_is_refused():
    learner = small()
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    state = learner.state_dict()
    state["stored"] = state["stored"][:2]
    with pytest.raises(CheckpointError, match=r"the stored logits are \[2, 16\], expected \[4, 16\]"):
        learner.load_state_dict(state)


def test_the_footprint_counts_the_logits():
    learner = small()
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    assert learner.footprint()["logits"] == 7 * 16 * 4 + 7 * 8
