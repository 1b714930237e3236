"""The state of a learner: one flat dict from which the learner can be restored exactly."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from everlearn import checkpoint
from everlearn.checkpoint import CheckpointError, State
from everlearn.core.arguments import MLP
from everlearn.core.columns import columns_in
from everlearn.core.input_kind import PLAIN, Options
from everlearn.core.locking import synchronized
from everlearn.core.settings import settings_as_dict
from everlearn.core.state_checks import FORMAT, check_finite, check_size, check_tensors, read_meta
from everlearn.core.validation import try_network
from everlearn.encoders import same_encoder
from everlearn.memory.labels import as_labels, decode_label, encode_label, shortened
from everlearn.messages import differing
from everlearn.training.optimizers import StatefulOptimizer
from everlearn.training.passes import NotFinite

if TYPE_CHECKING:
    from everlearn.core.learner import Learner

__all__ = [
    "check_network",
    "encoder_version",
    "extra_state",
    "finite_state_of",
    "footprint",
    "identity",
    "load_into",
    "restore_extra",
    "save",
    "state_of",
    "under",
]

AS_BEFORE = ("images", PLAIN)  # kinds of input without options of their own, as all were in older states
# The prefixes of what a run (engine/checkpoints.py) or a live learner (live/model.py) adds to the state of its
# learner, which ignores it.
OF_OTHERS = ("run.", "live.")


@synchronized
def state_of(learner: Learner) -> State:
    """The complete state, as one flat dict of tensors and a JSON string "meta"."""
    learner.settle()
    meta = {
        "format": FORMAT,
        **identity(learner),
        "seed": learner.seed,
        "sample_shape": learner.sample_shape,
        "sample_type": str(learner.sample_type).removeprefix("torch."),
        "labels": [encode_label(label) for label in learner.classes],
        "batches": learner.batches,
        "samples": learner.samples,
    }
    if learner.input_kind not in (None, *AS_BEFORE) or learner.options.calibration == "replay":
        meta["input"] = learner.input_kind
    if learner.columns is not None:
        meta["columns"] = learner.columns.as_json()
    if learner.unlabelled:
        meta["unlabelled"] = learner.unlabelled
    if (version := encoder_version(learner)) is not None:
        meta["encoder_version"] = version
    state: State = {
        "generator": learner.generator.get_state(),
        "meta": json.dumps(meta),
        **learner.waiting.state(),
    }
    if learner.network is not None:
        weights = learner.network.state_dict()
        state |= {f"network.{name}": part.clone() for name, part in weights.items()}
        state |= learner.extra_state()
    return state


def identity(learner: Learner) -> dict[str, Any]:
    """What must be the same in a learner and a state it loads, and in two learners that are merged."""
    settings = settings_as_dict(learner.settings)
    encoder = {} if learner.encoder is None else {"encoder": learner.encoder.name}
    return {"learner": learner.name, "network": learner.network_name, **encoder, "settings": settings}


def encoder_version(learner: Learner) -> str | None:
    """What identifies the model of the learner's encoder, if it has one and that is known."""
    return None if learner.encoder is None else learner.encoder.version


def extra_state(learner: Learner) -> State:
    """The tensors of the state besides the network's and the generator's."""
    state: State = {}
    if learner.memory is not None:
        state |= {f"memory.{name}": part for name, part in learner.memory.state().items()}
    if learner.average is not None:
        weights = learner.average.network.state_dict()
        state |= {f"average.{name}": part.clone() for name, part in weights.items()}
        state["newest"] = torch.tensor(learner.newest)
    for part in (learner.standardisation, learner.calibration, learner.drift):
        state |= {} if part is None else part.state()
    if learner.prototype_memory is not None:
        state |= learner.prototype_memory.state()
    if isinstance(learner.sgd, StatefulOptimizer):
        state |= {f"optimizer.{name}": part for name, part in learner.sgd.state().items()}
    return state


def restore_extra(learner: Learner, state: State) -> None:
    """Load the tensors that `extra_state` returned."""
    check_network(learner, under("network.", state))  # the other tensors depend on it
    restore_memory(learner, state)
    if learner.average is not None:
        learner.average.network.load_state_dict(under("average.", state))
        learner.newest = int(state["newest"])
        if not 0 <= learner.newest <= learner.batches:
            raise ValueError(f"newest is {learner.newest} in a state of {learner.batches} batches")
    for part in (learner.standardisation, learner.calibration, learner.drift):
        if part is not None:
            part.restore(state)
    if learner.prototype_memory is not None:
        learner.prototype_memory.restore(state)
    if isinstance(learner.sgd, StatefulOptimizer):
        learner.sgd.restore(under("optimizer.", state))


