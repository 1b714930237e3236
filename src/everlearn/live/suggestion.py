"""Which waiting samples to label first, where labels cost money."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from everlearn.encoders import Features
from everlearn.label_json import Label
from everlearn.live.published import LiveSnapshot

__all__ = ["suggest"]


def suggest(snapshot: LiveSnapshot, waiting: Mapping[Label, Tensor], n: int) -> list[Label]:
    """The ids of the n waiting samples whose labels would teach most, the best first.

    A sample is worth its uncertainty (one minus the margin between the two most probable classes) times its distance
    in the embedding to the nearest sample chosen before it: uncertain samples that differ from each other. Before the
    first label, all samples are equally uncertain, and the oldest are chosen.
    """
    held = list(waiting.items())  # at once: others may ask and tell meanwhile
    ids = [key for key, _ in held]
    if not ids or not snapshot.classes:
        return ids[:n]
    x = Features(torch.stack([sample for _, sample in held]))
    top = np.sort(snapshot.predict_proba(x), axis=1)
    margin = top[:, -1] - top[:, -2] if top.shape[1] > 1 else np.zeros(len(top))
    uncertainty = 1 - margin
    features = torch.nn.functional.normalize(snapshot.embed(x).float().cpu(), dim=1)
    distance = np.full(len(ids), 2.0)  # the largest there is between vectors of unit length
    chosen: list[int] = []
    for _ in range(min(n, len(ids))):
        worth = uncertainty * distance
        worth[chosen] = -1
        best = int(worth.argmax())
        chosen.append(best)
        near = torch.linalg.vector_norm(features - features[best], dim=1).numpy()
        distance = np.minimum(distance, near)
    return [ids[i] for i in chosen]
