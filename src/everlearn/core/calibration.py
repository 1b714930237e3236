"""Calibrated probabilities, fitted to predictions of samples that were not learnt yet.

Every new batch is predicted before it is learnt. These predictions show how far probabilities can be trusted, and
whether the current or the averaged weights predict better. So no sample has to be held out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from everlearn.arrays import Array
from everlearn.checkpoint import State
from everlearn.core.input_kind import Options
from everlearn.core.replay_calibration import combined_sharpness, newton_step

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["Calibration", "calibrated", "combined", "is_due", "outputs"]

RECENT = 200  # samples over which the predictions of the two networks are compared
RATE = 0.02  # step size of biases and temperature
STEP = 10  # samples of a step, at most
SURE = 0.01  # no likelihood counts as less than this
FLATTEST, SHARPEST = -4.0, 3.0  # bounds of the logarithm of the inverse temperature
LARGEST_BIAS = 1e30  # far more than any number of steps adds up to
FIRST = 2**18  # numbers in the first samples, all of which are scored

Numbers = NDArray[np.float64]


class Calibration:
    """How scores s become probabilities: p ∝ exp(e^sharpness · s + bias), with s the blend of the networks' scores.

    evidence: the recent log-likelihood of the current and of the averaged weights; their softmax blends the two.
    sharpness: the logarithm of the inverse temperature.
    biases: one per class. With `calibration="full"` they are fitted; with `"prior"`, bias_c = log(1 + n_c).
    counts: n_c, how many samples of each class have arrived; counted with `"prior"` only.
    fits: of `"replay"`, see replay_calibration.py. due: whether the next step is used for them.
    """

    def __init__(self, options: Options) -> None:
        self._blends, self._kind = options.blend, options.calibration
        self.evidence: Numbers = np.zeros(2)
        self.sharpness = 0.0
        self.biases: Numbers = np.zeros(0)
        self.counts: Numbers = np.zeros(0)
        self.fits: Numbers = np.zeros((3, 3))
        self.due = False

    @property
    def by_replay(self) -> bool:
        """Whether it is fitted to the scores of a step, and needs no others."""
        return self._kind == "replay"

    def open_classes(self, classes: int) -> None:
        """Make room for this many classes in all."""
        new = np.zeros(classes - len(self.biases))
        self.biases, self.counts = np.append(self.biases, new), np.append(self.counts, new)

    def forget(self, slot: int) -> None:
        """Remove the bias of a class."""
        self.biases, self.counts = np.delete(self.biases, slot), np.delete(self.counts, slot)

    def count(self, slots: Sequence[int] | NDArray[np.int64], samples: Numbers | None = None) -> None:
        """Count new samples of these classes. samples: how many there are of each of them; one by default."""
        if self._kind == "prior":
            self.counts = self.counts + np.bincount(slots, samples, minlength=len(self.counts))
            self.biases = np.log1p(self.counts)

    def blended(self, outputs: Sequence[Array] | Numbers) -> Array:
        """The mean of the networks' scores, weighted by what they predicted lately; so no class affects another's."""
        if len(outputs) == 1:
            return outputs[0]
        share = 0.5 + 0.5 * math.tanh(float(self.evidence[0] - self.evidence[1]) / 2)  # softmax of the two
        return share * outputs[0] + (1 - share) * outputs[1]

    def adjusted(self, scores: Array) -> Array:
        """Calibrated scores from blended ones."""
        if self._kind == "none":
            return scores
        is_tensor = isinstance(scores, Tensor)
        biases = scores.new_tensor(self.biases.tolist()) if is_tensor else self.biases.astype(scores.dtype)
        return math.exp(self.sharpness) * scores + biases

    def record(self, outputs: Sequence[Array], slots: Sequence[int]) -> None:
        """Learn from the scores of samples before they were learnt, on the CPU, and their classes."""
        rows = np.arange(len(slots))
        scored = np.array(
            [np.asarray(scores) for scores in outputs], np.float64
        )  # [networks, samples, classes]
        if not np.isfinite(
            scored
        ).all():  # by weights that are far too large; nothing can be learnt from them
            return
        if len(scored) == 2:
            likelihoods = _softmax(scored)[:, rows, slots]
            fade = (1 - 1 / RECENT) ** len(slots)
            self.evidence = fade * self.evidence + np.log(SURE + (1 - SURE) * likelihoods).sum(1)
        if self._kind == "none":
            return
        scores = self.blended(scored)
        for start in range(0, len(slots), STEP):
            self._step(scores[start : start + STEP], slots[start : start + STEP])

    def _step(self, scores: Numbers, slots: Sequence[int]) -> None:
        """One step on the log-likelihood of these classes."""
        errors = _softmax(np.exp(self.sharpness) * scores + self.biases)
        errors[np.arange(len(slots)), slots] -= 1  # p − one-hot is the gradient by the scores
        rate = RATE * len(slots) / (1 + RATE * len(slots))
        slope = float((errors * scores).sum() / len(slots))
        moved = self.sharpness - 0.2 * rate * np.exp(self.sharpness) * slope
        self.sharpness = float(np.clip(moved, FLATTEST, SHARPEST))
        if self._kind == "full":
            self.biases = self.biases - rate * errors.mean(0)

    def follow(self, scores: Numbers, slots: NDArray[np.int64], new: int) -> None:
        """Learn from the scores of new samples and, after them, of exemplars, and their classes."""
        self.fits = newton_step(self.fits, scores, slots, new)
        self.sharpness = combined_sharpness(self.fits)

    def merge(self, other: Calibration | None, slots: NDArray[np.int64]) -> None:
        """Count what another learner has counted; the rest fits this learner's own scores, and stays."""
        if other is not None:  # as it is in a learner of images from an older state
            self.count(slots, other.counts)

    def copy(self) -> Calibration:
        """A copy; its arrays are shared, because they are replaced and never changed."""
        new = object.__new__(Calibration)
        new.__dict__ = dict(vars(self))
        return new

    def state(self) -> State:
        """Its numbers, by name."""
        state: State = {
            "calibration.evidence": torch.from_numpy(self.evidence.copy()),
            "calibration.sharpness": torch.tensor(self.sharpness, dtype=torch.float64),
            "calibration.biases": torch.from_numpy(self.biases.copy()),
        }
        if self._kind == "prior":
            state["calibration.counts"] = torch.from_numpy(self.counts.copy())
        if self.by_replay:
            state["calibration.fits"] = torch.from_numpy(self.fits.copy())
        return state

    def restore(self, state: State) -> None:
        """Load what `state` returned; raises a ValueError if it does not fit."""
        evidence, sharpness, biases = (
            state[f"calibration.{name}"].cpu() for name in ("evidence", "sharpness", "biases")
        )
        if evidence.shape != (2,) or sharpness.shape != () or biases.shape != self.biases.shape:
            raise ValueError("its calibration has another shape than its classes need")
        if not (FLATTEST <= float(sharpness) <= SHARPEST and bool((biases.abs() <= LARGEST_BIAS).all())):
            raise ValueError("its calibration has a temperature or biases that no samples lead to")
        self.evidence, self.biases = evidence.double().numpy(), biases.double().numpy()
        self.sharpness = float(sharpness)
        if self._kind == "prior":
            counts = state["calibration.counts"].cpu().double()
            if counts.shape != biases.shape or not bool(((counts >= 0) & counts.isfinite()).all()):
                raise ValueError("its calibration must have a count of at least 0 for each class")
            self.counts = counts.numpy()
            self.biases = np.log1p(self.counts)
        if self.by_replay:
            fits = state["calibration.fits"].cpu().double()
            if fits.shape != self.fits.shape or not bool(fits.isfinite().all() and (fits[1:] >= 0).all()):
                raise ValueError(
                    "its calibration must have three finite fits, with information and samples of at least 0"
                )
            self.fits = fits.numpy()


