"""Contrastive losses as loops over pairs, for oracles."""

import torch


def unit(x):
    """Rows at unit length."""
    return x / x.norm(dim=1, keepdim=True)


def info_nce_by_pairs(similarities, owners, temperature, itself):
    """The mean over i of 1/|C_i| Σ_j −log p_ij, one pair after the other, and the mean over partners."""
    count, total, partners = len(owners), 0.0, 0.0
    for i in range(count):
        among = [j for j in range(count) if itself or j != i]
        scores = torch.stack([similarities[i, j] / temperature for j in among])
        probabilities = dict(zip(among, scores.softmax(0), strict=True))
        mine = [j for j in range(count) if owners[j] == owners[i]]
        total = total + sum(-(probabilities[j] + 1e-8).log() for j in mine if j in probabilities) / len(mine)
        partner = (i + count // 2) % count
        partners = partners - (probabilities[partner] + 1e-8).log()
    return total / count, partners / count
