"""The cross-entropy over prototypes, against autograd and against one sample at a time."""

import math

import pytest
import torch

from everlearn.losses import proxy


def given(seed, classes=5, samples=9, d=6):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, d, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(classes, d, generator=generator, dtype=torch.float64)
    slots = torch.randint(classes, (samples,), generator=generator)
    return (
        features / features.norm(dim=1, keepdim=True),
        slots,
        prototypes / prototypes.norm(dim=1, keepdim=True),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_the_mean_of_minus_the_log_of_the_probability_of_the_own_class(seed):
    features, slots, prototypes = given(seed)
    total = 0.0
    for f, c in zip(features.tolist(), slots.tolist(), strict=True):
        scores = [math.exp(sum(a * b for a, b in zip(f, p, strict=True)) / 0.3) for p in prototypes.tolist()]
        total -= math.log(scores[c] / sum(scores))
    assert proxy.proxy_loss(features, slots, prototypes, 0.3).item() == pytest.approx(total / len(slots))


@pytest.mark.parametrize("masked", [False, True])
def test_both_gradients_are_those_of_autograd(masked):
    features, slots, prototypes = given(0)
    seen = torch.tensor([True] * 5 + [False] * 3) if masked else None
    if masked:
        prototypes = torch.cat([prototypes, torch.zeros(3, 6, dtype=torch.float64)])
    features.requires_grad_()
    prototypes.requires_grad_()
    loss = proxy.proxy_loss(features, slots, prototypes, 0.2, seen)
    by_features, by_prototypes = torch.autograd.grad(loss, (features, prototypes))
    with torch.no_grad():
        torch.testing.assert_close(proxy.gradient(features, slots, prototypes, 0.2, seen), by_features)
        torch.testing.assert_close(
            proxy.prototype_gradient(features, slots, prototypes, 0.2, seen), by_prototypes
        )
