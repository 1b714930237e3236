"""The pseudo-prototypical proxy (PPP) loss, equations 2 to 6 of the paper.

Everything is a log-sigmoid. With s = f·q/τ for a proxy q of class c, and the rest
R(f, c) = log Σ_{k≠c} exp(f·p^k/τ), equation 5 reads P(c|f, q) = σ(s − R(f, c)) and its
complement 1 − P = σ(R(f, c) − s): no probability is ever subtracted from one, so the loss
stays finite in float32 however saturated a pair is.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from everlearn.arrays import Array, as_arrays, largest, product

__all__ = ["Gradient", "ppp_gradient", "ppp_loss"]

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
    loss: Tensor = _PPPLoss.apply(  # type: ignore[no-untyped-call]
        features, slots, prototypes, temperature, seen, valid, pseudo_prototypes, gradient
    )
    return loss


def ppp_gradient(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    temperature: float,
    seen: Tensor | None = None,
    valid: Tensor | None = None,
    pseudo_prototypes: bool = True,
    gradient: Gradient = "released",
) -> Tensor:
    """The derivative of `ppp_loss` by `features`, `[batch, d]`, without autograd: all that a training step needs."""
    return _computed(
        features, slots, prototypes, seen, valid, temperature, pseudo_prototypes, gradient, False
    )[1]


class _PPPLoss(torch.autograd.Function):
    """Value and gradient in one pass; the gradient has a closed form in the same sigmoids."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        slots: Tensor,
        prototypes: Tensor,
        temperature: float,
        seen: Tensor | None,
        valid: Tensor | None,
        pseudo: bool,
        gradient: Gradient,
    ) -> Tensor:
        loss, slope = _computed(features, slots, prototypes, seen, valid, temperature, pseudo, gradient, True)
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, outer):  # type: ignore[no-untyped-def]
        (slope,) = ctx.saved_tensors
        return slope * outer, None, None, None, None, None, None, None


