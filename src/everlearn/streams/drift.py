"""Scenarios in which what is known changes its appearance: at a moment, or little by little.

All classes come together, shuffled, and t is hidden: whoever learns is not told. The change is an inversion
of the grey values or colours; labels stay what they are. Concept 0 is how things look before, 1 after.
"""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.streams.dataset_stream import Arrangement, Concept, Drift, Stretch
from everlearn.streams.task_split import Source

__all__ = ["abrupt", "gradual", "inverted"]


def abrupt(source: Source, amount: float) -> Arrangement:
    """In the middle of the stream, everything is inverted at once."""
    return gradual(source, 0.0)


def gradual(source: Source, amount: float) -> Arrangement:
    """Around the middle, over a share `amount` of the stream, ever more samples are inverted."""
    order = source.shuffled()
    everything = torch.cat(source.held_out)
    half = int(amount * len(order) / 2)
    middle = len(order) // 2
    ranks = torch.rand(len(everything), generator=source.generator)
    drift = Drift(middle - half, middle + half, ranks)
    chances = torch.tensor([drift.chance(i + 1) for i in range(len(order))])
    changed = torch.rand(len(order), generator=source.generator) < chances
    course = ((0, (0,)), (drift.start, (0, 1)), (drift.stop, (1,)))
    concepts = (Concept(everything), Concept(everything, inverted))
    return Arrangement((Stretch(order, None, inverted, changed),), concepts, course, drift)


def inverted(x: Tensor) -> Tensor:
    """Pictures with black for white.

    >>> inverted(torch.tensor([[0, 5, 255]], dtype=torch.uint8))
    tensor([[255, 250,   0]], dtype=torch.uint8)
    """
    return 255 - x
