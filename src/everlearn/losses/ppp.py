"""The pseudo-prototypical proxy (PPP) loss, equations 2 to 6 of the paper, in plain torch.

Calls use an equivalent closed form (ppp_fast.py), which takes less time, and memory linear in the batch size. The
tests compare values and gradients of both.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from everlearn.losses.ppp_fast import Gradient, fast_path

__all__ = ["Gradient", "ppp_loss"]

# A score whose exponential is 0; finite, to avoid NaN from inf − inf.
NEVER = -1e4


@fast_path
def ppp_loss(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    temperature: float,
    seen: Tensor | None = None,
    valid: Tensor | None = None,
    pseudo_prototypes: bool = True,
    gradient: Gradient = "released",
    repellor: float = 1.0,
) -> Tensor:
    """The PPP-loss of a batch B, a scalar; 0 for a batch without samples.

    features: unit-length embeddings f of the batch, `[batch, d]`.
    slots: the class of each, as a row of `prototypes`, `[batch]`.
    prototypes: one vector p^c per class, `[classes, d]`, without gradient.
    temperature: τ.
    seen: which rows of `prototypes` are used, `[classes]`; all by default.
    valid: which rows of the batch are used, `[batch]`; all by default (False is padding).
    pseudo_prototypes: whether the other samples of the batch are used as proxies p̂, too.
    gradient: where gradients flow through pseudo-prototypes: `released` as in the authors' code (in the repellor
        only), `full` everywhere, `detached` nowhere.
    repellor: the weight of the sum over negative pairs, which grows with the batch.

    >>> f = torch.tensor([[0.8, 0.6], [-0.28, 0.96]])
    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(ppp_loss(f, torch.tensor([0, 1]), p, temperature=0.5).item(), 4)
    0.5917
    """
    batch, classes, device = len(features), len(prototypes), features.device
    seen = torch.ones(classes, dtype=torch.bool, device=device) if seen is None else seen
    valid = torch.ones(batch, dtype=torch.bool, device=device) if valid is None else valid
    fixed = features.detach()
    attracting = features if gradient == "full" else fixed  # p̂ in the attractor
    repelling = fixed if gradient == "detached" else features  # p̂ in the repellor

    # Scores f_j·p^k/τ of samples j and prototypes k, and rest: logsumexp over all classes except that of i.
    scores = torch.where(seen, features @ prototypes.detach().T / temperature, NEVER)  # [batch, classes]
    own_class = slots[:, None] == torch.arange(classes, device=device)  # [batch, classes]
    rest = torch.where(own_class, NEVER, scores[:, None]).logsumexp(2)  # of j, class of i  [batch, batch]
    to_prototype = scores[:, slots]  # f_j·p^{y_i}/τ  [batch, batch]

    # Equation 5: P(c|f_j, q) = exp(f_j·q/τ) / (exp(f_j·q/τ) + Σ_{k≠c} exp(f_j·p^k/τ)), a sigmoid of the difference.
    same = (slots[:, None] == slots) & valid[:, None] & valid
    positive = same & ~torch.eye(batch, dtype=torch.bool, device=device)
    negative = (slots[:, None] != slots) & valid[:, None] & valid

    # Equations 3 and 6: P(c|x_i), the mean over the attractors: p^c, and p̂ of the other samples of class c.
    near = logsigmoid((to_prototype - rest).diagonal())[:, None]  # log P(c|f_i, p^c)
    near_pseudo = logsigmoid(features @ attracting.T / temperature - rest.diagonal()[:, None])
    near_pseudo = torch.where(positive & pseudo_prototypes, near_pseudo, NEVER)
    proxies = 1 + (positive & pseudo_prototypes).sum(1).to(features.dtype)
    attracted = torch.cat([near, near_pseudo], 1).logsumexp(1) - proxies.log()  # [batch]

    # Equations 4 and 6: 1 − P_i(c|x_j), the mean over the repellors of x_j: p^c and p̂ = f_i, of another class.
    away = logsigmoid(rest - to_prototype)
    if pseudo_prototypes:
        away_pseudo = logsigmoid(rest - features @ repelling.T / temperature)
        away = torch.logaddexp(away, away_pseudo) - math.log(2)

    # Equation 2: the sum of both log-likelihoods, by the size of the batch.
    likelihood = (attracted * valid).sum() + repellor * torch.where(negative, away, 0.0).sum()
    return -likelihood / valid.sum().clamp(min=1)
