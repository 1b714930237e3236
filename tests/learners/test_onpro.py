"""OnPro's prototypes, pairs, mixtures and steps, written out."""

import math

import numpy as np
import pytest
import torch
from losses_written_out import info_nce_by_pairs, unit
from replayed_steps import body, same_weights, some_batches, watched_batches
from torch.nn.functional import cross_entropy

from everlearn.learners.onpro import FINE, OnPro
from everlearn.losses.online_prototypes import class_pairs, mean_by_class, prototype_equilibrium_loss
from everlearn.memory.class_tables import draw_of_every_class

SETTINGS = {"device": "cpu", "learning_rate": 0.05, "projection": 4, "clip": None, "temperature": 0.5}


def small(normed=False, **settings):
    return OnPro(body(normed), **SETTINGS | {"memory_size": 12} | settings)


def slow_equilibrium(first, second, slots):
    """The means of each class in two views, and the mean loss over all prototypes."""
    classes = sorted(set(slots.tolist()))
    prototypes = [torch.stack([f for f, c in zip(part, slots, strict=True) if c == own]).mean(0)
                  for part in (first, second) for own in classes]  # fmt: skip
    units = [p / p.norm() for p in prototypes]
    losses = []
    for i, p in enumerate(units):
        scores = {j: p @ q / 0.5 for j, q in enumerate(units) if j != i}
        partner = (i + len(classes)) % len(units)
        losses.append(torch.stack(list(scores.values())).logsumexp(0) - scores[partner])
    return sum(losses) / len(losses)


def new_loss(similarities, slots):
    alike, partners = info_nce_by_pairs(similarities, slots * 2, 0.5, itself=False)
    return partners + 2 * alike


def test_the_loss_of_prototypes_class_by_class():
    torch.manual_seed(0)
    first, second = unit(torch.randn(8, 3)), unit(torch.randn(8, 3))
    slots = torch.tensor([0, 2, 2, 0, 3, 3, 3, 0])
    (one, present), (other, _) = mean_by_class(first, slots, 6), mean_by_class(second, slots, 6)
    assert present.tolist() == [True, False, True, True, False, False]
    fast = prototype_equilibrium_loss(one, other, present, 0.5)
    torch.testing.assert_close(fast, slow_equilibrium(first, second, slots))


@pytest.mark.parametrize("seed", range(6))
def test_pairs_get_rounded_shares_and_the_rest_is_random(seed):
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(7, 3, generator=generator) * (0.05 if seed % 2 else 1.0)
    means[4] = 0
    keys = torch.randperm(21, generator=generator)
    classes, _, some = class_pairs(means, keys, 9)
    present = [c for c in range(7) if means[c].any()]
    pairs = [(a, b) for a in range(7) for b in range(a + 1, 7)]
    weights = {
        p: math.exp(1 / (means[p[0]] - means[p[1]]).norm().item()) for p in pairs if set(p) <= set(present)
    }
    total = sum(weights.values())
    places = {pair: round(9 * weight / total) for pair, weight in weights.items()}
    rest = 9 - sum(places.values())
    by_key = [pair for _, pair in sorted(zip(keys.tolist(), pairs, strict=True)) if pair in places]
    changed = [p for p in by_key if rest > 0 or places[p] > 0][: abs(rest)]
    for pair in changed:
        places[pair] += 1 if rest > 0 else -1
    expected = [pair for pair in pairs for _ in range(places.get(pair, 0))]
    assert some and [tuple(pair) for pair in classes.T.tolist()] == expected


def test_without_two_classes_there_is_no_pair():
    assert not class_pairs(torch.tensor([[1.0], [0.0], [0.0]]), torch.arange(3), 4)[2]


def test_every_class_gets_its_own_exemplars_and_one_without_any_gets_others():
    learner = small()
    learner.observe(torch.randn(9, 3), [0, 1, 1, 0, 1, 0, 2, 2, 2], 0)
    learner.memory._slots[learner.memory._slots == 2] = 0
    rows, slots = draw_of_every_class(learner.memory, 4, 50, torch.Generator().manual_seed(0))
    assert rows.shape == slots.shape == (4, 50)
    assert np.array_equal(slots, learner.memory._slots[rows])
    assert set(slots[0]) == {0} and set(slots[1]) == {1} and set(slots[2]) == set(slots[3]) == {0, 1}
    assert len(set(rows[0].tolist())) == 6


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_the_first_task_is_learnt_without_replay_but_with_the_prototypes_of_exemplars(normed):
    learner = small(normed)
    learner.observe(torch.randn(4, 3), [0, 1, 2, 2], 0)
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches(), t=0):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
        old_rows, old_slots, starts = draws[0]
        features = slow.body(torch.cat([x, x]))
        z, f = unit(slow.projection(features)), unit(features)
        loss = new_loss(z @ z.T + z @ f[:, starts[0] : starts[0] + 4].T, slots.tolist())
        loss += cross_entropy(slow(x)[:, : len(learner.classes)], slots)
        loss += slow_equilibrium(*z.chunk(2), slots)
        again = unit(slow.projection(slow.body(torch.cat([rows[old_rows]] * 2))))
        (loss + slow_equilibrium(*again.chunk(2), old_slots)).backward()
        optimiser.step()
        same_weights(learner.network, slow)


