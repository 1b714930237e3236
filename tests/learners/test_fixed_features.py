"""The streaming baselines for fixed features, against slow references written from their definitions."""

import numpy as np
import pytest
import torch
from small_learners import same_state
from torch import nn

from everlearn import load
from everlearn.learners import ranpac, registry
from everlearn.learners.knn import KNN
from everlearn.learners.ncm import NCM
from everlearn.learners.ranpac import RIDGES, RanPAC
from everlearn.learners.slda import SLDA

FIXED = ["knn", "ncm", "ranpac", "slda"]


def samples(count=120, classes=4, dimension=5, seed=0):
    """Features of some classes, class after class, with a covariance of their own."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) * classes // count
    mixing = torch.randn(dimension, dimension, generator=generator)
    centres = 2 * torch.randn(classes, dimension, generator=generator)
    return torch.randn(count, dimension, generator=generator) @ mixing + centres[y], y


def taught(learner, x, y, size=7):
    for start in range(0, len(x), size):
        learner.observe(x[start : start + size], y[start : start + size])
    return learner


def scores(learner, x):
    with torch.no_grad():
        return learner.scores(x)


def test_ncm_has_the_mean_of_all_samples_of_a_class():
    x, y = samples()
    learner = taught(NCM("identity", device="cpu"), x, y)
    for c in range(4):
        torch.testing.assert_close(learner.prototypes[c], x[y == c].mean(0), rtol=1e-5, atol=1e-5)
    expected = [[-float(((row - x[y == c].mean(0)) ** 2).sum()) for c in range(4)] for row in x[::10]]
    torch.testing.assert_close(scores(learner, x[::10]), torch.tensor(expected), rtol=1e-4, atol=1e-3)


def slda_written_out(x, y, shrinkage):
    """The updates of Hayes and Kanan, one sample after another."""
    d, classes = x.shape[1], int(y.max()) + 1
    means, counts = np.zeros((classes, d)), np.zeros(classes)
    covariance = np.zeros((d, d))
    for t, (z, c) in enumerate(zip(x.double().numpy(), y.tolist(), strict=True)):
        delta = t / (t + 1) * np.outer(z - means[c], z - means[c])
        covariance = (t * covariance + delta) / (t + 1)
        means[c] = (counts[c] * means[c] + z) / (counts[c] + 1)
        counts[c] += 1
    precision = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * np.eye(d))
    return precision @ means.T, -0.5 * np.einsum("cd,de,ce->c", means, precision, means)


@pytest.mark.parametrize("size", [1, 7, 120])
def test_slda_is_the_papers_update_sample_by_sample(size):
    x, y = samples()
    weights, biases = slda_written_out(x, y, 0.01)
    learner = taught(SLDA("identity", device="cpu", shrinkage=0.01), x, y, size)
    expected = torch.from_numpy(x.double().numpy() @ weights + biases).float()
    torch.testing.assert_close(scores(learner, x), expected, rtol=1e-3, atol=1e-3)


def test_ranpac_is_ridge_regression_on_random_features():
    x, y = samples()
    learner = taught(RanPAC("identity", device="cpu", projection=12), x, y)
    h = torch.relu(x @ learner._projection).double().numpy()
    targets = np.eye(4)[y.numpy()]
    gram = h.T @ h
    gram += (learner._ridge or gram.trace() / 12) * np.eye(12)
    expected = h @ np.linalg.solve(gram, h.T @ targets) / 0.1
    np.testing.assert_allclose(scores(learner, x), expected, rtol=1e-2, atol=1e-2)


def test_the_ridge_has_the_smallest_squared_error_on_held_out_samples(monkeypatch):
    x, y = samples()
    monkeypatch.setattr(ranpac, "FIRST", 100)
    learner = RanPAC("identity", device="cpu", projection=12)
    held = torch.arange(len(x)) % 5 == 0
    monkeypatch.setattr(torch, "rand", lambda n, generator: torch.where(held[:n], 0.1, 0.9))
    learner.observe(x, y)
    h = torch.relu(x @ learner._projection).double().numpy()
    targets, fitted = np.eye(4)[y.numpy()], ~held.numpy()
    errors = []
    for ridge in RIDGES:
        gram = h[fitted].T @ h[fitted] + ridge * np.eye(12)
        weights = np.linalg.solve(gram, h[fitted].T @ targets[fitted])
        errors.append(((h[~fitted] @ weights - targets[~fitted]) ** 2).sum())
    assert errors[RIDGES.index(learner._ridge)] <= min(errors) * 1.001
    assert max(errors) > min(errors) * 1.1  # so that the choice matters


def test_the_sums_of_ranpac_do_not_depend_on_the_size_of_batches():
    x, y = samples(count=400)
    one, other = (taught(RanPAC("identity", device="cpu", projection=6), x, y, size) for size in (3, 400))
    torch.testing.assert_close(one._all_grams().sum(0), other._all_grams().sum(0), rtol=1e-4, atol=1e-2)
    assert float(one._samples()) == 400


@pytest.mark.parametrize("neighbours", [1, 3, 50])
def test_the_nearest_exemplars_vote_by_their_similarity(neighbours):
    x, y = samples(count=40)
    learner = taught(KNN("identity", device="cpu", neighbours=neighbours, memory_size=20), x, y)
    kept, labels = learner.memory.samples()
    assert learner.memory.counts() == {0: 5, 1: 5, 2: 5, 3: 5}
    kept = kept.double().numpy()
    for row, found in zip(x[::4].double().numpy(), scores(learner, x[::4]), strict=True):
        query, exemplars = row - kept.mean(0), kept - kept.mean(0)
        similar = exemplars @ query / np.linalg.norm(exemplars, axis=1) / np.linalg.norm(query)
        votes = np.zeros(4)
        for i in np.argsort(-similar)[:neighbours]:
            votes[labels[i]] += np.exp(similar[i] / 0.1)
        np.testing.assert_allclose(found, np.log(votes / votes.sum() + 1e-6), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", FIXED)
def test_a_network_of_ones_own_is_not_trained(name, tmp_path):
    network = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU())
    before = {key: part.clone() for key, part in network.state_dict().items()}
    x, y = samples()
    taught(registry()[name](network, device="cpu", **({"projection": 8} if name == "ranpac" else {})), x, y)
    assert same_state(before, network.state_dict())


@pytest.mark.parametrize("name", ["ncm", "slda", "ranpac"])
def test_two_merged_learners_have_the_statistics_of_both_streams(name, tmp_path):
    x, y = samples()
    settings = {"projection": 8} if name == "ranpac" else {}
    first, second, both = (registry()[name]("identity", device="cpu", **settings) for _ in range(3))
    taught(first, x[:60], y[:60])
    taught(second, x[60:], y[60:])
    first.merge(second)
    assert first.classes == [0, 1, 2, 3]
    assert (first.batches, first.samples) == (18, 120)
    taught(both, x, y)
    if name == "ranpac":  # which samples are held out differs
        torch.testing.assert_close(first._all_grams().sum(0), both._all_grams().sum(0), rtol=1e-4, atol=1e-2)
        assert first._samples() == 120
    else:
        torch.testing.assert_close(first.class_means.means, both.class_means.means, rtol=1e-4, atol=1e-4)
        assert np.mean(np.array(first.predict(x)) == np.array(both.predict(x))) > 0.9
    first.save(tmp_path / "merged")
    assert same_state(first.state_dict(), load(tmp_path / "merged", device="cpu").state_dict())


def test_ranpac_merges_only_with_the_same_projection():
    x, y = samples()
    first, second = (taught(RanPAC("identity", device="cpu", projection=8, seed=s), x, y) for s in (0, 1))
    before = first.state_dict()
    with pytest.raises(ValueError, match="the same seed, which determines the projection: 0 here, 1 there"):
        first.merge(second)
    assert same_state(before, first.state_dict())
