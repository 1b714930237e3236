"""Default settings by kind of input: the first batch shows whether samples are rows, embeddings or images.

A setting that is None has the value that suits the kind. One line of the log (`everlearn`, level INFO) names the kind
and these values.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from everlearn.core.replay_calibration import scores_are_known
from everlearn.core.settings import BalancedReplaySettings

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = ["KINDS", "PLAIN", "Options", "choose_options", "kind_of"]

LOG = logging.getLogger("everlearn")


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings that depend on the kind of input; each is explained where it is a setting."""

    standardise: bool = False
    replayed: int | None = None
    new_share: float = 0.0
    half_life: int = 0
    averaging: float = 0.0
    blend: bool = False
    drift: str = "none"
    calibration: str = "none"
    pseudo_prototypes: bool = True
    renormalise: bool = False
    class_means: bool = False
    whiten: bool = False


# Rows come one by one, their meaning may change, and neighbours resemble each other: the newest sample counts as much
# as all of the replay, exemplars age, and the averaged weights are used as far as they predict better. Labels are
# noisy, so that single samples are poor proxies of their class.
ROWS = Options(
    standardise=True,
    replayed=9,
    new_share=0.5,
    half_life=125,
    averaging=0.99,
    blend=True,
    calibration="full",
    pseudo_prototypes=False,
    renormalise=True,
)
PLAIN = "plain"
KINDS = {
    "rows": ROWS,
    "embeddings": Options(class_means=True, whiten=True, calibration="prior"),
    "images": Options(calibration="replay"),  # where a step computes what it needs
    PLAIN: Options(),
}

SMALLEST_IMAGE = 7  # pixels wide


def kind_of(x: Tensor, network: Any, encoded: bool = False) -> str:
    """The kind of these samples: `rows`, `embeddings` or `images`; `plain` if a network of the user's own takes them.

    encoded: whether an encoder has made them, so that they are never images.

    >>> kind_of(torch.randn(10, 6), "mlp"), kind_of(torch.eye(10, 784), "mlp")
    ('rows', 'images')
    """
    if not isinstance(network, str):
        return PLAIN
    if encoded:
        return "embeddings" if network == "identity" else PLAIN
    if x.dtype == torch.uint8 or x.ndim != 2 or _looks_like_flat_images(x):
        return "images"
    return "embeddings" if network == "identity" else "rows"


def _looks_like_flat_images(x: Tensor) -> bool:
    """Whether samples are square pictures in grey or colour, as numbers from 0 to 1 or whole ones up to 255."""
    sizes = (math.isqrt(x.shape[1]) ** 2, 3 * math.isqrt(x.shape[1] // 3) ** 2)
    if x.shape[1] not in sizes or x.shape[1] < SMALLEST_IMAGE**2:
        return False
    low, high = float(x.min()), float(x.max())
    return low == 0 and (high <= 1 or (high <= 255 and bool((x == x.round()).all())))


def choose_options(learner: Learner, kind: str) -> Options:
    """The options in force for this kind of input: a learner's own settings come first."""
    defaults = KINDS[kind]
    values = {}
    for field in dataclasses.fields(Options):
        if hasattr(learner.settings, field.name):
            given = getattr(learner.settings, field.name)
            suited = isinstance(learner.settings, BalancedReplaySettings) or field.name == "standardise"
            value = getattr(defaults if suited else Options(), field.name)
            values[field.name] = value if given is None else given
    if not learner.standardises:
        values["standardise"] = False
    options = Options(**values)
    if options.calibration == "replay" and not scores_are_known(learner, options):
        if learner.settings.calibration is not None:
            raise ValueError(
                f"calibration='replay' needs the scores that a step of CoPE on an MLP computes, but here "
                f"{type(learner).__name__} predicts in another way: set calibration to 'temperature'"
            )
        options = dataclasses.replace(options, calibration="none")
    chosen = [
        f"{name}={getattr(options, name)}"
        for name in values
        if getattr(learner.settings, name) is None and getattr(options, name) != getattr(Options(), name)
    ]
    if learner.network_by_default and learner.encoder is not None:
        chosen.insert(0, f"network={learner.given}")
    if chosen:
        LOG.info(
            "%s: the samples look like %s, so it uses %s; set these to change them",
            type(learner).__name__, kind, ", ".join(chosen),
        )  # fmt: skip
    return options