def slow_mixture(learner, means, old, old_slots, rows, row_slots, mixing):
    """Samples, both classes and the share of the second, one after the other."""
    partners, shares, keys, table, table_slots, pair_shares = mixing
    made = []
    for i, (partner, share) in enumerate(zip(partners.tolist(), shares.tolist(), strict=True)):
        made.append((old[i], old[partner], old_slots[i], old_slots[partner], share / FINE))
    classes, pairs, some = class_pairs(means, keys, len(pair_shares))
    for j, share in enumerate(pair_shares.tolist()):
        if not some:
            i = len(partners) + j
            made.append((old[i], old[i], old_slots[i], old_slots[i], 0.0))
            continue
        a, b = classes[0, j], classes[1, j]
        applied = keys[pairs[j]].item() % FINE < learner.settings.mixed * FINE
        ends = rows[table[a, j]], rows[table[b, j]], table_slots[a, j], table_slots[b, j]
        made.append((*ends, share / FINE if applied else 0.0))
    return made


@pytest.mark.parametrize("normed", [False, True], ids=["plain", "batch-norm"])
def test_later_exemplars_are_mixed_and_everything_is_compared(normed):
    learner = small(normed, similarity=0.5, replayed=8)
    learner.observe(torch.randn(6, 3), [0, 1, 2, 2, 1, 0], 0)
    learner.observe(torch.randn(6, 3), [0, 1, 2, 2, 1, 0], 0)
    learner.observe(torch.randn(5, 3), [3, 4, 3, 4, 3], 1)
    shares = []
    means = learner._means.clone()
    for x, slots, draws, rows, slow in watched_batches(learner, some_batches((5, 4, 6, 5), labels=5), t=1):
        optimiser = torch.optim.SGD(slow.parameters(), lr=0.05)
        old_rows, old_slots, starts, *mixing = draws[0]
        old = rows[old_rows]
        made = slow_mixture(learner, means, old, old_slots, rows, None, mixing)
        mixed = torch.stack([(1 - share) * a + share * b for a, b, _, _, share in made])
        shares += [share for *_, share in made]
        features = slow.body(torch.cat([x, x, mixed, mixed]))
        z, f = unit(slow.projection(features)), unit(features)
        new = 2 * len(x)
        parts = [slice(new), slice(new, None)]
        similarities = [
            0.5 * (z[p] @ z[p].T + z[p] @ f[p, s : s + 4].T)
            for p, s in zip(parts, starts.tolist(), strict=True)
        ]
        loss = new_loss(similarities[0], slots.tolist())
        owners = [
            ("mixture", i) if share > 0 and a != b else a.item() for i, (_, _, a, b, share) in enumerate(made)
        ]
        loss += info_nce_by_pairs(similarities[1], owners * 2, 0.5, itself=True)[0]
        logits = slow(mixed)[:, :5].log_softmax(1)
        loss -= (
            sum(
                (1 - share) * logits[i, a] + share * logits[i, b]
                for i, (_, _, a, b, share) in enumerate(made)
            )
            / 8
        )
        loss += slow_equilibrium(z[: len(x)], z[len(x) : new], slots)
        again = unit(slow.projection(slow.body(torch.cat([old, old]))))
        loss += slow_equilibrium(*again.chunk(2), old_slots)
        loss.backward()
        optimiser.step()
        same_weights(learner.network, slow)
        for own in range(5):
            there = (old_slots == own).repeat(2)
            mean = again[there].mean(0).detach() if there.any() else torch.zeros(4)
            torch.testing.assert_close(learner._means[own], mean, rtol=1e-3, atol=1e-5)
        means = learner._means.clone()
    assert any(0 < share < 1 for share in shares) and 0.0 in shares


def test_nothing_is_mixed_in_the_first_batch_of_a_task():
    learner = small()
    drawn = []
    original = learner.draw_replay
    learner.draw_replay = lambda size: drawn.append(original(size)) or drawn[-1]
    for t in (0, 0, 1, 1):
        learner.observe(torch.randn(6, 3), [0, 1, 2, 2, 1, 0], t)
    assert [len(parts) for parts in drawn] == [3, 3, 3, 9]


def test_the_first_task_replays_as_many_as_there_are_and_later_ones_by_class():
    learner = small(memory_size=30, replayed=20, per_class=2)
    learner.observe(torch.randn(30, 3), [0, 1] * 15, 0)
    assert learner.replay_size(4) == 20
    learner.observe(torch.randn(4, 3), [2, 3] * 2, 1)
    assert learner.replay_size(4) == 2 * 4


def test_whether_any_are_mixed_and_which_of_them_is_drawn():
    learner = small(memory_size=40, replayed=40, mixed=0.5, largest_share=0.3)
    learner.observe(torch.randn(40, 3), [0, 1] * 20, 0)
    shares = np.stack([learner._draw_mixing(40)[1] for _ in range(200)]) / FINE
    steps = (shares > 0).any(1)
    assert 0.35 < steps.mean() < 0.65
    assert 0.45 < (shares[steps] > 0).mean() < 0.55
    assert 0.29 < shares.max() < 0.3


def test_images_come_in_versions_and_views():
    learner = OnPro("slim-resnet18", device="cpu", memory_size=8, augmentation="crop-flip-grey", replayed=3)
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    for t in (0, 1, 1):
        learner.observe(images, [2 * t, 2 * t + 1, 2 * t, 2 * t + 1], t)
    assert learner._copies.versions == 16
    assert set(learner.predict(images)) <= {0, 1, 2, 3}
