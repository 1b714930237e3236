"""CoPE itself: one batch by hand, and what its settings mean."""

import json

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from everlearn import CoPE, checkpoint, load, run, stream
from everlearn.losses import ppp_loss


def linear(seed=0):
    torch.manual_seed(seed)
    return nn.Linear(3, 2)


@pytest.mark.parametrize("renormalise", [True, False])
def test_two_batches_against_a_step_by_step_computation(renormalise):
    """A slow CoPE: loops over classes, autograd and plain SGD, with the same replay."""
    settings = {"learning_rate": 0.1, "temperature": 0.5, "momentum": 0.9, "renormalise": renormalise}
    learner = CoPE(linear(), memory_size=4, device="cpu", **settings)
    slow = linear()
    prototypes = {}
    draws = []
    original = learner.memory.draw
    learner.memory.draw = lambda count: draws.append(original(count)) or draws[-1]
    generator = torch.Generator().manual_seed(1)
    for labels in ([0, 1], [1, 2, 2]):
        x = torch.randn(len(labels), 3, generator=generator)
        fresh = torch.Generator()
        fresh.set_state(learner.generator.get_state())
        before = None if learner.memory.rows is None else learner.memory.rows.clone()
        learner.observe(x, labels)
        new = [label for label in dict.fromkeys(labels) if label not in prototypes]
        for label, vector in zip(new, torch.rand(len(new), 2, generator=fresh), strict=True):
            prototypes[label] = normalize(vector, dim=0)
        rows, slots = draws[-1]
        old = torch.empty(0, 3) if before is None else before[rows]
        joint, joint_labels = torch.cat([x, old]), labels + [learner.classes[slot] for slot in slots]
        features = normalize(slow(joint), dim=1)
        table = torch.stack(list(prototypes.values()))
        positions = torch.tensor([list(prototypes).index(label) for label in joint_labels])
        ppp_loss(features, positions, table, 0.5).backward()
        with torch.no_grad():
            for part in slow.parameters():
                part -= 0.1 * part.grad
                part.grad = None
        for label in prototypes:
            own = [f for f, y in zip(features.detach(), joint_labels, strict=True) if y == label]
            if own:
                moved = 0.9 * prototypes[label] + 0.1 * torch.stack(own).mean(0)
                prototypes[label] = moved / moved.norm() if renormalise else moved
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert list(learner.prototypes) == list(prototypes)
    for label, vector in prototypes.items():
        torch.testing.assert_close(learner.prototypes[label], vector)


def test_prototypes_that_learn_against_a_step_by_step_computation():
    """A slow version: cross-entropy over the prototypes by autograd, SGD for network and prototypes alike."""
    settings = {"memory_size": 4, "learning_rate": 0.1, "temperature": 0.5, "iterations": 2}
    learner = CoPE(linear(), learn_prototypes=True, device="cpu", **settings)
    slow, prototypes, draws = linear(), {}, []
    original = learner.memory.draw
    learner.memory.draw = lambda count: draws.append(original(count)) or draws[-1]
    generator = torch.Generator().manual_seed(1)
    for labels in ([0, 1], [1, 2, 2]):
        x = torch.randn(len(labels), 3, generator=generator)
        fresh = torch.Generator()
        fresh.set_state(learner.generator.get_state())
        before = None if learner.memory.rows is None else learner.memory.rows.clone()
        learner.observe(x, labels)
        new = [label for label in dict.fromkeys(labels) if label not in prototypes]
        for label, vector in zip(new, torch.rand(len(new), 2, generator=fresh), strict=True):
            prototypes[label] = normalize(vector, dim=0)
        for rows, slots in draws[-2:]:
            old = torch.empty(0, 3) if before is None else before[rows]
            joint, joint_labels = torch.cat([x, old]), labels + [learner.classes[slot] for slot in slots]
            table = torch.stack(list(prototypes.values())).requires_grad_()
            positions = torch.tensor([list(prototypes).index(label) for label in joint_labels])
            loss = cross_entropy(normalize(slow(joint), dim=1) @ table.T / 0.5, positions)
            *slopes, by_table = torch.autograd.grad(loss, [*slow.parameters(), table])
            with torch.no_grad():
                for part, slope in zip(slow.parameters(), slopes, strict=True):
                    part -= 0.1 * slope
                moved = normalize(table - 0.1 * by_table, dim=1)
            prototypes = dict(zip(prototypes, moved, strict=True))
    for ours, theirs in zip(learner.network.parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    for label, vector in prototypes.items():
        torch.testing.assert_close(learner.prototypes[label], vector)


def test_means_of_the_memory_are_used_for_as_many_batches_as_the_setting_says(tmp_path):
    learner = CoPE("mlp", memory_size=10, hidden=8, recalibrate=True, recalibrate_every=3, device="cpu")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 3, generator=generator)
    used = []
    for _ in range(5):
        learner.observe(torch.randn(4, 3, generator=generator), [0, 1, 2, 3])
        learner.predict(x)
        used.append(learner.prototype_memory.from_exemplars)
    assert used[0] is used[1] is used[2] is not used[3] is used[4]
    learner.save(tmp_path / "state")
    loaded = load(tmp_path / "state", device="cpu")
    assert (loaded.predict_proba(x) == learner.predict_proba(x)).all()
    learner.observe(torch.randn(1, 3, generator=generator), [4])
    assert learner.predict_proba(x).shape == learner.snapshot().predict_proba(x).shape == (8, 5)


