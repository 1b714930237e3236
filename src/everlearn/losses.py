"""The pseudo-prototypical proxy (PPP) loss, equations 2 to 6 of the paper.

Everything is a log-sigmoid. With s = f·q/τ for a proxy q of class c, and the rest
R(f, c) = log Σ_{k≠c} exp(f·p^k/τ), equation 5 reads P(c|f, q) = σ(s − R(f, c)) and its
complement 1 − P = σ(R(f, c) − s): no probability is ever subtracted from one, so the loss
stays finite in float32 however saturated a pair is.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

__all__ = ["Gradient", "ppp_loss"]

Gradient = Literal["released", "full", "detached"]

# A log-probability that is zero for every purpose, and finite: no NaN from inf − inf.
NEVER = -1e4


def ppp_loss(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    temperature: float,
    seen: Tensor | None = None,
    valid: Tensor | None = None,
    pseudo_prototypes: bool = True,
    gradient: Gradient = "released",
) -> Tensor:
    """The PPP-loss of a batch B, a scalar.

    features: unit-length embeddings f of the batch, `[batch, d]`.
    slots: the class of each, as a row of `prototypes`, `[batch]`.
    prototypes: one vector p^c per class, `[classes, d]`; they never receive a gradient.
    temperature: τ, the concentration of the distribution.
    seen: which rows of `prototypes` stand for a class, `[classes]`; all by default.
    valid: which rows of the batch count, `[batch]`; all by default (False is padding).
    pseudo_prototypes: whether the other samples of the batch act as proxies p̂ too.
    gradient: what a pseudo-prototype passes on: `released` as the authors' code does (the
        attractor's are constants, the repellor's are not), `full` everywhere, `detached` nowhere.

    >>> f = torch.tensor([[0.8, 0.6], [-0.28, 0.96]])
    >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> round(ppp_loss(f, torch.tensor([0, 1]), p, temperature=0.5).item(), 4)
    0.5917
    """
    if gradient not in get_args(Gradient):
        raise ValueError(f"gradient is one of {', '.join(get_args(Gradient))}, not {gradient!r}")
    loss: Tensor = _PPPLoss.apply(
        features, slots, prototypes, temperature, seen, valid, pseudo_prototypes, gradient
    )
    return loss


class _PPPLoss(torch.autograd.Function):
    """Value and gradient in one pass; the gradient has a closed form in the same sigmoids."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx,
        features: Tensor,
        slots: Tensor,
        prototypes: Tensor,
        temperature: float,
        seen: Tensor | None,
        valid: Tensor | None,
        pseudo_prototypes: bool,
        gradient: Gradient,
    ) -> Tensor:
        loss, slope = _value_and_gradient(
            features, slots, prototypes, temperature, seen, valid, pseudo_prototypes, gradient
        )
        ctx.save_for_backward(slope)  # type: ignore[attr-defined]
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, outer):  # type: ignore[no-untyped-def,override]
        (slope,) = ctx.saved_tensors
        return slope * outer, None, None, None, None, None, None, None


