"""Give a learner of flat samples more input features without changing what it has learnt."""

from __future__ import annotations

import json

import torch
from torch.nn.functional import pad

from everlearn.core.learner import Learner
from everlearn.core.setup import add_classes

__all__ = ["grow_inputs"]


def grow_inputs(learner: Learner, features: int) -> None:
    """Grow the input of a learner to this many features.

    New weights start at zero, and stored samples get zeros for the new features. So predictions do not change until
    the new features are learnt. Which tensors of the state depend on the number of features is found by comparing the
    shapes of two new learners, one with the old number and one with the new.

    >>> from everlearn import CoPE
    >>> learner = CoPE("mlp", memory_size=10, hidden=16, seed=0)
    >>> learner.observe(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["left", "right"])
    >>> before = learner.predict_proba(torch.eye(2))
    >>> grow_inputs(learner, 5)
    >>> bool(abs(learner.predict_proba(torch.eye(2, 5)) - before).max() < 1e-6)
    True
    """
    state = learner.state_dict()
    meta = json.loads(state["meta"])
    (old_features,) = meta["sample_shape"]
    old_shapes, new_shapes = (_state_shapes(learner, count) for count in (old_features, features))
    for name, old_shape in old_shapes.items():
        growth = [new - old for old, new in zip(old_shape, new_shapes[name], strict=True)]
        if not {*growth} <= {0, features - old_features}:
            raise ValueError(
                f"{type(learner).__name__} can't get new features, because its {name} does not grow with them"
            )
        if any(growth):
            # `pad` expects, from the last dimension to the first, how much to add before and after.
            state[name] = pad(state[name], [side for size in reversed(growth) for side in (0, size)])
    learner.load_state_dict({**state, "meta": json.dumps({**meta, "sample_shape": [features]})})


def _state_shapes(learner: Learner, features: int) -> dict[str, tuple[int, ...]]:
    """The shapes in the state of such a learner with the same classes and this many features."""
    other = type(learner)(learner.given, seed=0, device="cpu", **vars(learner.settings))
    x, classes = torch.zeros(len(learner.classes), features), learner.classes
    add_classes(other, x, classes, learner.input_kind)
    if learner.batches:
        other.observe(x, classes)  # with the first batch come the last tensors
    return {name: tuple(part.shape) for name, part in other.state_dict().items() if name != "meta"}