@pytest.mark.parametrize("asked", [[], [0], [3, 4, 11], list(range(20))])
def test_means_for_several_batches_do_not_depend_on_when_somebody_asked(asked):
    def learnt(asked):
        learner = CoPE("mlp", memory_size=10, hidden=8, recalibrate=True, recalibrate_every=5, device="cpu")
        generator = torch.Generator().manual_seed(0)
        for batch in range(20):
            learner.observe(torch.randn(4, 3, generator=generator), [0, 1, 2, 3])
            if batch in asked:
                learner.predict(torch.ones(1, 3))
            if batch == 8:
                learner.alarm()
            if batch == 12:
                learner.forget(3)
        return learner

    x = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
    assert (learnt(asked).predict_proba(x) == learnt([19]).predict_proba(x)).all()


def test_a_batch_is_never_replayed_beside_itself():
    learner = CoPE("mlp", memory_size=10, hidden=4, embedding=3, device="cpu")
    met = []
    original = learner.step

    def step(x, slots, old, old_slots):
        met.append((x.clone(), old.clone()))
        return original(x, slots, old, old_slots)

    learner.step = step
    for start in range(0, 60, 4):
        learner.observe(torch.arange(start, start + 4).float()[:, None].expand(4, 2), [0, 1, 0, 1])
    assert len(met[0][1]) == 0
    for x, old in met[1:]:
        assert not set(x[:, 0].tolist()) & set(old[:, 0].tolist())


def test_with_several_iterations_the_prototypes_move_once_by_all_replays_and_the_last_features():
    learner = CoPE(linear(), memory_size=10, iterations=3, momentum=0.0, renormalise=False, device="cpu")
    learner.observe(torch.randn(4, 3), [0, 1, 0, 1])
    outcomes = []
    original = learner.step
    learner.step = lambda *args: outcomes.append((original(*args).clone(), args[3])) or outcomes[-1][0]
    learner.observe(torch.randn(2, 3), [0, 1])
    for slot in (0, 1):
        own = [
            f for features, slots in outcomes for f, s in zip(features[2:], slots, strict=True) if s == slot
        ]
        own.append(outcomes[-1][0][slot])
        torch.testing.assert_close(learner.prototypes[slot], torch.stack(own).mean(0))


def test_while_one_class_is_known_the_network_stays_and_prediction_works():
    learner = CoPE(linear(), memory_size=10, device="cpu")
    before = [part.clone() for part in learner.given.parameters()]
    learner.observe(torch.randn(4, 3), ["only"] * 4)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.network.parameters(), strict=True))
    assert learner.predict(torch.randn(2, 3)) == ["only", "only"]


def test_a_memory_too_small_for_the_classes_seen_is_refused_before_anything_changes():
    learner = CoPE("mlp", memory_size=2, hidden=4, device="cpu")
    learner.observe(torch.randn(2, 3), ["a", "b"])
    with pytest.raises(ValueError, match="a memory of 2 has no room for an exemplar of each of 3 classes"):
        learner.observe(torch.randn(1, 3), ["c"])
    assert learner.classes == ["a", "b"]


