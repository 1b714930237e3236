"""CoPE+: CoPE with improvements from later work on replay."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from everlearn.learners.cope import CoPE, CoPESettings

__all__ = ["CoPEPlus", "CoPEPlusSettings"]


@dataclasses.dataclass(frozen=True)
class CoPEPlusSettings(CoPESettings):
    """CoPE's settings with other defaults; those of each benchmark were chosen on a validation part of its stream."""

    learning_rate: float = 0.1
    """step size of plain SGD"""
    iterations: int = 3
    """gradient steps per batch, each with fresh replay"""
    augmentation: str = "auto"
    """a random view of every image in each iteration: none, shift, crop-flip, or auto, which chooses by the
    channels of the images; in Python also a function of a batch"""
    averaging: float | None = 0.99
    """decay per batch of the averaged weights used for predictions; 0 for no averaging"""
    renormalise: bool | None = True
    """normalise prototypes to unit length after each update, where they follow the momentum"""
    learn_prototypes: bool = True
    """prototypes follow the gradient of the cross-entropy over them, in place of the PPP-loss and the momentum"""
    recalibrate: bool = True
    """predict with prototypes computed from the memory, at the first prediction after each batch"""

    before: ClassVar[dict[str, Any]] = CoPESettings.before | {
        "learn_prototypes": False,
        "augmentation": "none",
    }


class CoPEPlus(CoPE):
    """CoPE with prototypes that learn by gradient, and what later work has found to help replay.

    Each class has one unit-length prototype, as in CoPE. It follows the gradient of the cross-entropy over all
    prototypes; predictions use the class means of the memory.
    There are several iterations per batch, averaged weights, and random views of images. Memory and network are
    CoPE's; it makes one pass, and needs no task.

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 8) + 5 * torch.tensor([1.0, -1.0] * 20)[:, None]
    >>> y = ["high", "low"] * 20
    >>> learner = CoPEPlus("mlp", memory_size=10, hidden=16, seed=0)
    >>> for start in range(0, 40, 4):
    ...     learner.observe(x[start : start + 4], y[start : start + 4])
    >>> learner.predict(x[:4])
    ['high', 'low', 'high', 'low']

    Each addition is measured in docs/beyond.md. It is based on
    De Lange, M. and Tuytelaars, T. Continual Prototype Evolution: Learning Online from Non-Stationary
    Data Streams. ICCV 2021.
    """

    name = "cope+"
    Settings = CoPEPlusSettings
    settings: CoPEPlusSettings
