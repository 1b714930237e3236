import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from everlearn.memory.prototypes import Prototypes


def test_a_new_class_gets_a_unit_vector_in_the_positive_orthant_and_room_doubles():
    prototypes = Prototypes(5, torch.device("cpu"), torch.Generator().manual_seed(0))
    assert not prototypes.open_classes(2)
    before = prototypes.vectors[:2].clone()
    assert prototypes.open_classes(17)
    assert prototypes.vectors.shape == (32, 5)
    assert prototypes.seen.tolist() == [True] * 17 + [False] * 15
    assert torch.equal(prototypes.vectors[:2], before)
    assert (prototypes.vectors[:17] > 0).all()
    torch.testing.assert_close(prototypes.vectors[:17].norm(dim=1), torch.ones(17))


def test_prototypes_after_one_hand_computed_batch():
    # The worked example: class 0 has (0.8, 0.6) and (0.96, -0.28), so its mean is (0.88, 0.16).
    prototypes = Prototypes(2, torch.device("cpu"), torch.Generator())
    prototypes.vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.8]])
    features = torch.tensor([[0.8, 0.6], [-0.28, 0.96], [0.96, -0.28]])
    prototypes.move(features, torch.tensor([0, 1, 0]), 0.99, renormalise=False)
    expected = torch.tensor([[0.9988, 0.0016], [-0.0028, 0.9996], [-0.6, -0.8]])
    torch.testing.assert_close(prototypes.vectors, expected)


def test_renormalised_prototypes_have_unit_length_and_absent_classes_stay():
    prototypes = Prototypes(2, torch.device("cpu"), torch.Generator())
    prototypes.vectors = torch.tensor([[1.0, 0.0], [0.3, 0.4]])
    prototypes.move(torch.tensor([[0.0, 1.0]]), torch.tensor([0]), 0.5, renormalise=True)
    torch.testing.assert_close(prototypes.vectors, torch.tensor([[0.5**0.5, 0.5**0.5], [0.3, 0.4]]))


@given(st.integers(2, 30), st.integers(2, 16), st.integers(0, 10**6))
def test_the_normalised_mean_has_the_least_summed_cosine_distance_to_its_population(count, d, seed):
    """Section 4.4 of the paper: the mean is the optimal prototype."""
    generator = torch.Generator().manual_seed(seed)
    population = normalize(torch.randn(count, d, generator=generator, dtype=torch.float64), dim=1)
    mean = population.mean(0)
    if mean.norm() < 1e-6:
        return

    def distances(prototypes):
        return (1 - normalize(prototypes, dim=1) @ population.T).sum(1)

    rivals = torch.cat([torch.randn(200, d, generator=generator, dtype=torch.float64), population])
    nearby = mean + 0.01 * mean.norm() * torch.randn(200, d, generator=generator, dtype=torch.float64)
    assert (distances(mean[None]) <= distances(torch.cat([rivals, nearby])) + 1e-9).all()
