"""The representation's measures against cases worked by hand and slow loops over samples."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from everlearn.evaluation.representation import project, prototype_shift, prototype_truth, variance


@st.composite
def labelled(draw):
    """Features of up to twenty samples of up to four classes."""
    count, dimension = draw(st.integers(1, 20)), draw(st.integers(1, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    labels = draw(st.lists(st.sampled_from(["a", 1, None, ("b", 2)]), min_size=count, max_size=count))
    return torch.randn(count, dimension, generator=generator), labels


def units_by_class(features, labels):
    groups = {label: [] for label in labels}
    for feature, label in zip(features.double(), labels, strict=True):
        groups[label].append(feature / feature.norm())
    return groups


def test_a_prototype_is_true_if_it_points_to_the_mean_of_its_class():
    features = torch.tensor([[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    prototypes = {"a": torch.tensor([0.1, 0.1]), "b": torch.tensor([0.0, 1.0]), "no samples": torch.ones(2)}
    truth = prototype_truth(features, ["a", "a", "b"], prototypes)
    assert truth == pytest.approx({"a": 1.0, "b": 0.0})


def test_a_prototype_that_points_away_is_at_minus_one():
    features = torch.tensor([[2.0, 0.0]])
    assert prototype_truth(features, [7], {7: torch.tensor([-3.0, 0.0])}) == {7: -1.0}


def test_without_prototypes_there_is_no_truth():
    assert prototype_truth(torch.ones(2, 3), [0, 1], {}) == {}


def test_the_truth_of_a_class_whose_mean_is_nowhere_is_unknown():
    features = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert math.isnan(prototype_truth(features, [0, 0], {0: torch.ones(2)})[0])


def test_variance_worked_by_hand():
    # Class a: (1, 0) and (0, 1), mean (½, ½), each ½ away, squared. Class b: (-1, 0) alone.
    features = torch.tensor([[3.0, 0.0], [0.0, 1.0], [-2.0, 0.0]])
    intra, inter = variance(features, ["a", "a", "b"])
    assert intra == pytest.approx((0.5 + 0.0) / 2)
    # The middle of both means is (-¼, ¼); they lie (¾, ¼) and (-¾, -¼) from it.
    assert inter == pytest.approx(10 / 16)


@settings(deadline=None)
@given(labelled())
def test_variance_agrees_with_a_loop_over_samples(given_):
    features, labels = given_
    groups = units_by_class(features, labels)
    means = {c: sum(group) / len(group) for c, group in groups.items()}
    middle = sum(means.values()) / len(means)
    spreads = [sum((u - means[c]).square().sum() for u in group) / len(group) for c, group in groups.items()]
    intra = float(sum(spreads) / len(groups))
    inter = float(sum((mean - middle).square().sum() for mean in means.values()) / len(means))
    assert variance(features, labels) == pytest.approx((intra, inter), abs=1e-9)


@settings(deadline=None)
@given(labelled())
def test_truth_agrees_with_a_loop_over_samples(given_):
    features, labels = given_
    prototypes = {"a": torch.ones(features.shape[1]), None: features[0]}
    truth = prototype_truth(features, labels, prototypes)
    for label, group in units_by_class(features, labels).items():
        if label in prototypes:
            mean, prototype = sum(group) / len(group), prototypes[label].double()
            cosine = float(mean @ prototype / (mean.norm() * prototype.norm()))
            assert truth[label] == pytest.approx(cosine, abs=1e-6, nan_ok=True)
    assert truth.keys() == prototypes.keys() & set(labels)


def test_all_that_unit_vectors_vary_is_within_and_between_classes():
    features = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    labels = list(range(3)) * 10
    means = torch.stack([torch.stack(group).mean(0) for group in units_by_class(features, labels).values()])
    assert sum(variance(features, labels)) == pytest.approx(1 - float(means.mean(0).square().sum()))


def test_shift_is_the_distance_between_then_and_now_of_classes_known_at_both_times():
    before = {"a": torch.tensor([0.0, 0.0]), "gone": torch.ones(2)}
    after = {"a": torch.tensor([3.0, 4.0]), "new": torch.ones(2)}
    assert prototype_shift(before, after) == {"a": 5.0}
    assert prototype_shift({}, after) == {}


# The plane


def test_the_plane_keeps_what_varies_most_and_takes_prototypes_along():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 6, generator=generator) * torch.tensor([0.1, 9.0, 0.1, 3.0, 0.1, 0.1]) + 5
    plane = project(features, {"c": features[7]})
    distances = torch.cdist(features, features)
    assert torch.allclose(torch.cdist(plane.samples, plane.samples), distances, atol=1.5)
    assert torch.allclose(plane.prototypes["c"], plane.samples[7], atol=1e-4)
    assert sum(plane.explained) > 0.99
    assert plane.explained[0] > plane.explained[1]


def test_the_plane_is_the_same_for_the_same_features_and_draws_no_random_numbers():
    features = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    state = torch.get_rng_state()
    first, second = project(features, {}), project(features.clone(), {})
    assert torch.equal(first.samples, second.samples)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_plane_does_not_flip_when_samples_are_left_out():
    features = torch.randn(300, 4, generator=torch.Generator().manual_seed(2))
    features *= torch.tensor([5.0, 2.0, 0.1, 0.1])
    whole, part = project(features, {}).samples[:280], project(features[:280], {}).samples
    assert ((whole * part).sum(0) > 0).all()


def test_one_sample_or_one_dimension_still_lies_on_a_plane():
    alone = project(torch.ones(1, 3), {})
    assert alone.samples.tolist() == [[0, 0]]
    line = project(torch.tensor([[1.0], [3.0]]), {0: torch.tensor([2.0])})
    assert line.samples.tolist() == [[-1, 0], [1, 0]]
    assert line.prototypes[0].tolist() == [0, 0]
    assert line.explained == (1, 0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: variance(torch.ones(3), [0, 0, 0]),
            r"shape \[samples, d\] with at least one sample, not \[3\]",
        ),
        (lambda: project(torch.ones(0, 3), {}), r"not \[0, 3\]"),
        (lambda: variance(torch.ones(3, 2), [0]), "got 3 features but 1 labels"),
    ],
)
def test_features_of_another_shape_are_an_error(call, says):
    with pytest.raises(ValueError, match=says):
        call()
