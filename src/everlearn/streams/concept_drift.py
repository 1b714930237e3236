"""Scenarios with concept drift, abrupt or gradual.

All classes are shuffled together and t is hidden, so a learner gets no sign of the drift. The grey values or colours
are inverted; the labels stay the same. Concept 0 is the distribution before the drift, concept 1 the one after it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from everlearn.streams.dataset_stream import Arrangement, Concept, Drift, Segment
from everlearn.streams.task_split import TaskSplit

__all__ = ["abrupt", "gradual", "inverted"]


def abrupt(source: TaskSplit, amount: float) -> Arrangement:
    """From the middle of the stream on, all samples are inverted."""
    return gradual(source, 0.0)


def gradual(source: TaskSplit, amount: float) -> Arrangement:
    """Around the middle, over a share `amount` of the stream, more and more samples are inverted."""
    order = source.shuffled()
    held_out = torch.cat(source.held_out)
    half = int(amount * len(order) / 2)
    middle = len(order) // 2
    ranks = torch.rand(len(held_out), generator=source.generator)
    drift = Drift(middle - half, middle + half, ranks)
    probabilities = torch.tensor([drift.probability(i + 1) for i in range(len(order))])
    is_inverted = torch.rand(len(order), generator=source.generator) < probabilities
    schedule = ((0, (0,)), (drift.start, (0, 1)), (drift.stop, (1,)))
    concepts = (Concept(held_out), Concept(held_out, inverted))
    return Arrangement((Segment(order, None, inverted, is_inverted),), concepts, schedule, drift)


def inverted(x: Tensor) -> Tensor:
    """Invert images: black becomes white. Floats are expected between 0 and 1.

    >>> inverted(torch.tensor([[0, 5, 255]], dtype=torch.uint8))
    tensor([[255, 250,   0]], dtype=torch.uint8)
    """
    return (1 if x.is_floating_point() else 255) - x
