"""Distillation: the divergence of a network's probabilities from those of a teacher.

Hinton, G., Vinyals, O. and Dean, J. Distilling the Knowledge in a Neural Network. 2015.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import kl_div

__all__ = ["distillation_loss"]


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(teacher / T) ‖ softmax(logits / T)), the mean over samples. No gradient flows to the teacher.

    >>> import torch
    >>> distillation_loss(torch.zeros(1, 2), torch.tensor([[0.0, 0.0]]), temperature=4.0)
    tensor(0.)
    """
    target = (teacher.detach() / temperature).softmax(1)
    divergence = kl_div((logits / temperature).log_softmax(1), target, reduction="batchmean")
    return divergence * temperature**2
