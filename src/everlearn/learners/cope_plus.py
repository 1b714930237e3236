"""CoPE+: CoPE with improvements from later work on replay."""

from __future__ import annotations

import dataclasses

from everlearn.learners.cope import CoPE, CoPESettings

__all__ = ["CoPEPlus", "CoPEPlusSettings"]


@dataclasses.dataclass(frozen=True)
class CoPEPlusSettings(CoPESettings):
    """CoPE's settings with other defaults; those of each benchmark were chosen on a validation part of its stream."""

    iterations: int = 3
    """gradient steps per batch, each with fresh replay"""
    averaging: float = 0.99
    """decay per batch of the averaged weights used for predictions; 0 for no averaging"""
    recalibrate: bool = True
    """predict with prototypes computed from the memory, at the first prediction after each batch"""


class CoPEPlus(CoPE):
    """CoPE with more iterations, averaged weights and prototypes from the memory; for images, random views too.

    Memory and network are CoPE's; it makes one pass, and needs no task. For images, set `augmentation="crop-flip"`
    or "shift".

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
