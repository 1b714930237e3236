"""Attacks on one learner, counted."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from everlearn import checkpoint, load
from everlearn.checkpoint import CheckpointError
from everlearn.learners import registry
from fuzzing import inputs
from fuzzing.judge import Judge
from fuzzing.states import JUNK, forged_state
from fuzzing.subjects import DATA, make, make_for
from fuzzing.verdicts import digest, where

__all__ = ["Fuzzer"]


class Fuzzer:
    """Attacks one learner, and counts the outcomes."""

    def __init__(self, name: str, seed: int, folder: Path) -> None:
        self.name, self.path = name, folder / "state.safetensors"
        self.rng = random.Random(f"{seed} {name}")
        self.judge = Judge(self._drop)
        self.states: dict[str, Any] = {}
        self.subjects: dict[str, Any] = {}
        self.bound = "t" in registry()[name].needs
        for data in DATA:
            self._prepare(data)

    def attack(self) -> None:
        """One attack of any kind."""
        kinds = [self.batch] * 11 + [self.first_batch] * 2 + [self.state] * 4 + [self.file] * 2
        self.rng.choice([*kinds, self.setting, self.setting, self.sequence])()

    # Learners to attack.

    def _prepare(self, data: str) -> None:
        """The state of a learner that has learnt some batches; None if it takes no such data."""
        learner = self._new(data)
        accepted = [self.judge.accepts(f"a good batch of {data}", learner, lambda: self._good(learner, data))]
        accepted += [
            self.judge.accepts(f"{data} again", learner, lambda: self._good(learner, data)) for _ in range(2)
        ]
        self.states[data] = learner.state_dict() if all(accepted) else None

    def _new(self, data: str) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return make_for(self.name, data)

    def _subject(self, data: str) -> Any:
        """A learner that has learnt something, the one of before unless that has grown."""
        learner = self.subjects.get(data)
        if learner is None or len(learner.classes) > 8:
            learner = self._new(data)
            learner.load_state_dict(self.states[data])
            self.subjects[data] = learner
        return learner

    def _drop(self, learner: Any) -> None:
        """Go on with another one."""
        self.subjects = {data: other for data, other in self.subjects.items() if other is not learner}

    def _any_data(self) -> str:
        known = [data for data in DATA if self.states[data] is not None]
        return "mlp" if self.rng.random() < 0.5 else self.rng.choice(known)

    def _x(self, data: str) -> Tensor:
        return inputs.good_samples(self.rng, DATA[data].shape, DATA[data].dtype)

    def _good(self, learner: Any, data: str) -> None:
        """A batch that any learner should take."""
        x = self._x(data).clamp(-1, 1) if DATA[data].dtype.is_floating_point else self._x(data)
        learner.observe(x, inputs.good_labels(self.rng), 0 if self.bound else None)

    def _still_works(self, what: str, learner: Any, data: str, forged: bool = False) -> None:
        """A learner that accepted something must go on; with forged weights it may raise a clear error."""
        for word, call in {
            "a good batch": lambda: self._good(learner, data),
            "predict": lambda: learner.predict(self._x(data)),
            "save": lambda: self._save_and_load(learner),
        }.items():
            if not self.judge.accepts(f"{word} after {what}", learner, call):
                if not forged and data != "explosive":
                    self.judge.counts["raw"] += 1
                    self.judge.note(f"BLOCKED: {word} is refused afterwards", what)
                self._drop(learner)
                return

    def _save_and_load(self, learner: Any) -> None:
        learner.save(self.path)
        network = learner.given if isinstance(learner.given, nn.Module) else None
        again = load(self.path, network=network, device="cpu")
        if digest(again) != digest(learner):
            self.judge.counts["changed"] += 1
            self.judge.note("CHANGED by save and load", "")

    # Batches.

    def batch(self) -> None:
        """A hostile batch for a learner that has learnt something."""
        data = self._any_data()
        self._call(self._subject(data), data)

    def first_batch(self) -> None:
        """A hostile batch for a learner that has seen none."""
        data = self.rng.choice(list(DATA))
        learner = self._new(data)
        self._call(learner, data)

    def _call(self, learner: Any, data: str) -> None:
        rng = self.rng
        x: Any = self._x(data)
        y: Any = inputs.good_labels(rng)
        t: Any = rng.choice([0, 0, 1]) if self.bound else None
        ids: Any = [rng.choice("pqrs") + str(i) for i in range(4)]
        what = []
        target = rng.choice(["x", "x", "y", "y", "t", "xy", "ids"])
        if "x" in target:
            kind = rng.choice(list(inputs.SAMPLES))
            x = self._made(inputs.SAMPLES[kind], x)
            what.append(f"x {kind}")
        if target in ("y", "xy"):
            kind = rng.choice(list(inputs.LABELS))
            y = inputs.LABELS[kind](rng, y)
            what.append(f"y {kind}")
        if target == "t":
            t = rng.choice(inputs.TASKS)
            what.append(f"t of {type(t).__name__}")
        if target == "ids":
            kind = rng.choice(list(inputs.LABELS))
            ids = inputs.LABELS[kind](rng, ids)
            what.append(f"ids {kind}")
        calls: dict[str, Callable[[], Any]] = {
            "observe": lambda: learner.observe(x, y, t),
            "revisit": lambda: learner.revisit(x, y, t),
            "predict": lambda: learner.predict(x),
            "predict_proba": lambda: learner.predict_proba(x),
            "embed": lambda: learner.embed(x),
            "ask": lambda: learner.ask(ids, x),
            "tell": lambda: learner.tell(ids, y, t),
            "forget": lambda: learner.forget(next(iter(y)) if isinstance(y, list) and y else y),
            "merge": lambda: learner.merge(x),
        }
        names = (
            ["observe"] * 8 + ["ask"] * 4 + ["tell"] * 2 + list(calls) if target != "ids" else ["ask", "tell"]
        )
        name = rng.choice(names)
        words = f"{name}({', '.join(what)}) with {data}{'' if learner.batches else ', first'}"
        accepted = self.judge.accepts(words, learner, calls[name])
        if accepted and rng.random() < 0.2 and self._began_with(learner, data):
            self._still_works(words, learner, data)

    def _began_with(self, learner: Any, data: str) -> bool:
        """Whether the first batch was such data, so that more of it must be taken."""
        said, x = json.loads(learner.state_dict()["meta"]), self._x(data)
        given = str(x.dtype).removeprefix("torch.")
        kinds = (given, "int32") if given == "uint16" else (given,)  # torch computes little with 16 bits
        return said["sample_shape"] == [*x.shape[1:]] and said["sample_type"] in kinds

    def _made(self, kind: Any, x: Tensor) -> Any:
        try:
            return kind(self.rng, x)
        except (
            RuntimeError,
            TypeError,
            ValueError,
            IndexError,
        ):  # which torch or numpy can't make of this batch
            return "nothing"

    # Settings.

    def setting(self) -> None:
        """A hostile setting, seed, device or network."""
        fields = {field.name: field.type for field in dataclasses.fields(registry()[self.name].Settings)}
        field = self.rng.choice([*fields, *fields, "seed", "device", "network"])
        value = self.rng.choice(inputs.VALUES)
        what = (
            f"{field}={str(value)[:20] if not isinstance(value, int) or abs(value) < 10**50 else '10**400'}"
        )
        self.judge.counts["tried"] += 1
        made: list[Any] = []
        try:
            made.append(make(self.name, **{field: value}))
        except Exception as error:
            self.judge.refused(what, error)
            return
        self.judge.counts["accepted"] += 1
        long = field.endswith("steps") or field == "iterations"
        if not (long and isinstance(value, int) and value > 1000):
            for _ in range(2):
                self.judge.accepts(f"a good batch with {what}", made[0], lambda: self._good(made[0], "mlp"))

    # States and files.

    def state(self) -> None:
        """A forged state."""
        data = self._any_data()
        learner = self._subject(data)
        what, state = forged_state(self.rng, self.states[data])
        if self.judge.accepts(f"state: {what} ({data})", learner, lambda: learner.load_state_dict(state)):
            self._still_works(f"state: {what} ({data})", learner, data, forged=True)
        self._drop(learner)

    def file(self) -> None:
        """A forged file."""
        data = self._any_data()
        learner = self._subject(data)
        what = self._forge_file(data, learner)
        content = self.path.read_bytes()
        network = self._new(data).given if isinstance(learner.given, nn.Module) else None
        self.judge.counts["tried"] += 1
        try:
            loaded = load(self.path, network=network, device="cpu")
        except Exception as error:
            self.judge.refused(f"file: {what} ({data})", error)
            if not isinstance(error, CheckpointError):
                self.judge.note(f"not a CheckpointError: {type(error).__name__} at {where(error)}", what)
        else:
            self.judge.counts["accepted"] += 1
            if self.judge.is_finite(f"file: {what}", loaded):
                self._still_works(f"file: {what} ({data})", loaded, data, forged=True)
            return
        if self.path.read_bytes() != content:
            self.judge.counts["changed"] += 1
            self.judge.note("CHANGED the file", what)

    def _forge_file(self, data: str, learner: Any) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            what, state = forged_state(rng, self.states[data])
            plain = {
                name: part
                for name, part in state.items()
                if isinstance(part, Tensor)
                and part.layout == torch.strided
                and part.device.type == "cpu"
                and name
            }
            try:  # with the right checksum
                checkpoint.write(plain | {"meta": state.get("meta", "")}, self.path)
                return f"signed, {what}"
            except ValueError:
                pass
        learner.save(self.path)
        content = bytearray(self.path.read_bytes())
        kind = rng.choice(["truncated", "flipped", "zeroed", "longer", "header", "header", "empty", "text"])
        place = rng.randrange(len(content))
        if kind == "truncated":
            content = content[:place]
        elif kind == "flipped":
            content[place] ^= 1 << rng.randrange(8)
        elif kind == "zeroed":
            content[place : place + 64] = bytes(len(content[place : place + 64]))
        elif kind == "longer":
            content += bytes(rng.randrange(1, 100))
        elif kind == "header":
            content = self._forge_header(content)
        else:
            content = bytearray(b"" if kind == "empty" else b"hello" * 10)
        self.path.write_bytes(bytes(content))
        return kind

    def _forge_header(self, content: bytearray) -> bytearray:
        rng, size = self.rng, int.from_bytes(content[:8], "little")
        header = json.loads(bytes(content[8 : 8 + size]))
        name = rng.choice(sorted(header))
        inside = header if rng.random() < 0.3 or not header[name] else header[name]
        inside[rng.choice(sorted(inside))] = rng.choice(JUNK)
        text = json.dumps(header).encode()
        length = rng.choice([len(text)] * 4 + [0, 2**63, len(text) + 1, 10**9])
        return bytearray(length.to_bytes(8, "little") + text + bytes(content[8 + size :]))

    # Sequences.

    def sequence(self) -> None:
        """Samples of another shape wait when a batch is observed."""
        learner, x = self._new("mlp"), self._x("mlp")
        other = self.rng.choice([x[:, :4], x[:, :, None], x.to(torch.uint8), torch.cat([x, x], 1), x.half()])
        self.judge.accepts("ask of another shape first", learner, lambda: learner.ask(list("pqrs"), other))
        if self.judge.accepts("then observe", learner, lambda: self._good(learner, "mlp")):
            for what, call in {
                "ask": lambda: learner.ask(list("tuvw"), x),
                "tell": lambda: learner.tell(list("tuvw"), list("abab"), 0 if self.bound else None),
            }.items():
                if not self.judge.accepts(f"then {what}", learner, call):
                    self.judge.counts["raw"] += 1
                    self.judge.note(f"BLOCKED: {what} after an ask of another shape", str(list(other.shape)))

    def many_labels(self) -> None:
        """More labels in one batch than most learners have room for."""
        count = 100_000 if self.name in ("finetune", "iid-online", "iid-offline") else 10_000
        learner = make(self.name, **({"short_term_memory": 50_000} if self.name == "cn-dpm" else {}))
        x = torch.randn(count, 6, generator=torch.Generator().manual_seed(0))
        t = 0 if self.bound else None
        self.judge.accepts(
            f"{count} labels in one batch", learner, lambda: learner.observe(x, range(count), t)
        )
