"""A learner of flat samples takes more features than it began with, and forgets nothing."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch.nn.functional import pad

from everlearn.core.learner import Learner

__all__ = ["widen"]


def widen(learner: Learner, features: int) -> None:
    """Make room for so many features: whatever was seen had zeros there, and new weights begin at zero.

    So predictions stay what they were until something is learnt about the new features. Which tensors of the
    state go by the number of features is found by holding a narrow twin beside a wide one.

    >>> from everlearn import CoPE
    >>> learner = CoPE("mlp", memory_size=10, hidden=16, seed=0)
    >>> learner.observe(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["left", "right"])
    >>> before = learner.predict_proba(torch.eye(2))
    >>> widen(learner, 5)
    >>> bool(abs(learner.predict_proba(torch.eye(2, 5)) - before).max() < 1e-6)
    True
    """
    state = learner.state_dict()
    meta = json.loads(state["meta"])
    (width,) = meta["sample_shape"]
    narrow, wide = (_shapes(learner, meta, columns) for columns in (width, features))
    for name, now in narrow.items():
        more = [after - before for before, after in zip(now, wide[name], strict=True)]
        if not {*more} <= {0, features - width}:
            raise ValueError(
                f"{type(learner).__name__} can't take new features: its {name} is not one per feature"
            )
        if any(more):
            # `pad` takes the last dimension first, and for each how much before it and how much after.
            state[name] = pad(state[name], [part for size in reversed(more) for part in (0, size)])
    learner.load_state_dict({**state, "meta": json.dumps({**meta, "sample_shape": [features]})})


def _shapes(learner: Learner, meta: dict[str, Any], features: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the state of such a learner with these classes, had it begun with so many features."""
    twin = type(learner)(learner.given, seed=0, device="cpu", **meta["settings"])
    classes = learner.classes
    twin.welcome(torch.zeros(len(classes), features), classes)
    return {name: tuple(part.shape) for name, part in twin.state_dict().items() if name != "meta"}