def _softmax(scores: Numbers) -> Numbers:
    powers: Numbers = np.exp(scores - scores.max(-1, keepdims=True))
    shares: Numbers = powers / powers.sum(-1, keepdims=True)
    return shares


def is_due(learner: Learner, samples: int) -> bool:
    """Whether this many new samples are scored to fit the calibration, before they are learnt.

    With `whiten`, the scores after each batch cost some d³ operations: then only the first samples and one batch of
    every d² / 4096 samples are used.
    """
    if not learner.options.whiten or learner.prototype_memory is None:
        return True
    size, before = learner.prototype_memory.vectors.shape[1], learner.samples
    every = max(size**2 // 2**12, 1)
    return before * size < FIRST or before // every != (before + samples) // every


def calibrated(learner: Learner, x: Tensor, function: Any) -> Tensor:
    """The scores of samples by a function of the learner and its samples, blended and calibrated where that is on."""
    if learner.calibration is None:
        scores: Tensor = function(learner, x)
        return scores
    blends = learner.options.blend and learner.average is not None
    scores = combined(learner, outputs(learner, x) if blends else [function(learner, x)])
    return scores


def combined(learner: Learner, scores: Sequence[Array]) -> Any:
    """The scores of one or two networks, blended and calibrated where that is on."""
    held = learner.calibration
    return scores[0] if held is None else held.adjusted(held.blended(scores))


def outputs(learner: Learner, x: Tensor) -> list[Tensor]:
    """The scores of the network in use and, to blend them, of the current weights first."""
    if learner.options.blend and learner.average is not None:
        return [learner.scores_with(network, x) for network in (learner.network, learner.average.network)]
    return [learner.scores(x)]
