"""A learner as a state: one flat dict that is everything it is, and that it can be made from again."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
from torch import Tensor

from everlearn import checkpoint
from everlearn.checkpoint import CheckpointError, State
from everlearn.learners.foundation import Foundation, plain
from everlearn.learners.snapshot import in_turn
from everlearn.memory.labels import decode_label, encode_label
from everlearn.words import differing

__all__ = ["Stateful", "read_meta", "under"]

FORMAT = 2
# What a run adds to the state of its learner (engine/checkpoints.py), which can be loaded by itself all the same.
OF_A_RUN = "run."


class Stateful(Foundation):
    """The part of a learner that gives its state and takes one up."""

    @in_turn
    def state_dict(self) -> State:
        """Everything, as one flat dict of tensors and a JSON string "meta"."""
        meta = {
            "format": FORMAT,
            **self._identity(),
            "seed": self.seed,
            "sample_shape": self.sample_shape,
            "sample_type": str(self.sample_type).removeprefix("torch."),
            "labels": [encode_label(label) for label in self.classes],
            "batches": self.batches,
            "samples": self.samples,
        }
        state: State = {
            "generator": self.generator.get_state(),
            "meta": json.dumps(meta),
            **self.asked.state(),
        }
        if self.network is not None:
            state |= {f"network.{name}": part.clone() for name, part in self.network.state_dict().items()}
            state |= self._parts()
        return state

    def _parts(self) -> State:
        """The tensors of the state beside the network's and the generator's."""
        kept = {} if self.memory is None else self.memory.state()
        return {f"memory.{name}": part for name, part in kept.items()}

    @in_turn
    def load_state_dict(self, state: State) -> None:
        """Take up a state that `state_dict` gave: whole or, with a CheckpointError, not at all."""
        meta = read_meta(state)
        # A setting that came later is off in a state that does not know it.
        meta["settings"] = plain(self.Settings()) | meta["settings"]
        for part, mine in self._identity().items():
            if meta[part] != mine:
                theirs, own = differing(meta[part], mine)
                raise CheckpointError(f"this state has the {part} {theirs!r}, but the learner has {own!r}")
        twin = type(self)(self.given, seed=meta["seed"], device=str(self.device), **vars(self.settings))
        try:
            twin._take(state, meta)
        except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as error:
            raise CheckpointError(f"this state can't be taken up: {str(error).splitlines()[0]}") from None
        own = {name for name in state if not name.startswith(OF_A_RUN)}
        unknown = sorted(own - twin.state_dict().keys())
        if unknown:
            raise CheckpointError(f"this state has parts that {self.name} has not: {', '.join(unknown)}")
        self.__dict__ = {**twin.__dict__, "_captured": self._captured, "_turn": self._turn}
        self._replaced()

    def _take(self, state: State, meta: dict[str, Any]) -> None:
        """Become what a state says; the network comes last, since it may be the user's own."""
        self.batches, self.samples = meta["batches"], meta["samples"]
        if meta["sample_shape"] is not None:
            self._begin(torch.zeros(2, *meta["sample_shape"], dtype=getattr(torch, meta["sample_type"])))
            for code in meta["labels"]:
                self.labels.add(decode_label(code))
            if self.labels:
                self._open_classes(len(self.labels))
            self._take_parts(state)
            self._take_network(under("network.", state))
        self.generator.set_state(state["generator"])
        self.asked.restore(state)

    def _take_parts(self, state: State) -> None:
        """Take up the tensors that `_parts` gave."""
        if self.memory is not None:
            self.memory.restore(under("memory.", state), self.device)

    def _take_network(self, weights: dict[str, Tensor]) -> None:
        self._check_network(weights)
        assert self.network is not None
        self.network.load_state_dict(weights)

    def _check_network(self, weights: dict[str, Tensor]) -> None:
        """Refuse the weights of another network, by name and shape."""
        assert self.network is not None
        mine = {name: part.shape for name, part in self.network.state_dict().items()}
        theirs = {name: part.shape for name, part in weights.items()}
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                shapes = [list(side[name]) if name in side else "absent" for side in (theirs, mine)]
                raise CheckpointError(f"{name} is {shapes[0]} in the state, {shapes[1]} in the network")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one safetensors file, atomically."""
        checkpoint.write(self.state_dict(), path)


def read_meta(state: State) -> dict[str, Any]:
    """What a state says of itself, or a CheckpointError."""
    try:
        meta = json.loads(state["meta"])
        version = meta["format"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError("this is no state of a learner: it has no readable meta") from None
    if version != FORMAT:
        raise CheckpointError(
            f"this state is of format {version!r}, and this version of everlearn reads {FORMAT}"
        )
    missing = {
        "learner",
        "network",
        "settings",
        "seed",
        "sample_shape",
        "sample_type",
        "labels",
    } - meta.keys()
    if missing:
        raise CheckpointError(f"this state's meta lacks {', '.join(sorted(missing))}")
    if not isinstance(meta["settings"], dict):
        raise CheckpointError(f"this state's settings are {meta['settings']!r}, and should have names")
    return dict(meta)


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """The tensors of a state whose names begin so, without it."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}
