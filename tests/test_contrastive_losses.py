"""Contrastive losses against loops over pairs."""

import torch
from losses_written_out import info_nce_by_pairs, unit
from torch.nn.functional import cross_entropy

from everlearn.losses.info_nce import class_info_nce, pair_info_nce, similarities_of
from everlearn.losses.supcon import proxy_contrastive_loss, supervised_contrastive_loss

SLOTS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3])


def random_features(seed=0, size=4):
    generator = torch.Generator().manual_seed(seed)
    return unit(torch.randn(8, size, dtype=torch.float64, generator=generator)).requires_grad_()


def test_the_supervised_contrastive_loss_pair_by_pair():
    features = random_features()
    losses = []
    for i in range(8):
        others = [j for j in range(8) if j != i]
        positives = [j for j in others if SLOTS[j] == SLOTS[i]]
        if positives:  # the only sample of class 3 is no anchor
            normaliser = torch.stack([features[i] @ features[j] / 0.2 for j in others]).logsumexp(0)
            losses.append(
                sum(normaliser - features[i] @ features[j] / 0.2 for j in positives) / len(positives)
            )
    slow = sum(losses) / len(losses)
    fast = supervised_contrastive_loss(features, SLOTS, 0.2)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(torch.autograd.grad(fast, features), torch.autograd.grad(slow, features))


def test_a_single_sample_has_no_loss_and_no_gradient():
    feature = random_features()[:1].detach().requires_grad_()
    loss = supervised_contrastive_loss(feature, SLOTS[:1], 0.1)
    assert loss == 0 and not torch.autograd.grad(loss, feature)[0].any()


def test_with_one_sample_of_each_class_the_proxy_loss_is_a_cross_entropy():
    features, proxies = random_features(1)[:4], random_features(2)[:4]
    expected = cross_entropy(features @ proxies.T / 0.3, torch.arange(4))
    torch.testing.assert_close(proxy_contrastive_loss(features, proxies, torch.arange(4), 0.3), expected)


def test_info_nce_pair_by_pair():
    features = random_features(3)
    similarities = features @ features.T
    for itself in (True, False):
        alike, partners = info_nce_by_pairs(similarities, SLOTS.tolist(), 0.3, itself)
        torch.testing.assert_close(class_info_nce(similarities, SLOTS, 0.3, itself), alike)
    torch.testing.assert_close(pair_info_nce(similarities, 0.3), partners)


def test_a_hopeless_pair_has_no_gradient():
    similarities = torch.tensor([[0.0, 0.0, 50.0], [0.0, 0.0, 50.0], [0.0, 0.0, 0.0]], requires_grad=True)
    assert similarities.softmax(1)[0, 1] < 1e-8
    (slope,) = torch.autograd.grad(class_info_nce(similarities, torch.tensor([0, 0, 1]), 1.0), similarities)
    assert slope[0, 1].abs() < 1e-6


def test_similarities_use_a_part_of_the_features_as_wide_as_the_projection():
    projections, features = random_features(4, size=3), random_features(5, size=7)
    expected = 0.5 * (projections @ projections.T + projections @ features[:, 2:5].T)
    torch.testing.assert_close(similarities_of(projections, features, torch.tensor(2), 0.5), expected)
