"""iCaRL: herding against exhaustive search, its losses and its predictions by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from everlearn import load, run, stream
from everlearn.experiments.settings import learner as by_name
from everlearn.learners.icarl import ICaRL
from everlearn.memory.herded import herd
from everlearn.streams.horizon import Horizon

both = pytest.mark.parametrize("original", [False, True])


def small(network="mlp", **settings):
    chosen = {"memory_size": 20, "hidden": 12, "learning_rate": 0.1, "standardise": False} | settings
    return ICaRL(network, device="cpu", seed=0, **chosen)


def teach(learner, tasks=(0, 1), batches=4, seed=0):
    """Two classes a task, 2t and 2t + 1, each around its own number."""
    generator = torch.Generator().manual_seed(seed)
    for t in tasks:
        for _ in range(batches):
            y = torch.tensor([2 * t, 2 * t + 1] * 3)
            learner.observe(torch.randn(6, 6, generator=generator) + 2.0 * y[:, None], y, t)
    return learner


def same_state(left, right):
    mine, theirs = left.state_dict(), right.state_dict()
    assert mine.keys() == theirs.keys()
    return all(
        mine[key] == theirs[key] if key == "meta" else torch.equal(mine[key], theirs[key]) for key in mine
    )


def unit(vector):
    return vector / vector.norm()


@both
def test_herding_takes_at_each_step_the_best_of_all_that_are_left(original):
    generator = torch.Generator().manual_seed(0)
    shape = unit if original else (lambda vector: vector)
    for samples, count in ((1, 1), (7, 4), (12, 12), (9, 20)):
        features = torch.randn(samples, 3, generator=generator, dtype=torch.float64) + 0.5
        if original:
            features = nn.functional.normalize(features)
        mean = shape(features.mean(0))
        expected: list[int] = []
        while len(expected) < min(count, samples):
            left = [i for i in range(samples) if i not in expected]
            distances = [(shape(features[[*expected, i]].mean(0)) - mean).norm() for i in left]
            expected.append(left[int(torch.stack(distances).argmin())])
        assert herd(features, count, original).tolist() == expected


def test_a_memory_is_shared_equally_and_an_old_list_keeps_its_first():
    learner = teach(small(), tasks=(0,))
    learner.end_horizon()
    first = {
        y: learner.memory.samples()[0][[label == y for label in learner.memory.samples()[1]]] for y in (0, 1)
    }
    assert learner.memory.counts() == {0: 10, 1: 10}
    teach(learner, tasks=(1,))
    learner.end_horizon()
    assert learner.memory.counts() == {0: 5, 1: 5, 2: 5, 3: 5}
    x, labels = learner.memory.samples()
    for y in (0, 1):
        assert torch.equal(x[[label == y for label in labels]], first[y][:5])


def test_the_exemplars_of_a_new_class_are_herded_from_all_that_came_of_it():
    learner = small(memory_size=6)
    x, y = torch.randn(20, 6), [0, 1] * 10
    for start in range(0, 20, 4):
        learner.observe(x[start : start + 4], y[start : start + 4], 0)
    learner.end_horizon()
    kept, labels = learner.memory.samples()
    for label in (0, 1):
        mine = x[label::2]
        expected = mine[herd(learner.embed(mine), 3)]
        assert torch.equal(kept[[other == label for other in labels]], expected)


def test_a_class_that_comes_again_is_herded_from_its_exemplars_and_what_came():
    learner = small(memory_size=8)
    learner.observe(torch.randn(3, 6), ["rare", "often", "often"], 0)
    learner.end_horizon()
    assert learner.memory.counts() == {"rare": 1, "often": 2}
    learner.observe(torch.randn(6, 6), ["rare"] * 6, 1)
    learner.end_horizon()
    assert learner.memory.counts() == {"rare": 4, "often": 2}


def test_another_t_ends_the_horizon_by_itself():
    ended, not_ended = (small() for _ in range(2))
    for t in (0, 1):
        teach(ended, tasks=(t,))
        ended.end_horizon()
        teach(not_ended, tasks=(t,))
    not_ended.end_horizon()
    assert same_state(ended, not_ended)


def test_a_batch_by_hand():
    """The mean cross-entropy of the batch, and the mean of each term of the divergence, by autograd and SGD."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    learner = teach(small(body, outputs=5, strength=3.0, iterations=2))
    learner.end_horizon()
    old_logits = learner._old_logits.clone()
    assert old_logits.shape == (20, 5)
    torch.testing.assert_close(old_logits, learner.network(learner.memory.samples()[0]).detach())
    draws = []
    original = learner.memory.draw_of_each
    learner.memory.draw_of_each = lambda: draws.append(original()) or draws[-1]
    slow = copy.deepcopy(learner.network)
    optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
    exemplars = learner.memory.samples()[0]
    x, y = torch.randn(4, 6), [3, 4, 4, 0]
    learner.observe(x, y, 2)
    assert [slots.tolist() for _, slots in draws] == [[0, 1, 2, 3]] * 2
    for rows, _ in draws:
        then = old_logits[rows].softmax(1)
        divergence = (then * (then.log() - slow(exemplars[rows]).log_softmax(1))).mean()
        optimiser.zero_grad()
        (cross_entropy(slow(x), torch.tensor(y)) + 3.0 * divergence).backward()
        optimiser.step()
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_batch_of_the_original_by_hand():
    """Each output against the old network's sigmoid if it was known, else against its label; exemplars join in."""
    torch.manual_seed(0)
    learner = teach(small(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), original=True))
    learner.end_horizon()
    old, slow = copy.deepcopy(learner.network), copy.deepcopy(learner.network)
    exemplars = learner.memory.samples()[0]
    optimiser = torch.optim.SGD(slow.parameters(), lr=0.1)
    draws = []
    original = learner.memory.draw
    learner.memory.draw = lambda count: draws.append(original(count)) or draws[-1]
    for y in ([4, 5, 4, 5], [5, 5, 4]):
        x = torch.randn(len(y), 6)
        learner.observe(x, y, 2)
        rows, slots = draws.pop()
        assert len(rows) == len(y)
        joint, labels = torch.cat([x, exemplars[rows]]), [*y, *slots.tolist()]
        outputs, targets = slow(joint)[:, :6].sigmoid(), old(joint)[:, :6].sigmoid().detach()
        for row, label in enumerate(labels):
            for new in (4, 5):
                targets[row, new] = float(label == new)
        loss = -(targets * outputs.log() + (1 - targets) * (1 - outputs).log()).sum() / len(joint)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@both