def _computed(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    seen: Tensor | None,
    valid: Tensor | None,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, as tensors."""
    xp, arrays = as_arrays(features, slots, prototypes, seen, valid)
    f, y, p, s, v = arrays
    loss, slope = _value_and_gradient(xp, f, y, p, s, v, *options)
    return torch.as_tensor(loss, dtype=features.dtype), torch.as_tensor(slope)


def _value_and_gradient(
    xp: Any,
    features: Array,
    slots: Array,
    prototypes: Array,
    seen: Array | None,
    valid: Array | None,
    temperature: float,
    pseudo_prototypes: bool,
    gradient: Gradient,
    with_value: bool,
) -> tuple[Array, Array]:
    """The loss (0 unless asked for) and its derivative by `features`.

    Rows j are queries, columns i the samples they meet. xp: torch or numpy; all here means the same in both.
    """
    batch = len(features)
    scaled = features / temperature
    scores = product(scaled, prototypes.T)  # f_j·p^k/τ  [batch, classes]
    if seen is not None:
        scores = xp.where(seen, scores, NEVER)
    classes = xp.arange(scores.shape[1], device=scores.device)
    rest = _Rest(xp, scores, classes)
    R = rest.value[:, slots]  # R(f_j, y_i)  [batch, batch]
    Q = scores[:, slots]  # f_j·p^{y_i}/τ
    S = product(scaled, features.T)  # f_j·f_i/τ

    samples = xp.arange(batch, device=scores.device)
    own = samples[:, None] == samples
    same = slots[:, None] == slots
    apart = ~same
    count: Any = batch
    if valid is not None:
        both = valid[:, None] & valid
        own, same, apart, count = own & both, same & both, apart & both, valid.sum()

    # What each log-sigmoid is taken of: the pull of the attractors on f_j (eq. 3; its prototype stands on the
    # diagonal, where f_j would meet itself), and the push of the two repellors p^{y_i} and f_i (eq. 4).
    pull = xp.where(own, Q, S) - R.diagonal()[:, None]
    forces = xp.stack([pull, R - Q, R - S])
    logs = forces.clip(max=0) - xp.log1p(xp.exp(-abs(forces)))
    attractors = same if pseudo_prototypes else own
    attractor = _log_sum(xp, xp.where(attractors, logs[0], NEVER))[0]
    repellor = xp.logaddexp(logs[1], logs[2]) if pseudo_prototypes else logs[1]

    # ∂(−|B|·L) by each force z: the share of exp(log σ(z)) in its sum, times the slope σ(−z) = exp(log σ(z) − z).
    slopes = 2 * logs - forces
    by_pull = xp.exp(xp.where(attractors, slopes[0] - attractor, NEVER))
    by_push = xp.exp(xp.where(apart, slopes[1:] - repellor, NEVER))
    by_prototype = own * by_pull - by_push[0]
    by_rest = by_push[0] - own * by_pull.sum(axis=1, keepdims=True)
    if pseudo_prototypes:
        by_rest = by_rest + by_push[1]

    # From samples back to classes: every sample of a class shares the class's prototype.
    owners = (slots[:, None] == classes) * xp.ones_like(scores)
    by_scores = product(by_prototype, owners) + rest.backward(product(by_rest, owners))
    slope = product(by_scores, prototypes)
    if pseudo_prototypes:
        # f_j meets f_i as a constant and, where the gradient runs through pseudo-prototypes, f_i meets f_j.
        between = by_pull * ~own
        meets = between - by_push[1]
        if gradient != "detached":
            meets = meets - by_push[1].T
        if gradient == "full":
            meets = meets + between.T
        slope = slope + product(meets, features)
    total = _total(xp, attractor, attractors, repellor, apart, pseudo_prototypes) if with_value else 0.0
    return -total / count, slope / (-temperature * count)


def _total(
    xp: Any, attractor: Array, attractors: Array, repellor: Array, apart: Array, pseudo_prototypes: bool
) -> Array:
    """Σ_i log P(c|x_i) + Σ_i Σ_j log(1 − P_i(c|x_j)), from the logs of the sums in eq. 3 and 4."""
    sizes = attractors.sum(axis=1, keepdims=True)
    log_means = attractor - xp.log(sizes.clip(min=1))
    repelled = repellor - math.log(2.0 if pseudo_prototypes else 1.0)  # |U| is 2 or 1
    return xp.where(sizes > 0, log_means, 0.0).sum() + xp.where(apart, repelled, 0.0).sum()


class _Rest:
    """R(f_j, c) = log Σ_{k≠c} exp(scores[j, k]) for every class at once, in one pass over the classes.

    Taking a class out of the sum by subtraction loses no digits as long as it is not the largest
    term, since what is left is then at least half; the strongest class gets a sum of its own.
    """

    def __init__(self, xp: Any, scores: Array, classes: Array) -> None:
        peak = largest(scores)
        self.strongest = classes == scores.argmax(axis=1, keepdims=True)
        without_strongest, self.others = _log_sum(xp, xp.where(self.strongest, NEVER, scores))
        self.weights = xp.exp(scores - peak)
        left = xp.where(self.strongest, 1.0, self.weights.sum(axis=1, keepdims=True) - self.weights)
        self.left = left
        self.value = xp.where(self.strongest, without_strongest, xp.log(left) + peak)  # [batch, classes]

    def backward(self, slope: Array) -> Array:
        """Σ_c slope[j, c] · ∂R(f_j, c)/∂scores[j, k], the derivative being exp(scores[j, k] − R(f_j, c)) for k≠c."""
        of_strongest = (slope * self.strongest).sum(axis=1, keepdims=True)
        rises = slope * ~self.strongest / self.left
        through_weak = (rises.sum(axis=1, keepdims=True) - rises) * self.weights
        return through_weak + of_strongest * self.others


def _log_sum(xp: Any, logs: Array) -> tuple[Array, Array]:
    """log Σ_k exp(logs[j, k]) in a column, and the share of each in the sum."""
    peak = largest(logs)
    shares = xp.exp(logs - peak)
    total = shares.sum(axis=1, keepdims=True)
    return xp.log(total) + peak, shares / total