def _value_and_gradient(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    temperature: float,
    seen: Tensor | None,
    valid: Tensor | None,
    pseudo_prototypes: bool,
    gradient: Gradient,
) -> tuple[Tensor, Tensor]:
    """The loss and its derivative by `features`. Rows j are queries, columns i the samples they meet."""
    batch = features.shape[0]
    scaled = features / temperature
    scores = scaled @ prototypes.T  # f_j·p^k/τ  [batch, classes]
    if seen is not None:
        scores = scores.masked_fill(~seen, NEVER)
    rest, strongest, others = _rest(scores)

    proxies = slots.expand(batch, batch)
    R = rest.gather(1, proxies)  # R(f_j, y_i)  [batch, batch]
    Q = scores.gather(1, proxies)  # f_j·p^{y_i}/τ
    S = scaled @ features.T  # f_j·f_i/τ
    same = slots[:, None] == slots
    own = torch.eye(batch, dtype=torch.bool, device=features.device)
    apart = ~same
    count: Tensor | float = float(batch)
    if valid is not None:
        both = valid[:, None] & valid
        same, apart, own = same & both, apart & both, own & both
        count = valid.sum()

    # Attractor (eq. 3): log of the mean of P over the prototype (on the diagonal) and each f_j of the class.
    rest_own = R.diagonal()[:, None]
    attractors = same if pseudo_prototypes else own
    pull = torch.where(own, Q, S) - rest_own
    log_pull = logsigmoid(pull).masked_fill(~attractors, NEVER)
    attractor = log_pull.logsumexp(1)
    # Repellor (eq. 4): log of 1 − the mean of P over the prototype p^{y_i} and the sample f_i.
    push_q = logsigmoid(R - Q)
    if pseudo_prototypes:
        push_s = logsigmoid(R - S)
        repellor = torch.logaddexp(push_q, push_s)
    else:
        repellor = push_q
    sizes = attractors.sum(1, dtype=features.dtype).clamp(min=1)
    present: Tensor | float = 1.0 if valid is None else valid
    total = ((attractor - sizes.log()) * present).sum()
    total = total + (repellor - math.log(2.0) * pseudo_prototypes).masked_fill(~apart, 0.0).sum()
    loss = -total / count

    # Derivatives of −|B|·L, each by its own score: by Q, by S and by R.
    share = (log_pull - attractor[:, None]).exp().masked_fill(~attractors, 0.0)
    by_pull = share * torch.sigmoid(-pull)  # [batch, batch]
    away = apart.to(features.dtype)
    if pseudo_prototypes:
        by_push_q = away * (push_q - repellor).exp() * torch.sigmoid(Q - R)
        by_push_s = away * (push_s - repellor).exp() * torch.sigmoid(S - R)
        by_rest = by_push_q + by_push_s
        between = by_pull.masked_fill(own, 0.0)
        # f_j meets f_i as a constant, and where the gradient runs through pseudo-prototypes, f_i meets f_j.
        meets = between - by_push_s
        if gradient != "detached":
            meets = meets - by_push_s.T
        if gradient == "full":
            meets = meets + between.T
    else:
        by_push_q = away * torch.sigmoid(Q - R)
        by_rest = by_push_q
        meets = None
    by_own = by_pull.diagonal()
    by_q = torch.diag_embed(by_own) - by_push_q
    by_rest = by_rest - torch.diag_embed(by_pull.sum(1))

    # From proxies back to classes: every sample of a class shares the class's prototype.
    by_both = torch.zeros(2, batch, scores.shape[1], dtype=features.dtype, device=features.device)
    by_both.scatter_add_(2, proxies.expand(2, batch, batch), torch.stack([by_q, by_rest]))
    by_scores = by_both[0] + _rest_gradient(by_both[1], scores, rest, strongest, others)
    slope = by_scores @ prototypes
    if meets is not None:
        slope = slope + meets @ features
    return loss, slope * (-1.0 / temperature) / count


def _rest(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """R(f_j, c) = log Σ_{k≠c} exp(scores[j, k]) for every class, in one pass over the classes.

    Taking a class out of the sum by subtraction loses no digits as long as it is not the largest
    term, since what is left is then at least half; the strongest class gets a sum of its own.
    Returns the rest `[batch, classes]`, which class is strongest (a mask), and the rest without it.
    """
    peak, strongest_class = scores.max(1, keepdim=True)
    strongest = torch.zeros_like(scores, dtype=torch.bool).scatter_(1, strongest_class, True)
    others = scores.masked_fill(strongest, NEVER).logsumexp(1, keepdim=True)  # [batch, 1]
    weights = (scores - peak).exp()
    without = weights.sum(1, keepdim=True) - weights
    rest = torch.where(strongest, others, without.clamp(min=1e-30).log() + peak)
    return rest, strongest, others


def _rest_gradient(by_rest: Tensor, scores: Tensor, rest: Tensor, strongest: Tensor, others: Tensor) -> Tensor:
    """Σ_c by_rest[j, c] · ∂R(f_j, c)/∂scores[j, k], where the derivative is exp(scores[j, k] − R(f_j, c)), k≠c."""
    peak = scores.amax(1, keepdim=True)
    of_strongest = (by_rest * strongest).sum(1, keepdim=True)
    rises = (by_rest * (peak - rest).clamp(max=1.0).exp()).masked_fill(strongest, 0.0)
    through_weak = (scores - peak).exp() * (rises.sum(1, keepdim=True) - rises)
    through_strongest = of_strongest * (scores - others).masked_fill(strongest, NEVER).exp()
    return through_weak + through_strongest
