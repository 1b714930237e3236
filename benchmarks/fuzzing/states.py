"""Forged states of a learner, drawn from a seeded generator."""

from __future__ import annotations

import json
import random
from typing import Any

import torch
from torch import Tensor

__all__ = ["JUNK", "forged_state"]


def _mangled(rng: random.Random, part: Any) -> Any:
    """A part of a state, with something wrong about it."""
    if not isinstance(part, Tensor) or part.device.type != "cpu" or part.layout != torch.strided:
        return rng.choice([None, 3, "", b"", [], {}])
    choice = rng.randrange(13)
    if choice == 0:
        return part[:-1] if part.ndim and len(part) else part[None]
    if choice == 1:
        return torch.cat([part, part[:1]]) if part.ndim and len(part) else part[None]
    if choice == 2:
        return part[None]
    if choice == 3:
        return part.flatten()[:0]
    if choice == 4:
        kinds = [
            torch.float64,
            torch.float16,
            torch.int8,
            torch.int64,
            torch.bool,
            torch.uint8,
            torch.complex64,
        ]
        return part.to(rng.choice(kinds))
    if choice == 5:
        return rng.choice([None, "x", 3, 1.5, [], part.tolist(), object()])
    if choice == 6:
        return part.to("meta")
    if choice == 7:
        return part.to_sparse() if part.ndim and part.dtype != torch.uint16 else part[None]
    if choice == 8 and part.is_floating_point():
        largest = min(1e38, torch.finfo(part.dtype).max)
        return torch.full_like(part, rng.choice([float("nan"), float("inf"), largest]))
    if choice == 9 and part.numel():
        part = part.clone(memory_format=torch.contiguous_format)
        value = (
            rng.choice([float("nan"), float("-inf")])
            if part.is_floating_point()
            else rng.choice([-1, 99, 127])
        )
        part.view(-1)[rng.randrange(part.numel())] = value
        return part
    if choice == 10 and not part.is_floating_point():
        return torch.full_like(part, rng.choice([-1, 0, 1, 7, 99]))
    if choice == 11 and part.dtype == torch.int64:
        return torch.full_like(part, rng.choice([-(2**63), 2**63 - 1, 2**40]))
    return part.flip(0) if part.ndim else part + 1


JUNK: list[Any] = [
    None, True, 0, -1, 3, 2**31, 2**63, 10**30, 1e308, float("inf"), float("nan"), "", "a", "x" * 50, "uint8",
    "qint8", "Tensor", "load", [], [1], [[]], [-1, 2], [2**62, 2**62, 0], [2**31, 2**31], [6.0], ["6"], [None], {},
    {"float": "x"}, {"float": 3}, {"tuple": 3}, {"tuple": [[1]]}, {"unknown": True}, {"bytes": "zz"},
    {"a": 1, "b": 2}, ["a", "a"], [{"tuple": ["a"]}], "module:x", "function:x",
]  # fmt: skip


def forged_state(rng: random.Random, state: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A state with one thing or a few wrong about it, and what that is."""
    state, done = dict(state), []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        choice = rng.random()
        name = rng.choice(sorted(state)) if state else "meta"
        if choice < 0.15:
            state.pop(name, None)
            done.append(f"without {name}")
        elif choice < 0.25:
            state[rng.choice(["more", "network.more", "memory.more", "run.x", ""])] = torch.zeros(2)
            done.append("a part more")
        elif choice < 0.55 and isinstance(state.get("meta"), str):
            state["meta"], what = _forged_meta(rng, state["meta"])
            done.append(what)
        elif name in state:
            state[name] = _mangled(rng, state[name])
            kind = state[name].dtype if isinstance(state[name], Tensor) else type(state[name]).__name__
            done.append(f"{name} mangled ({kind})")
    return "; ".join(done), state


def _forged_meta(rng: random.Random, meta: str) -> tuple[str, str]:
    """What a state says of itself, with something wrong about it, and what that is."""
    choice = rng.random()
    if choice < 0.1:
        return rng.choice(["", "{", "[]", "3", "null", '"x"', "[" * 5000, "NaN", '{"format": 2}']), "no meta"
    try:
        said = json.loads(meta)
    except (ValueError, RecursionError):  # it was forged before
        return meta, "no meta"
    if not isinstance(said, dict) or not said:
        return meta, "no meta"
    name = rng.choice(sorted(said))
    inside, path = said, name
    if isinstance(said[name], dict) and said[name] and rng.random() < 0.7:
        inside, name = said[name], rng.choice(sorted(said[name]))
        path = f"{path}.{name}"
    if rng.random() < 0.2:
        del inside[name]
        return json.dumps(said), f"meta without {path}"
    if name == "labels" and isinstance(inside[name], list) and inside[name] and rng.random() < 0.5:
        inside[name] = [*inside[name][1:], rng.choice(JUNK)]
    elif rng.random() < 0.2:
        inside[f"{name}?"] = inside.pop(name)
    else:
        inside[name] = rng.choice(JUNK)
    return json.dumps(said), f"meta: {path} = {str(inside.get(name))[:40]}"
