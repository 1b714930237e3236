"""Fixed features with many classes: what is kept for predictions does not grow with exemplars times classes."""

import numpy as np
import pytest
import torch
from small_learners import same_state

from everlearn import CoPE, load
from everlearn.core.whitening import Metric, _nearest, metric_of


def taught(classes, memory_size=600):
    """A learner with up to three samples of each class."""
    generator = torch.Generator().manual_seed(0)
    learner = CoPE("identity", memory_size=memory_size, device="cpu")
    for _ in range(3):
        order = torch.randperm(classes, generator=generator)
        learner.observe(torch.randn(classes, 8, generator=generator), order.tolist())
    return learner


def test_what_is_kept_for_predictions_has_no_part_of_exemplars_times_classes():
    learner = taught(200)
    learner.predict(torch.zeros(1, 8))
    exemplars = sum(learner.exemplars().values())
    largest = max(part.numel() for part in metric_of(learner))
    assert exemplars >= 400 and largest == exemplars * 8


@pytest.mark.parametrize("as_array", [False, True])
def test_the_nearest_exemplars_are_those_of_their_class_in_any_order(as_array):
    generator = torch.Generator().manual_seed(1)
    learner, x = taught(40, memory_size=90), torch.randn(7, 8, generator=generator)
    metric = metric_of(learner)
    samples, exemplars, slots = x / 10, metric.exemplars, metric.slots
    similar = (samples @ exemplars.T).clip(-1, 1)
    terms = ((similar - 1) / 0.03).double().exp()
    expected = torch.stack([1 + 0.03 * terms[:, slots == c].mean(1).log() for c in range(40)], 1)
    if as_array:
        found = _nearest(samples.numpy(), Metric(*(part.numpy() for part in metric)))
        assert found.dtype == np.float32
    else:
        found = _nearest(samples, metric).numpy()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-6)
    assert torch.equal(slots.bincount().float(), metric.counts) and len(exemplars) == int(metric.counts.sum())


def test_a_learner_with_many_classes_resumes_with_the_same_bits(tmp_path):
    learner = taught(100)
    learner.save(tmp_path / "state")
    again = load(tmp_path / "state", device="cpu")
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        x, y = (
            torch.randn(10, 8, generator=generator),
            torch.randint(100, (10,), generator=generator).tolist(),
        )
        assert np.array_equal(learner.predict_proba(x), again.predict_proba(x))
        learner.observe(x, y)
        again.observe(x, y)
    assert same_state(learner.state_dict(), again.state_dict())
