"""The evidence lower bound against torch.distributions and against integrals on a grid."""

import math

import pytest
import torch
from torch.distributions import Bernoulli, Normal, kl_divergence

from everlearn.networks.autoencoder import Decoder, Gaussian, evidence_bound, flat

GRID = torch.linspace(-12, 12, 4801, dtype=torch.float64)  # of a latent vector with one entry
STEP = 24 / 4800


def tiny(likelihood, values=3, latent=1):
    torch.manual_seed(0)
    return Decoder(latent, (values,), likelihood, hidden=5).double()


def direct_log_likelihood(decoder, x, z):
    """log p(x | z), for one sample and many z, one value at a time."""
    out = decoder.layers(z)
    kinds = {
        "bits": lambda: Bernoulli(logits=out),
        "grey": lambda: Normal(out.sigmoid(), 1.0),
        "real": lambda: Normal(out, 1.0),
    }
    return kinds[decoder.likelihood]().log_prob(x).sum(1)


@pytest.mark.parametrize("likelihood", ["bits", "grey", "real"])
@pytest.mark.parametrize("with_prior", [False, True])
def test_the_bound_is_the_integral_that_it_stands_for_and_below_the_evidence(likelihood, with_prior):
    decoder = tiny(likelihood)
    x = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    posterior = Gaussian(*torch.tensor([[[0.3], [-0.8]], [[-0.5], [0.2]]], dtype=torch.float64))
    prior = Gaussian(*torch.tensor([[[0.1], [0.4]], [[0.3], [-0.2]]], dtype=torch.float64))
    quantiles = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    noise = Normal(0.0, 1.0).icdf(quantiles)[:, None, None]  # evenly spaced quantiles
    with torch.no_grad():
        bound = evidence_bound(x, decoder, posterior, noise, prior if with_prior else None)
        for i in range(2):
            q = Normal(posterior.mean[i], (posterior.log_variance[i] / 2).exp())
            p = (
                Normal(prior.mean[i], (prior.log_variance[i] / 2).exp())
                if with_prior
                else Normal(torch.zeros(1), torch.ones(1))
            )
            fit = direct_log_likelihood(decoder, x[i], GRID[:, None])
            expected = (q.log_prob(GRID).exp() * fit).sum() * STEP - kl_divergence(q, p).sum()
            evidence = (p.log_prob(GRID) + fit).logsumexp(0) + math.log(STEP)
            assert bound[i] == pytest.approx(expected.item(), abs=1e-3)
            assert bound[i] < evidence


def test_the_bound_is_the_evidence_where_the_posterior_is_exact():
    decoder = Decoder(1, (1,), "real", hidden=1)
    decoder.layers = torch.nn.Linear(1, 1)  # x = z + noise, so that p(z | x) is Gaussian, around x / 2
    with torch.no_grad():
        decoder.layers.weight.fill_(1.0)
        decoder.layers.bias.zero_()
        x = torch.tensor([[1.4]])
        exact = Gaussian(x / 2, torch.tensor([[math.log(0.5)]]))
        noise = Normal(0.0, 1.0).icdf((torch.arange(10_000) + 0.5) / 10_000)[:, None, None]
        bound = evidence_bound(x, decoder, exact, noise)
    assert bound.item() == pytest.approx(Normal(0.0, math.sqrt(2)).log_prob(x).item(), abs=1e-3)


def test_a_convolutional_decoder_gives_as_many_values_as_an_image_has():
    decoder = Decoder(4, (3, 16, 8), "grey", hidden=2, convolutional=True)
    z = torch.randn(2, 5, 4)
    assert decoder(z).shape == (2, 5, 3 * 16 * 8)
    assert 0 < decoder.means(z).min() < decoder.means(z).max() < 1
    assert decoder.log_likelihood(flat(torch.rand(5, 3, 16, 8)), z).shape == (2, 5)
