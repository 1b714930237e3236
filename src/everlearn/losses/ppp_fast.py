"""The fast path of the PPP-loss (ppp.py): its value and gradient in closed form, with numpy on the CPU.

With a = exp(f·q/τ) for a proxy q of class c, and the rest r = Σ_{k≠c} exp(f·p^k/τ), equation 5 reads
P(c|f, q) = a / (a + r), and 1 − P = r / (a + r), which avoids a subtraction.
Below, names without `_` are for prototypes as proxies, names that end in `_` for pseudo-prototypes.
All exponents are relative to that of the nearest prototype, in float64: exact for temperatures above 0.003, and
finite below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from everlearn.arrays import Array, as_arrays, as_double, has_float64, largest, like, product, take

__all__ = ["FastPath", "Gradient", "fast_path", "ppp_gradient"]

Gradient = Literal["released", "full", "detached"]

# A score whose exponential is 0; finite, to avoid NaN from inf − inf.
NEVER = -1e4
# The largest exponent in float64, and a constant that avoids 0 / 0.
FAR, TINY = 700, 1e-300
# Pairs of samples per block: on the CPU with numpy, on a GPU with torch.
PAIRS = 2**18, 2**22


class FastPath:
    """A loss with its fast path: a call computes the closed form; `plain` is the original function.

    gradient: the derivative with respect to the features, without autograd; a training step needs only this.
    """

    def __init__(self, plain: Callable[..., Tensor]) -> None:
        self.plain, self.gradient = plain, ppp_gradient
        functools.update_wrapper(self, plain)

    def __call__(
        self,
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
        _check(slots, prototypes, temperature, pseudo_prototypes, gradient)
        loss: Tensor = _PPPLoss.apply(  # type: ignore[no-untyped-call]
            features, slots, prototypes, temperature, seen, valid, pseudo_prototypes, gradient, repellor
        )
        return loss


def _check(
    slots: Tensor, prototypes: Tensor, temperature: Any, pseudo_prototypes: Any, gradient: Any
) -> None:
    """Raise a ValueError for arguments that would give a wrong number."""
    if gradient not in get_args(Gradient):
        raise ValueError(f"gradient is one of {', '.join(get_args(Gradient))}, not {gradient!r}")
    if not isinstance(pseudo_prototypes, bool):
        raise ValueError(f"pseudo_prototypes is True or False, not {pseudo_prototypes!r}")
    if not temperature > 0:
        raise ValueError(f"temperature is above 0, not {temperature!r}")
    if slots.device.type == "cpu" and len(slots):  # elsewhere the host would wait
        least, most = int(slots.min()), int(slots.max())
        if least < 0 or most >= len(prototypes):
            wrong, last = least if least < 0 else most, len(prototypes) - 1
            raise ValueError(
                f"slots are rows of prototypes, 0 to {last}, also where valid is False, not {wrong}"
            )


def fast_path(plain: Callable[..., Tensor]) -> FastPath:
    """A decorator that replaces calls of the plain PPP-loss by the closed form."""
    return FastPath(plain)


def ppp_gradient(
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
    """The derivative of the PPP-loss with respect to `features`, `[batch, d]`, without autograd."""
    return _computed(
        features, slots, prototypes, seen, valid, temperature, pseudo_prototypes, gradient, repellor, False
    )[1]


class _PPPLoss(torch.autograd.Function):
    """Value and gradient in one pass; the gradient has a closed form in the same terms."""

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
        repellor: float,
    ) -> Tensor:
        loss, slope = _computed(
            features, slots, prototypes, seen, valid, temperature, pseudo, gradient, repellor, True
        )
        ctx.save_for_backward(slope)
        return loss

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError(
                "this form of the PPP-loss has no second derivative: call ppp_loss.plain instead"
            )
        (slope,) = ctx.saved_tensors
        return slope * outer, *[None] * 8


def _computed(
    features: Tensor,
    slots: Tensor,
    prototypes: Tensor,
    seen: Tensor | None,
    valid: Tensor | None,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, as tensors."""
    tensors: list[Tensor | None] = [features, slots, prototypes, seen, valid]
    if not has_float64(features.device):
        tensors = [None if tensor is None else tensor.cpu() for tensor in tensors]
    xp, arrays = as_arrays(*tensors)
    loss, slope = _value_and_gradient(xp, *arrays, *options)
    dtype, device = features.dtype, features.device
    # A CUDA graph can't capture the copy of a number from the host, which the loss is where nothing asks for it.
    value = torch.as_tensor(loss, dtype=dtype, device=device) if options[-1] else features.new_empty(())
    return value, torch.as_tensor(slope, dtype=dtype, device=device)


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
    repellor: float,
    with_value: bool,
) -> tuple[Array, Array]:
    """The loss (0 unless `with_value`) and its derivative with respect to `features`.

    xp: torch or numpy. A batch with more pairs of samples than `PAIRS` is computed in blocks of rows, so that memory
    is linear in the batch size.
    """
    batch = len(features)
    block = max(1, PAIRS[xp is torch] // max(batch, 1))
    counted = None if valid is None else as_double(valid)
    size: Any = max(batch, 1) if valid is None else valid.sum().clip(1)
    options = temperature, pseudo_prototypes, repellor, with_value
    samples = features, slots, prototypes, seen, counted
    if block >= batch:
        value, by_scores, pull_, push_ = _of_rows(xp, slice(0, batch), *samples, *options)
        slope = product(like(by_scores, features), prototypes)
        if pseudo_prototypes:
            # f_i as a constant proxy of f_j; and, where gradients flow through pseudo-prototypes, f_j as that of f_i.
            pairs = pull_ - push_
            if gradient != "detached":
                pairs = pairs - push_.T
            if gradient == "full":
                pairs = pairs + pull_.T
            slope = slope + product(like(pairs, features), features)
        return -value / size, slope / (-temperature * size)

    value, slope = 0.0, as_double(features) * 0
    for start in range(0, batch, block):
        rows = slice(start, min(start + block, batch))
        part, by_scores, pull_, push_ = _of_rows(xp, rows, *samples, *options)
        value = value + part
        slope[rows] += product(like(by_scores, features), prototypes)
        if pseudo_prototypes:
            pairs = like(pull_ - push_, features)
            slope[rows] += product(pairs, features)
            if gradient != "detached":
                back = pairs if gradient == "full" else like(-push_, features)
                slope += product(back.T, features[rows])
    return -value / size, like(slope / (-temperature * size), features)


def _of_rows(
    xp: Any,
    rows: slice,
    features: Array,
    slots: Array,
    prototypes: Array,
    seen: Array | None,
    counted: Array | None,
    temperature: float,
    pseudo_prototypes: bool,
    repellor: float,
    with_value: bool,
) -> tuple[Array, Array, Array, Array]:
    """The contribution of some rows of a batch to the sum of the loss (0 unless `with_value`) and to the gradient.

    Rows are the samples j, columns the samples i. The gradient has three parts: with respect to the scores,
    `[rows, classes]`; and the pull and push of pseudo-prototypes, `[rows, batch]`, if they are used.
    """
    scaled = features[rows] / temperature
    scores = as_double(product(scaled, prototypes.T))  # f_j·p^k/τ  [rows, classes]
    if seen is not None:
        scores = xp.where(seen, scores, NEVER)
    rest = _Rest(xp, scores)
    owners = as_double(slots[:, None] == rest.classes)  # [batch, classes]
    own = owners[rows]
    r = take(rest.value, slots)  # of f_j and the class of i  [rows, batch]
    a = take(rest.weights, slots)  # of f_j and p^{y_i}
    a_ = xp.exp((as_double(product(scaled, features.T)) - rest.peak).clip(-FAR, FAR))  # of f_j and f_i
    sums, sums_ = a + r, a_ + r
    same = as_double(slots[rows][:, None] == slots)
    apart, pairs = repellor * (1 - same), same - _itself(xp, rows, features)
    this: Any = 1
    if counted is not None:
        this = counted[rows]
        both = this[:, None] * counted
        apart, pairs = apart * both, pairs * both

    # The attractors of f_j (eq. 3) are its prototype and the other samples of its class.
    # ∂ log Σ P / ∂ log a = P (1 − P) / Σ P.
    first = rows.start
    near = a.diagonal(first) / sums.diagonal(first) * this  # P(c|f_j, p^c)  [rows]
    near_ = pairs * a_ / sums_  # P(c|f_j, f_i)
    attracted = near + near_.sum(1) if pseudo_prototypes else near
    pull = near * r.diagonal(first) / (sums.diagonal(first) * (attracted + TINY))
    pulled = pull
    # The repellors of f_j (eq. 4) are p^{y_i} and f_i. −∂ log Σ (1 − P) / ∂ log a = P (1 − P) / Σ (1 − P); with
    # 1 − P = r / (a + r) for both, r cancels.
    push = apart * a / sums
    push_of_rest = push
    pull_ = push_ = None
    if pseudo_prototypes:
        pull_ = near_ * r / (sums_ * (attracted + TINY)[:, None])
        pulled = pull + pull_.sum(1)
        push_ = apart * a_ * sums / (sums_ * (sums + sums_))
        push = push * sums_ / (sums + sums_)
        push_of_rest = push + push_

    # Sum over the samples of each class, which share its prototype.
    by_rest = product(push_of_rest, owners) - own * pulled[:, None]
    by_scores = own * pull[:, None] - product(push, owners) + rest.backward(by_rest)
    value: Any = 0.0
    if with_value:
        # Σ_i log P(c|x_i) + Σ_i Σ_j log(1 − P_i(c|x_j)), each the log of a mean over its proxies.
        proxies = 1 + pairs.sum(1) if pseudo_prototypes else 1
        away = (r / sums + r / sums_) / 2 if pseudo_prototypes else r / sums
        drawn = xp.where(attracted > 0, attracted / proxies, TINY)
        value = (xp.log(drawn) * this).sum() + (xp.log(away + TINY) * apart).sum()
    return value, by_scores, pull_, push_


def _itself(xp: Any, rows: slice, features: Array) -> Array:
    """1 where row and column are the same sample, `[rows, batch]`."""
    count, batch = rows.stop - rows.start, len(features)
    if count == batch:
        return xp.eye(batch, device=features.device)
    places = xp.arange(batch, device=features.device)
    return as_double(places[rows, None] == places)


class _Rest:
    """r = Σ_{k≠c} exp(scores[j, k]) relative to the largest of the row, for every class c at once.

    Subtracting the term of a class from the sum loses no precision unless it is the largest term; the class with
    the largest term gets a separate sum.
    """

    def __init__(self, xp: Any, scores: Array) -> None:
        self.classes = xp.arange(scores.shape[1], device=scores.device)
        self.peak = largest(scores)
        self.weak = as_double(self.classes != scores.argmax(axis=1, keepdims=True))
        self.weights = xp.exp(scores - self.peak)  # 1 for the largest
        self.others = self.weights * self.weak
        self.sum = self.others.sum(axis=1, keepdims=True)
        self.value = self.sum - self.others + self.weak  # [batch, classes]

    def backward(self, slope: Array) -> Array:
        """Σ_c slope[j, c] · ∂ log r(j, c) / ∂ scores[j, k], the derivative being weights[j, k] / r(j, c) for k≠c."""
        weak = slope * self.weak
        ratios = weak / (self.value + TINY)
        of_largest = (slope - weak).sum(axis=1, keepdims=True)
        through_weak = (ratios.sum(axis=1, keepdims=True) - ratios) * self.weights
        return through_weak + of_largest / (self.sum + TINY) * self.others