def footprint(learner: Learner) -> dict[str, int]:
    """Bytes of the operational memory M, by part."""
    optimiser = getattr(learner, "sgd", None)
    parts = {
        "replay": None if learner.memory is None else learner.memory.nbytes(),
        "asked": learner.waiting.nbytes() or None,
        "averaged weights": None if learner.average is None else learner.average.nbytes(),
        "prototypes": None if learner.prototype_memory is None else learner.prototype_memory.nbytes(),
        "standardisation": None if learner.standardisation is None else learner.standardisation.nbytes(),
        "views": None if learner.images is None else learner.images.nbytes() or None,
        "optimiser": optimiser.nbytes() if isinstance(optimiser, StatefulOptimizer) else None,
    }
    return {name: held for name, held in parts.items() if held is not None}


def finite_state_of(learner: Learner) -> State:
    """The same; raises a CheckpointError if the network has diverged."""
    state = learner.state_dict()
    if learner.network is not None:
        frozen = {name for name, part in learner.network.named_parameters() if not part.requires_grad}
        check_finite(state, frozen | {name for name, _ in learner.network.named_buffers()})
    return state


def save(learner: Learner, path: str | os.PathLike[str]) -> None:
    """Write the state to one safetensors file, atomically. A network that has diverged is not saved."""
    checkpoint.write(finite_state_of(learner), path)


@synchronized
def load_into(learner: Learner, state: State) -> None:
    """Load a state from `state_dict`; if it is not valid, raise a CheckpointError and change nothing."""
    if torch.is_inference_mode_enabled():  # weights made in it can never be trained
        with torch.inference_mode(False):
            load_into(learner, state)
        return
    meta = read_meta(state)
    check_tensors(state)
    # A setting that is newer than the state has its default, which is off.
    meta["settings"] = settings_as_dict(learner.Settings()) | learner.Settings.before | meta["settings"]
    if "input" not in meta:  # what a setting of None stands for without options of the kind of input
        own = vars(learner.settings)
        same = (name for name, value in vars(Options()).items() if meta["settings"].get(name, ()) == value)
        meta["settings"] |= {name: None for name in same if own.get(name, ()) is None}
    mine, given = identity(learner), learner.given
    if learner.network_by_default and learner.encoder is not None and meta["network"] == MLP:
        mine["network"] = given = MLP  # which was the default with an encoder, too, in an older version
    if not same_encoder(meta.get("encoder"), mine.get("encoder")):
        names = (shortened(each.get("encoder")) for each in (meta, mine))
        raise CheckpointError("this state has the encoder {}, but the learner has {}".format(*names))
    mine.pop("encoder", None)
    saved, now = meta.get("encoder_version"), encoder_version(learner)
    for part, value in mine.items():
        if meta[part] != value:
            theirs, own = differing(meta[part], value)
            raise CheckpointError(f"this state has the {part} {theirs!r}, but the learner has {own!r}")
    if meta["sample_shape"] is not None:
        check_size(state, meta, lambda: _network_size(learner, given, tuple(meta["sample_shape"])))
    settings = vars(learner.settings)
    twin = type(learner)(
        given,
        seed=meta["seed"],
        device=str(learner.device),
        encoder=learner.encoder,
        **settings,
    )
    module = learner.given if isinstance(learner.given, nn.Module) else nn.Module()
    before = {name: part.clone() for name, part in module.state_dict().items()}
    loaded: dict[str, Any] = {}
    try:
        _restore(twin, state, meta)
        unknown = {name for name in state if not name.startswith(OF_OTHERS)} - twin.state_dict().keys()
        if unknown:
            first, more = sorted(unknown)[:3], max(len(unknown) - 3, 0)
            listed = ", ".join(first) + (f" and {more} more" if more else "")
            raise CheckpointError(f"this state has tensors that {learner.name} does not have: {listed}")
        check_finite(state, {name for name, part in before.items() if not bool(part.isfinite().all())})
        _check_exemplars(twin)
        learner.tensors_replaced()
        with suppress(NotFinite):  # of a batch before the new state
            learner.settle()
        kept = {name: getattr(learner, name) for name in ("graphs", "part_graphs", "lock")}
        loaded = twin.__dict__ | kept
        if twin.head is not None:
            loaded["head"] = twin.head.copy(learner)
        learner.__dict__ = loaded
    except BaseException as error:
        if learner.__dict__ is loaded:  # interrupted after the state was loaded
            raise
        module.load_state_dict(before)
        if isinstance(error, CheckpointError) or not isinstance(error, Exception):
            raise
        raise CheckpointError(f"this state can't be loaded: {_reason(error)}") from None
    if None not in (saved, now) and saved != now:
        warnings.warn(
            f"this state was saved with another version of its encoder, {saved!r}; it is now {now!r}, and may give "
            "other vectors for the same samples",
            stacklevel=3,
        )