def test_predictions_by_hand(original):
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh())
    learner = teach(small(body, original=original))
    learner.end_horizon()
    teach(learner, tasks=(2,), batches=1)  # the network goes on; classes 4 and 5 have no exemplars yet
    network = copy.deepcopy(learner.network).eval()

    def features(x):
        return nn.functional.normalize(network.body(x)) if original else network(x)[:, :6]

    exemplars, labels = learner.memory.samples()
    x = torch.randn(30, 6) + 4
    means = [features(exemplars)[[label == y for label in labels]].mean(0) for y in range(4)]
    means = [unit(mean) for mean in means] if original else means
    distances = torch.stack([(features(x) - mean).norm(dim=1) for mean in means], 1).detach()
    assert learner.predict(x) == distances.argmin(1).tolist()
    probabilities = torch.from_numpy(learner.predict_proba(x))
    torch.testing.assert_close(probabilities[:, :4], (-distances).softmax(1), rtol=1e-4, atol=1e-5)
    assert not probabilities[:, 4:].any()
    assert learner.snapshot().predict(x) == learner.predict(x)


def test_before_anything_is_herded_the_classes_seen_are_equally_likely():
    learner = teach(small(), tasks=(0,))
    assert (learner.predict_proba(torch.randn(3, 6)) == 0.5).all()
    assert (learner.snapshot().predict_proba(torch.randn(3, 6)) == 0.5).all()


def test_the_horizon_costs_what_the_footprint_says_until_it_ends():
    learner = teach(small(), tasks=(0,))
    assert learner.footprint()["horizon"] >= 24 * 6 * 4
    learner.end_horizon()
    assert learner.footprint() == {
        "replay": learner.memory.nbytes(),
        "logits": 20 * 2 * 4,
        "horizon": 0,
    }
    assert learner.memory.nbytes() == 21 * 6 * 4 + 20 * 8


@both
@pytest.mark.parametrize("stop", [3, 4, 6])
def test_it_resumes_bit_identical_within_and_between_tasks(original, stop, tmp_path):
    def batches():
        generator = torch.Generator().manual_seed(0)
        for i in range(12):
            y = [9 * (i // 4) + j for j in range(9)]  # the last layer grows, too
            yield torch.randn(9, 6, generator=generator), y, i // 4

    whole, first = (small(memory_size=60, original=original) for _ in range(2))
    for i, batch in enumerate(batches()):
        whole.observe(*batch)
        if i < stop:
            first.observe(*batch)
    if stop == 4:
        first.end_horizon()  # as a run does, before the next task is met
    first.save(tmp_path / "state")
    second = load(tmp_path / "state", device="cpu")
    for batch in list(batches())[stop:]:
        second.observe(*batch)
    assert same_state(whole, second)


@both
def test_a_class_can_be_forgotten_once_the_horizon_is_over(original):
    learner = small(memory_size=20, original=original)
    learner.observe(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)), [0, 1, 2] * 2, 0)
    learner.end_horizon()
    learner.forget(1)
    assert learner.classes == [0, 2]
    assert learner.memory.counts() == {0: 2, 2: 2}
    learner.observe(torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), [1, 3] * 2, 1)
    assert learner.classes == [0, 2, 1, 3]


@both
def test_after_a_run_the_last_task_has_exemplars_too(original):
    source = stream("split-digits", seed=0)
    learner = by_name("icarl", source, seed=0, device="cpu", original=original)
    result = run(learner, source)
    assert learner.memory.counts() == dict.fromkeys(range(10), 20)
    assert learner.footprint()["horizon"] == 0
    assert result.accuracy > 0.6


def test_a_task_can_be_passed_over_again():
    source = stream("split-digits", seed=0)
    learner = by_name("icarl", source, seed=0, device="cpu")
    run(learner, source, horizon=Horizon("task", epochs=2))
    assert learner.samples == source.samples
    assert learner.memory.counts() == dict.fromkeys(range(10), 20)