@pytest.mark.parametrize("renormalise", [True, False])
def test_prototypes_have_unit_length_only_if_renormalised(renormalise):
    learner = CoPE("mlp", memory_size=10, hidden=8, momentum=0.5, renormalise=renormalise, device="cpu")
    for _ in range(5):
        learner.observe(torch.randn(4, 3), [0, 1, 2, 3])
    lengths = torch.stack(list(learner.prototypes.values())).norm(dim=1)
    assert torch.allclose(lengths, torch.ones(4)) == renormalise


def test_by_default_prototypes_of_rows_have_unit_length_and_those_of_images_and_embeddings_do_not():
    kinds = {
        "rows": ("mlp", torch.randn(4, 3)),
        "images": ("mlp", torch.randint(256, (4, 8, 8), dtype=torch.uint8)),
        "embeddings": ("identity", torch.randn(4, 3)),
    }
    for kind, (network, x) in kinds.items():
        learner = CoPE(network, memory_size=10, hidden=8, momentum=0.5, class_means=False, device="cpu")
        for _ in range(5):
            learner.observe(x, [0, 1, 0, 1])
        lengths = torch.stack(list(learner.prototypes.values())).norm(dim=1)
        assert learner.input_kind == kind
        assert torch.allclose(lengths, torch.ones(2)) == (kind == "rows")


def test_learned_prototypes_have_unit_length_also_after_a_merge():
    learners = [CoPE("mlp", memory_size=20, hidden=8, learn_prototypes=True, device="cpu") for _ in "ab"]
    for learner in learners:
        learner.observe(torch.randn(6, 3), [0, 1, 2, 0, 1, 2])
    learners[0].merge(learners[1])
    lengths = torch.stack(list(learners[0].prototypes.values())).norm(dim=1)
    torch.testing.assert_close(lengths, torch.ones(3))


def test_a_state_without_the_setting_renormalises_as_learners_did_then(tmp_path):
    learner = CoPE("mlp", memory_size=10, hidden=8, renormalise=True, device="cpu")
    learner.observe(torch.randn(4, 3), [0, 1, 2, 3])
    state = learner.state_dict()
    meta = json.loads(state["meta"])
    del meta["settings"]["renormalise"]
    checkpoint.write(state | {"meta": json.dumps(meta)}, tmp_path / "older.safetensors")
    assert load(tmp_path / "older.safetensors", device="cpu").settings.renormalise is True


def test_the_footprint_is_the_memory_and_the_prototypes():
    learner = CoPE("mlp", memory_size=100, device="cpu")
    learner.observe(torch.zeros(4, 784, dtype=torch.uint8), [0, 1, 2, 3])
    parts = learner.footprint()
    assert set(parts) == {"replay", "prototypes"}
    assert 78_400 <= parts["replay"] < 81_000


def test_it_reaches_on_real_mnist_what_the_paper_reports(mnist_dir):
    """A fifth of the stream is enough to tell a correct CoPE (about 90 %) from a broken one."""
    source = stream("split-mnist", seed=0, imbalance=3, data_dir=mnist_dir)
    from everlearn import learner

    result = run(learner("cope", stream=source, seed=0, device="cpu"), source)
    assert result.accuracy > 0.75
    assert result.samples == 2800


def test_samples_of_zeros_do_not_upset_the_network():
    """At first the biases are zero, and so is the embedding of such a sample: it has no direction to learn from."""
    x = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).tolist()
    learner = CoPE("mlp", memory_size=10, hidden=16, seed=0)
    learner.observe(torch.zeros(4, 8), [True, False, True, False])
    for start in range(0, 40, 4):
        learner.observe(x[start : start + 4], y[start : start + 4])
    assert max(part.abs().max() for part in learner.parameters) < 10


def test_a_step_of_sgd_on_a_network_without_parameters_does_nothing():
    learner = CoPE("identity", memory_size=4, device="cpu")
    learner.observe(torch.eye(4), list("abab"))
    before = learner.prototypes
    learner.descend(torch.zeros(()))
    assert all(torch.equal(learner.prototypes[label], before[label]) for label in before)