def _reason(error: Exception) -> str:
    """What an error says, in one line."""
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    first, *more = (str(error) or type(error).__name__).splitlines()
    return f"{first} {more[0].strip()}" if more and first.endswith(":") else first


def _restore(learner: Learner, state: State, meta: dict[str, Any]) -> None:
    """Load a state into a new learner; the network's weights last, since it may be the user's module."""
    learner.batches, learner.samples = meta["batches"], meta["samples"]
    learner.columns, learner.unlabelled = columns_in(meta), meta.get("unlabelled", 0)
    if meta["sample_shape"] is not None:
        learner.input_kind = meta.get("input", PLAIN)
        learner.begin(torch.zeros(2, *meta["sample_shape"], dtype=getattr(torch, meta["sample_type"])))
        labels = as_labels([decode_label(code) for code in meta["labels"]])
        learner.labels.extend(labels)
        if len(learner.labels) != len(labels):
            raise CheckpointError("this state has the same label twice")
        if labels:
            learner.open_classes(len(labels))
        learner.restore_extra(state)
        weights = under("network.", state)
        check_network(learner, weights)
        learner.network.load_state_dict(weights)
    learner.generator.set_state(state["generator"])
    learner.waiting.restore(state)


def restore_memory(learner: Learner, state: State) -> None:
    """Load the replay memory of a state, if the learner has one."""
    if learner.memory is None:
        return
    kept = under("memory.", state)
    samples = kept["samples"]
    if (tuple(samples.shape[1:]), samples.dtype) != (learner.sample_shape, learner.sample_type):
        raise CheckpointError(
            f"the exemplars are {list(samples.shape[1:])} of {samples.dtype}, and the samples "
            f"{list(learner.sample_shape or ())} of {learner.sample_type}"
        )
    if samples.is_floating_point() and not bool(samples.isfinite().all()):
        raise CheckpointError("this state has exemplars with infinite or NaN values")
    learner.memory.restore(kept, learner.device)
    slots = learner.memory.kept()[1]
    if len(slots) and not 0 <= slots.min() <= slots.max() < len(learner.labels):
        raise CheckpointError(f"this state has exemplars of more than {len(learner.labels)} classes")


def check_network(learner: Learner, weights: dict[str, Tensor]) -> None:
    """Raise a CheckpointError if names or shapes of the weights differ from the network's."""
    mine = {name: part.shape for name, part in learner.network.state_dict().items()}
    theirs = {name: part.shape for name, part in weights.items()}
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            shapes = [list(side[name]) if name in side else "absent" for side in (theirs, mine)]
            raise CheckpointError(f"{name} is {shapes[0]} in the state, {shapes[1]} in the network")


def _check_exemplars(learner: Learner) -> None:
    """Raise an error if the user's network can't process the exemplars, as with unknown tokens."""
    if (
        learner.memory is not None
        and learner.sample_type is not None
        and isinstance(learner.given, nn.Module)
    ):
        samples = learner.memory.samples()[0]
        if len(samples) and not learner.sample_type.is_floating_point:
            try_network(learner.given, samples, ())


def _network_size(learner: Learner, given: Any, shape: tuple[int, ...]) -> int:
    """The number of parameters of the named network for samples of this shape; nothing is allocated."""
    if not isinstance(given, str):
        return 0
    try:
        with torch.device("meta"):
            network = learner.build(given, shape)
    except ValueError as error:
        raise CheckpointError(f"this state's sample_shape does not suit its network: {error}") from None
    return sum(part.numel() for part in network.parameters())


def under(prefix: str, state: State) -> dict[str, Tensor]:
    """The tensors of a state whose names start with a prefix, by the rest of the name."""
    return {name.removeprefix(prefix): part for name, part in state.items() if name.startswith(prefix)}
